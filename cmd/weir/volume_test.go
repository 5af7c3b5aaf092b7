// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/pki"
)

// bench is a shell on a registry in memory.
type bench struct {
	t        *testing.T
	registry *memory.Client
	dial     func(federation.Site, federation.Gateway) (*grpc.ClientConn, error)
	keys     map[string]keyring.SiteKey
}

func newBench(t *testing.T) *bench {
	return &bench{t: t, registry: memory.New(), keys: map[string]keyring.SiteKey{}}
}

// site registers a site with one gateway, alive.
func (b *bench) site(name, organization string) federation.Member {
	b.t.Helper()
	k, err := keyring.NewSiteKey()
	if err != nil {
		b.t.Fatal(err)
	}
	b.keys[name] = k
	g := federation.Gateway{Name: name + "-1", Addr: name + "-1:7400", NFSAddr: "10.0.0.1:2049", Incarnation: "i-" + name}
	s := federation.Site{Name: name, Organization: organization, WrapKey: k.Public(), Gateways: []federation.Gateway{g}}
	if err := b.registry.Register(b.t.Context(), s); err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.registry.Heartbeat(b.t.Context(), federation.Alive{Gateway: g.Name, Site: name, Incarnation: g.Incarnation}, 10*time.Second); err != nil {
		b.t.Fatal(err)
	}
	return federation.Member{Gateway: g.Name, Site: name, Incarnation: g.Incarnation}
}

// borrowed is a registry that a command may not close.
type borrowed struct{ federation.Registry }

func (borrowed) Close() error { return nil }

// run runs a command line.
func (b *bench) run(input string, args ...string) (code int, out, errs string) {
	b.t.Helper()
	var stdout, stderr bytes.Buffer
	env := map[string]string{"WEIR_REGISTRY": "https://r:2379", "WEIR_CA": "ca", "WEIR_CERT": "cert", "WEIR_KEY": "key"}
	sh := &shell{in: strings.NewReader(input), out: &stdout, err: &stderr, getenv: func(k string) string { return env[k] },
		now: func() time.Time { return storyTime }, random: rand.Reader,
		connect: func(connection) (*client, error) {
			return &client{registry: borrowed{b.registry}, dial: b.dial,
				self: pki.Identity{Federation: "demo", Organization: "SURF", Site: "ams", Gateway: "operator"}}, nil
		}}
	code = sh.run(b.t.Context(), args)
	return code, stdout.String(), stderr.String()
}

// want runs a command line and checks its exit code, and that output and errors hold a text.
func (b *bench) want(code int, text, input string, args ...string) string {
	b.t.Helper()
	got, out, errs := b.run(input, args...)
	if got != code || !strings.Contains(out+errs, text) {
		b.t.Fatalf("weir %s: exit %d\n%s%s\nwant exit %d and … %s …", strings.Join(args, " "), got, out, errs, code, text)
	}
	return out
}

const manifest = `
apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: data}
spec:
  size: 10Gi
  durability: {acknowledge: Sites}
  home: {preferredSites: [fra]}
`

func TestVolumeCreate(t *testing.T) {
	b := newBench(t)
	b.want(exitError, `spec.home.preferredSites[0]: "fra": no such site`, manifest, "volume", "create", "-f", "-")
	b.site("ams", "SURF")
	fra := b.site("fra", "DFN")
	b.want(exitError, `-: spec.size: missing or 0`, strings.Replace(manifest, "size: 10Gi", "", 1), "volume", "create", "-f", "-")
	b.want(exitOK, "sites  fra, ams", manifest, "volume", "create", "-f", "-", "--wait", "0")

	v, _, err := b.registry.FindVolume(t.Context(), "data")
	if err != nil {
		t.Fatal(err)
	}
	if v.Owner != "SURF" || v.Generation != 1 || v.Spec.Size != 10<<30 || v.Spec.Durability.Sites != 2 || v.UUID[14] != '4' || !v.CreatedAt.Equal(storyTime) {
		t.Errorf("created %+v", v)
	}
	ring, _, err := b.registry.GetKeyring(t.Context(), v.UUID)
	if err != nil {
		t.Fatal(err)
	}
	at, err := b.keys["ams"].Unwrap(ring, "ams")
	if err != nil {
		t.Fatal(err)
	}
	if there, err := b.keys["fra"].Unwrap(ring, "fra"); err != nil || there != at {
		t.Fatalf("the sites' keys differ (%v)", err)
	}

	b.want(exitError, "create volume data: name taken: it is volume "+v.UUID+", of SURF: choose another name", manifest, "volume", "create", "-f", "-")
	b.want(exitError, "no such file", "", "volume", "create", "-f", filepath.Join(t.TempDir(), "none.yaml"))

	// One that waits finds the home.
	path := filepath.Join(t.TempDir(), "volume.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(manifest, "name: data", "name: more", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	go b.takeHome("more", fra)
	b.want(exitOK, "home   fra-1 (site fra), epoch 1", "", "volume", "create", "-f", path)
}

// takeHome does what a gateway does when a volume appears.
func (b *bench) takeHome(name string, home federation.Member) {
	_ = b.registry.Watch(b.t.Context(), func(e federation.Event) error {
		if e.Volume == nil || e.Volume.Name != name {
			return nil
		}
		_, err := b.registry.SwapControl(b.t.Context(), e.Volume.UUID, 0, federation.Control{Volume: e.Volume.UUID, Epoch: 1, Home: home,
			Members: []federation.Member{home}, History: []federation.EpochStart{{Epoch: 1}}})
		if err != nil {
			b.t.Error(err)
		}
		return context.Canceled
	})
}

// Nothing stays of a volume that could not be created; one whose creation was not answered is looked up.
func TestVolumeCreateFaults(t *testing.T) {
	b := newBench(t)
	b.site("ams", "SURF")
	b.site("fra", "DFN")
	keyrings := func() (n int) {
		err := b.registry.Watch(t.Context(), func(e federation.Event) error {
			switch e.Kind {
			case federation.KindKeyring:
				n++
			case federation.KindSynced:
				return context.Canceled
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		return n
	}
	b.registry.Script(memory.UnavailableFault)
	b.want(exitError, "nothing was created; try again", manifest, "volume", "create", "-f", "-", "--wait", "0")
	b.registry.Script(memory.None, memory.UnavailableFault)
	b.want(exitError, "registry unavailable", manifest, "volume", "create", "-f", "-", "--wait", "0")
	b.registry.Script(memory.None, memory.UnknownLost)
	b.want(exitError, "it is not there now", manifest, "volume", "create", "-f", "-", "--wait", "0")
	if n := keyrings(); n != 1 { // the one of the unknown outcome, which may still come
		t.Errorf("%d keyrings are left", n)
	}
	b.registry.Script(memory.None, memory.UnknownApplied)
	b.want(exitOK, "volume data created", manifest, "volume", "create", "-f", "-", "--wait", "0")
	b.registry.SetDown(true)
	b.want(exitError, "registry unavailable", "", "volume", "list")
}

func TestMissingHome(t *testing.T) {
	v := federation.Volume{Name: "data", Sites: []string{"ams", "fra"}}
	site := func(alive bool, gateways ...federation.Gateway) []federation.SiteStatus {
		return []federation.SiteStatus{{Site: federation.Site{Name: "ams", Gateways: gateways}, Alive: map[string]bool{"ams-1": alive}}}
	}
	g := federation.Gateway{Name: "ams-1"}
	for want, sites := range map[string][]federation.SiteStatus{
		"its first site ams is not registered any more: start a gateway there":      nil,
		"its first site ams has no gateway: start one there":                        site(false),
		"no gateway of its first site ams is alive (ams-1): start it":               site(false, g),
		"gateway ams-1 at its first site ams is alive and has not opened it: `weir": site(true, g),
	} {
		if got := missingHome(v, sites); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A volume that clusters use is not deleted behind their backs.
func TestVolumeDeleteInUse(t *testing.T) {
	b := newBench(t)
	b.site("ams", "SURF")
	b.site("fra", "DFN")
	b.want(exitOK, "created", manifest, "volume", "create", "-f", "-", "--wait", "0")
	v, _, err := b.registry.FindVolume(t.Context(), "data")
	if err != nil {
		t.Fatal(err)
	}
	claim := federation.Claim{Volume: v.UUID, Site: "fra", Namespace: "lab", Name: "copy", Kind: federation.ClaimGeoVolume, Access: federation.ReadWrite}
	if err := b.registry.PutClaim(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	b.want(exitError, "in use by fra/lab/copy", "", "volume", "delete", "data", "--yes")
	v, rev, err := b.registry.FindVolume(t.Context(), "data")
	if err != nil || v.Closing || v.Deleted {
		t.Fatalf("after the refusal: %+v, %v", v, err)
	}
	if err := b.registry.DeleteClaim(t.Context(), v.UUID, "fra", "lab", "copy"); err != nil {
		t.Fatal(err)
	}
	v.OwnerSite, v.OwnerCluster = "ams", "uid"
	if rev, err = b.registry.UpdateVolume(t.Context(), rev, v); err != nil {
		t.Fatal(err)
	}
	b.want(exitError, "belongs to the cluster of site ams", "", "volume", "delete", "data", "--yes")
	v.OwnerSite, v.OwnerCluster = "", ""
	if _, err = b.registry.UpdateVolume(t.Context(), rev, v); err != nil {
		t.Fatal(err)
	}
	b.want(exitOK, "deleted since", "", "volume", "delete", "data", "--yes")
}

func TestVolumeListAndDelete(t *testing.T) {
	b := newBench(t)
	b.want(exitOK, "There are no volumes", "", "volume", "list")
	home := b.site("ams", "SURF")
	b.site("fra", "DFN")
	b.want(exitOK, "created", manifest, "volume", "create", "-f", "-", "--wait", "0")
	v, _, err := b.registry.FindVolume(t.Context(), "data")
	if err != nil {
		t.Fatal(err)
	}
	row := func(want ...string) {
		t.Helper()
		out := b.want(exitOK, "NAME", "", "volume", "list")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if got := strings.Fields(lines[len(lines)-1]); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	row("data", v.UUID, "SURF", "10Gi", "fra,ams", "none", "yet", "-")
	if _, err := b.registry.SwapControl(t.Context(), v.UUID, 0, federation.Control{Volume: v.UUID, Epoch: 1, Home: home, Members: []federation.Member{home}}); err != nil {
		t.Fatal(err)
	}
	row("data", v.UUID, "SURF", "10Gi", "fra,ams", "ams-1", "(ams)", "1")

	b.want(exitError, `not confirmed ("no" was typed): nothing was changed`, "no\n", "volume", "delete", "data")
	b.want(exitError, "there is no volume of this name", "", "volume", "delete", "date", "--yes")
	b.registry.Script(memory.ConflictFault)
	b.want(exitOK, "volume data is deleted since 2026-05-04T10:00:00Z", "data\n", "volume", "delete", "data")
	b.want(exitOK, "volume data is deleted since", "", "volume", "delete", "data")
	row("data", v.UUID, "SURF", "10Gi", "fra,ams", "deleted", "2026-05-04T10:00:00Z", "-")
	b.want(exitError, "its name is free only when it is purged", manifest, "volume", "create", "-f", "-")

	var lines []VolumeLine
	if err := json.Unmarshal([]byte(b.want(exitOK, "", "", "volume", "list", "-o", "json")), &lines); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 1 || lines[0].UUID != v.UUID || !lines[0].Deleted || lines[0].Home != "ams-1" {
		t.Errorf("got %+v", lines)
	}
}

func TestAdmitAndExpel(t *testing.T) {
	b := newBench(t)
	b.site("ams", "SURF")
	b.site("fra", "DFN")
	b.want(exitOK, "created", manifest, "volume", "create", "-f", "-", "--wait", "0")
	admissions := func(want ...string) {
		t.Helper()
		all, err := b.registry.ListAdmissions(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range all {
			got = append(got, a.Site+" "+a.Client+" "+string(a.Access))
		}
		if strings.Join(got, "; ") != strings.Join(want, "; ") {
			t.Errorf("admitted are %q, want %q", got, want)
		}
	}
	b.want(exitUsage, `--client "10.0.0.0/8": it is a range`, "", "volume", "admit", "data", "--site", "ams", "--client", "10.0.0.0/8")
	b.want(exitUsage, `--client "pod": write one IP address`, "", "volume", "admit", "data", "--site", "ams", "--client", "pod")
	b.want(exitUsage, "no --site", "", "volume", "admit", "data", "--client", "10.0.0.7")
	b.want(exitUsage, "no --client", "", "volume", "expel", "data", "--site", "ams")
	b.want(exitError, `site "mil": there is no site of this name: the federation has ams, fra`, "", "volume", "admit", "data", "--site", "mil", "--client", "10.0.0.7")
	b.want(exitError, "volume date: there is no volume of this name", "", "volume", "admit", "date", "--site", "ams", "--client", "10.0.0.7")
	admissions()
	b.want(exitOK, "client 10.0.0.7 may read and write volume data at site ams\n  mount -t nfs4 -o vers=4.2 10.0.0.1:/data MOUNTPOINT\n", "",
		"volume", "admit", "data", "--site", "ams", "--client", "::ffff:10.0.0.7")
	b.want(exitOK, "may read volume data at site fra", "", "volume", "admit", "data", "--site", "fra", "--client", "FD00::1", "--read-only")
	admissions("ams 10.0.0.7 rw", "fra fd00::1 ro")
	b.want(exitOK, "may read volume data", "", "volume", "admit", "data", "--site", "ams", "--client", "10.0.0.7", "--read-only")
	admissions("ams 10.0.0.7 ro", "fra fd00::1 ro")
	b.want(exitOK, "may not use volume data at site ams any more", "", "volume", "expel", "data", "--site", "ams", "--client", "10.0.0.7")
	admissions("fra fd00::1 ro")
	b.want(exitOK, "was not admitted", "", "volume", "expel", "data", "--site", "ams", "--client", "10.0.0.7")
	v, _, err := b.registry.FindVolume(t.Context(), "data")
	if err == nil {
		err = b.registry.PutAdmission(t.Context(), federation.Admission{Volume: v.UUID, Site: "ams", Client: "10.0.0.7", Access: federation.ReadWrite, Node: "n1"})
	}
	if err != nil {
		t.Fatal(err)
	}
	b.want(exitError, "--client 10.0.0.7: Kubernetes has admitted it to volume data, as node n1, until it is detached", "", "volume", "admit", "data", "--site", "ams", "--client", "10.0.0.7", "--read-only")
	admissions("ams 10.0.0.7 rw", "fra fd00::1 ro")
	b.want(exitOK, "any more", "", "volume", "expel", "data", "--site", "ams", "--client", "10.0.0.7")
	b.want(exitOK, "deleted since", "", "volume", "delete", "data", "--yes")
	b.want(exitError, "volume data: it was deleted at", "", "volume", "admit", "data", "--site", "ams", "--client", "10.0.0.7")
	b.want(exitOK, "any more", "", "volume", "expel", "data", "--site", "fra", "--client", "fd00::1")
}

func TestMountCommand(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.1:2049":    "mount -t nfs4 -o vers=4.2 10.0.0.1:/data MOUNTPOINT",
		"[fd00::1]:2050":   "mount -t nfs4 -o vers=4.2,port=2050 [fd00::1]:/data MOUNTPOINT",
		"gw.example:20490": "mount -t nfs4 -o vers=4.2,port=20490 gw.example:/data MOUNTPOINT",
		"":                 "",
	} {
		if got := mountCommand(addr, "data"); got != want {
			t.Errorf("%s: got %q, want %q", addr, got, want)
		}
	}
}
