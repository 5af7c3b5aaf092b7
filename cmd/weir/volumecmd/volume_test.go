// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/cmd/weir/sitecmd"
	"github.com/weir-storage/weir/cmd/weir/statuscmd"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/encryption"
	"github.com/weir-storage/weir/federation/federationtest"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/federation/quantity"
)

// tree has the commands that these tests run.
func tree(sh *cli.Shell, connect access.Connector) []*cobra.Command {
	return []*cobra.Command{Command(sh, connect), sitecmd.Command(sh, connect), statuscmd.Command(sh, connect)}
}

func TestVolumeCreate(t *testing.T) {
	b := clitest.New(t, tree)
	b.Want(cli.ExitError, `spec.home.preferredSites[0]: "fra": no such site`, clitest.Manifest, "volume", "create", "-f", "-")
	b.Site("ams", "SURF")
	fra := b.Site("fra", "DFN")
	b.Want(cli.ExitError, `-: spec.size: missing or 0`, strings.Replace(clitest.Manifest, "size: 10Gi", "", 1), "volume", "create", "-f",
		"-")
	b.Want(cli.ExitOK, "sites  fra, ams", clitest.Manifest, "volume", "create", "-f", "-", "--wait", "0")

	v, _, err := b.Registry.FindVolume(t.Context(), "data")
	if err != nil {
		t.Fatal(err)
	}
	if v.Owner != "SURF" || v.Generation != 1 || v.Spec.Size != 10<<30 || v.Spec.Durability.Sites != 2 || v.UUID[14] != '4' ||
		!v.CreatedAt.Equal(clitest.Time) {
		t.Errorf("created %+v", v)
	}
	ring, _, err := b.Registry.GetKeyring(t.Context(), v.UUID)
	if err != nil {
		t.Fatal(err)
	}
	at, err := b.Keys["ams"].Unwrap(ring, "ams")
	if err != nil {
		t.Fatal(err)
	}
	if there, err := b.Keys["fra"].Unwrap(ring, "fra"); err != nil || there != at {
		t.Fatalf("the sites' keys differ (%v)", err)
	}

	b.Want(cli.ExitError, "create volume data: name taken: it is volume "+v.UUID+", of SURF: choose another name", clitest.Manifest,
		"volume", "create", "-f", "-")
	b.Want(cli.ExitError, "no such file", "", "volume", "create", "-f", filepath.Join(t.TempDir(), "none.yaml"))

	// A command that waits finds the home.
	path := filepath.Join(t.TempDir(), "volume.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(clitest.Manifest, "name: data", "name: more", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	go takeHome(t, b, "more", fra)
	b.Want(cli.ExitOK, "home   fra-1 (site fra), epoch 1", "", "volume", "create", "-f", path)
}

// takeHome becomes the home of a volume when it appears, as a gateway does.
func takeHome(t *testing.T, b *clitest.Bench, name string, home federation.Member) {
	_ = b.Registry.Watch(t.Context(), func(e federation.Event) error {
		if e.Volume == nil || e.Volume.Name != name {
			return nil
		}
		_, err := b.Registry.SwapControl(t.Context(), e.Volume.UUID, 0, federation.Control{Volume: e.Volume.UUID, Epoch: 1, Home: home,
			Members: []federation.Member{home}, History: []federation.EpochStart{{Epoch: 1}}})
		if err != nil {
			t.Error(err)
		}
		return context.Canceled
	})
}

// Nothing stays of a volume that could not be created. The command looks for one whose creation was
// not answered.
func TestVolumeCreateFaults(t *testing.T) {
	b := clitest.New(t, tree)
	b.Site("ams", "SURF")
	b.Site("fra", "DFN")
	keyrings := func() (n int) {
		err := b.Registry.Watch(t.Context(), func(e federation.Event) error {
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
	b.Registry.Script(memory.UnavailableFault)
	b.Want(cli.ExitError, "nothing was created; try again", clitest.Manifest, "volume", "create", "-f", "-", "--wait", "0")
	b.Registry.Script(memory.UnknownLost)
	b.Want(cli.ExitError, "it is not there now", clitest.Manifest, "volume", "create", "-f", "-", "--wait", "0")
	if n := keyrings(); n != 0 {
		t.Errorf("%d keyrings are left", n)
	}
	b.Registry.Script(memory.UnknownApplied)
	b.Want(cli.ExitOK, "volume data created", clitest.Manifest, "volume", "create", "-f", "-", "--wait", "0")
	b.Registry.SetDown(true)
	b.Want(cli.ExitError, "registry unavailable", "", "volume", "list")
}

// A volume in the trash comes back, or goes for good, as a person says.
func TestTrash(t *testing.T) {
	b := clitest.New(t, tree)
	b.Site("ams", "SURF")
	v := federationtest.Volume("u1", "data")
	v.Owner = "SURF"
	if _, err := b.Registry.CreateVolume(t.Context(), v, federation.Keyring{}); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "it is not in the trash", "", "volume", "undelete", "data")
	b.Want(cli.ExitError, "it is not in the trash", "", "volume", "purge", "data", "--yes")
	b.Want(cli.ExitUsage, "it is negative", "", "volume", "delete", "data", "--yes", "--trash", "-1h")
	b.Want(cli.ExitOK, "until it is purged, after 2026-05-04T12:00:00Z", "", "volume", "delete", "data", "--yes", "--trash", "2h")
	b.Registry.Script(memory.ConflictFault)
	b.Want(cli.ExitOK, "volume data is there again", "", "volume", "undelete", "data")
	if got, _, err := b.Registry.GetVolume(t.Context(), "u1"); err != nil || got.Deleted || got.Closing || !got.DeletedAt.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	b.Want(cli.ExitOK, "after 2026-05-11T10:00:00Z", "", "volume", "delete", "data", "--yes")
	b.Want(cli.ExitError, "not confirmed", "no\n", "volume", "purge", "data")
	b.Want(cli.ExitOK, "is purged within a minute", "data\n", "volume", "purge", "data")
	got, rev, err := b.Registry.GetVolume(t.Context(), "u1")
	if err != nil || !got.PurgeAt().Equal(clitest.Time) {
		t.Errorf("%+v, %v", got, err)
	}
	got.OwnerSite, got.OwnerCluster = "ams", "uid"
	if _, err := b.Registry.UpdateVolume(t.Context(), rev, got); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "it belongs to the cluster of site ams", "", "volume", "undelete", "data")
}

// A volume cannot be deleted while clusters use it.
func TestVolumeDeleteInUse(t *testing.T) {
	b := clitest.New(t, tree)
	b.Site("ams", "SURF")
	b.Site("fra", "DFN")
	b.Want(cli.ExitOK, "created", clitest.Manifest, "volume", "create", "-f", "-", "--wait", "0")
	v, _, err := b.Registry.FindVolume(t.Context(), "data")
	if err != nil {
		t.Fatal(err)
	}
	claim := federation.Claim{Volume: v.UUID, Site: "fra", Namespace: "lab", Name: "copy", Kind: federation.ClaimGeoVolume,
		Access: federation.ReadWrite}
	if err := b.Registry.PutClaim(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "in use by fra/lab/copy", "", "volume", "delete", "data", "--yes")
	v, rev, err := b.Registry.FindVolume(t.Context(), "data")
	if err != nil || v.Closing || v.Deleted {
		t.Fatalf("after the refusal: %+v, %v", v, err)
	}
	closing := func(want bool) {
		t.Helper()
		if v, rev, err = b.Registry.FindVolume(t.Context(), "data"); err != nil || v.Closing != want || v.Deleted {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	b.Registry.Script(memory.None, memory.ConflictFault) // others change the record meanwhile
	b.Want(cli.ExitError, "in use by fra/lab/copy", "", "volume", "delete", "data", "--yes")
	closing(false)
	if err := b.Registry.DeleteClaim(t.Context(), v.UUID, "fra", "lab", "copy"); err != nil {
		t.Fatal(err)
	}
	// What came to nothing lets others claim the volume.
	b.Registry.Script(memory.None, memory.UnavailableFault)
	b.Want(cli.ExitError, "", "", "volume", "delete", "data", "--yes")
	closing(false)
	b.Registry.Script(memory.None, memory.UnavailableFault, memory.UnavailableFault)
	b.Want(cli.ExitError, "`weir volume undelete data` calls its deletion off", "", "volume", "delete", "data", "--yes")
	closing(true)
	b.Want(cli.ExitOK, "volume data is there again", "", "volume", "undelete", "data")
	closing(false)
	b.Want(cli.ExitError, "it is not in the trash", "", "volume", "undelete", "data")
	v.OwnerSite, v.OwnerCluster = "ams", "uid"
	if rev, err = b.Registry.UpdateVolume(t.Context(), rev, v); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "belongs to the cluster of site ams", "", "volume", "delete", "data", "--yes")
	v.OwnerSite, v.OwnerCluster = "", ""
	if _, err = b.Registry.UpdateVolume(t.Context(), rev, v); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitOK, "deleted since", "", "volume", "delete", "data", "--yes")
}

func TestVolumeListAndDelete(t *testing.T) {
	b := clitest.New(t, tree)
	b.Want(cli.ExitOK, "There are no volumes", "", "volume", "list")
	home := b.Site("ams", "SURF")
	b.Site("fra", "DFN")
	b.Want(cli.ExitOK, "created", clitest.Manifest, "volume", "create", "-f", "-", "--wait", "0")
	v, _, err := b.Registry.FindVolume(t.Context(), "data")
	if err != nil {
		t.Fatal(err)
	}
	row := func(want ...string) {
		t.Helper()
		out := b.Want(cli.ExitOK, "NAME", "", "volume", "list")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if got := strings.Fields(lines[len(lines)-1]); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	row("data", v.UUID, "SURF", "10Gi", "-", "-", "fra,ams", "none", "yet", "-")
	if _, err := b.Registry.SwapControl(t.Context(), v.UUID, 0,
		federation.Control{Volume: v.UUID, Epoch: 1, Home: home, Members: []federation.Member{home}}); err != nil {
		t.Fatal(err)
	}
	row("data", v.UUID, "SURF", "10Gi", "-", "-", "fra,ams", "ams-1", "(ams)", "1")
	held := federation.Bytes(1 << 20)
	told := federation.Observed{Volume: v.UUID, Gateway: home.Gateway, Used: 2 << 30, Held: &held}
	if err := b.Registry.PutObserved(t.Context(), told); err != nil {
		t.Fatal(err)
	}
	row("data", v.UUID, "SURF", "10Gi", "2.0", "GiB", "1.0", "MiB", "fra,ams", "ams-1", "(ams)", "1")

	b.Want(cli.ExitError, `not confirmed ("no" was typed): nothing was changed`, "no\n", "volume", "delete", "data")
	b.Want(cli.ExitError, "there is no volume of this name", "", "volume", "delete", "date", "--yes")
	b.Registry.Script(memory.ConflictFault)
	b.Want(cli.ExitOK, "volume data is deleted since 2026-05-04T10:00:00Z", "data\n", "volume", "delete", "data")
	b.Want(cli.ExitOK, "volume data is deleted since", "", "volume", "delete", "data")
	row("data", v.UUID, "SURF", "10Gi", "2.0", "GiB", "1.0", "MiB", "fra,ams", "deleted,", "goes", "2026-05-11T10:00:00Z", "-")
	b.Want(cli.ExitError, "its name is free only when it is purged", clitest.Manifest, "volume", "create", "-f", "-")

	var lines []VolumeLine
	if err := json.Unmarshal([]byte(b.Want(cli.ExitOK, "", "", "volume", "list", "-o", "json")), &lines); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 1 || lines[0].UUID != v.UUID || !lines[0].Deleted || lines[0].Home != "ams-1" {
		t.Errorf("got %+v", lines)
	}
}

// Who has a volume's key is shown, and why, also if nobody knows why any more.
func TestVolumeKeys(t *testing.T) {
	b := clitest.New(t, tree)
	b.Site("ams", "SURF")
	b.Site("waw", "PSNC")
	b.Site("fra", "DFN")
	v := federationtest.Volume("u1", "data")
	v.Owner, v.Sites = "SURF", []string{"ams"}
	v.Grants = []federation.Grant{{Site: "fra", Namespace: "lab", Access: federation.ReadOnly}}
	ring := federation.Keyring{Volume: "u1", Generation: 3, Wrapped: map[string][]byte{"ams": {1}, "waw": {2}}}
	if _, err := b.Registry.CreateVolume(t.Context(), v, ring); err != nil {
		t.Fatal(err)
	}
	a := federation.Admission{Volume: "u1", Site: "fra", Client: "10.0.0.1", Access: federation.ReadOnly}
	if err := b.Registry.PutAdmission(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitOK,
		"SITE  ORGANIZATION  KEY  WHY\nams   SURF          yes  copy\nfra   DFN           no   granted to read, admitted clients\n"+
			"waw   PSNC          yes  no reason any more\n", "", "volume", "keys", "data")
	b.Want(cli.ExitOK, `"generation": 3`, "", "volume", "keys", "data", "-o", "json")
	ring.Generation = 4
	ring.Later = []federation.LaterKey{{At: time.Date(2026, 5, 3, 9, 0, 0, 0, time.UTC), Wrapped: map[string][]byte{"ams": {3}}}}
	_, rev, err := b.Registry.GetKeyring(t.Context(), "u1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Registry.PutKeyring(t.Context(), rev, ring); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitOK, "waw   PSNC          until 2026-05-03T09:00:00Z  no reason any more", "", "volume", "keys", "data")
	b.Want(cli.ExitOK, "1    2026-05-03T09:00:00Z  keeps it  ams\n", "", "volume", "keys", "data")
	b.Want(cli.ExitOK, `"dataKeys": 2`, "", "volume", "keys", "data", "-o", "json")
	b.Want(cli.ExitError, "there is no volume of this name", "", "volume", "keys", "x")
	bare := federationtest.Volume("u2", "bare")
	if _, err := b.Registry.CreateVolume(t.Context(), bare, federation.Keyring{}); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "it has no keyring", "", "volume", "keys", "bare")
}

// A person asks for another data key once, also if the registry did not say whether it took it in.
func TestVolumeKeysRotate(t *testing.T) {
	b := clitest.New(t, tree)
	if _, err := b.Registry.CreateVolume(t.Context(), federationtest.Volume("u1", "data"), federation.Keyring{}); err != nil {
		t.Fatal(err)
	}
	wants := func(is encryption.Policy) {
		t.Helper()
		v, _, err := b.Registry.GetVolume(t.Context(), "u1")
		if err != nil || v.Spec.Encryption != is {
			t.Fatalf("%+v, %v, want %+v", v.Spec.Encryption, err, is)
		}
	}
	b.Want(cli.ExitOK, "makes another data key", "", "volume", "keys", "rotate", "data")
	wants(encryption.Policy{Rotation: 1})
	b.Want(cli.ExitUsage, "encryption.rotateEvery: 59m0s: not from", "", "volume", "keys", "rotate", "data", "--every", "59m")
	b.Want(cli.ExitOK, "goes by this", "", "volume", "keys", "rotate", "data", "--every", "2160h")
	b.Want(cli.ExitOK, "has this schedule already", "", "volume", "keys", "rotate", "data", "--every", "2160h")
	b.Want(cli.ExitOK, "makes another data key", "", "volume", "keys", "rotate", "data")
	wants(encryption.Policy{Rotation: 2, RotateEvery: quantity.Duration(2160 * time.Hour)})
	b.Want(cli.ExitError, "there is no volume of this name", "", "volume", "keys", "rotate", "x")
	b.Want(cli.ExitOK, "makes another data key", "", "volume", "keys", "rotate", "data", "--reseal")
	is := encryption.Policy{Rotation: 3, RotateEvery: quantity.Duration(2160 * time.Hour), Reseal: encryption.ResealRotation}
	wants(is)
	b.Want(cli.ExitOK, "goes by this", "", "volume", "keys", "rotate", "data", "--reseal=false")
	is.Reseal = ""
	wants(is)
	v, rev, err := b.Registry.GetVolume(t.Context(), "u1")
	if err == nil {
		v.Spec.Replication.Sites.Blind = []string{"x"}
		v.Generation++
		_, err = b.Registry.UpdateVolume(t.Context(), rev, v)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitUsage, "encryption.reseal: OnRotation: blind copies and lent stores keep", "", "volume", "keys", "rotate", "data",
		"--reseal")
	wants(is)
}

// Data keys are exported to a new file, by whoever has the private key of a site that has them.
func TestVolumeKeysExport(t *testing.T) {
	b := clitest.New(t, tree)
	private, err := keyring.NewSiteKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := private.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	siteKey, to := filepath.Join(folder, "site.key"), filepath.Join(folder, "data.keys")
	if err := os.WriteFile(siteKey, text, 0o600); err != nil {
		t.Fatal(err)
	}
	sites := map[string][]byte{"ams": private.Public()}
	ring, first, err := keyring.New("u1", sites, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if ring, err = private.Rotate(ring, "ams", sites, keyring.Next{At: time.Unix(1, 0)}, rand.Reader); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Registry.CreateVolume(t.Context(), federationtest.Volume("u1", "data"), ring); err != nil {
		t.Fatal(err)
	}
	export := func(more ...string) []string {
		return append([]string{"volume", "keys", "data", "--export", to}, more...)
	}
	b.Want(cli.ExitUsage, "give --site and --site-key", "", export()...)
	b.Want(cli.ExitError, "no such file", "", export("--site", "ams", "--site-key", siteKey+"x")...)
	b.Want(cli.ExitError, "it is not wrapped for site waw", "", export("--site", "waw", "--site-key", siteKey)...)
	b.Want(cli.ExitOK, "in the clear", "", export("--site", "ams", "--site-key", siteKey)...)
	b.Want(cli.ExitError, "is there already", "", export("--site", "ams", "--site-key", siteKey)...)
	all, err := private.UnwrapAll(ring, "ams")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(to)
	if want := fmt.Sprintf("\n0 %x\n1 %x\n", first, all[1]); err != nil || !strings.HasSuffix(string(got), want) {
		t.Errorf("%v: %q, want %q", err, got, want)
	}
	if i, err := os.Stat(to); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", i.Mode(), err)
	}
}
