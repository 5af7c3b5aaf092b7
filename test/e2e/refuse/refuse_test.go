// SPDX-License-Identifier: Apache-2.0

package refuse

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// wants fails the test unless the text has all of the words.
func wants(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not in what is said: %s", w, text)
		}
	}
}

// refused returns what a command printed that must fail.
func refused(t *testing.T, out string, err error) string {
	t.Helper()
	if err == nil {
		t.Fatalf("it is not refused: %s", out)
	}
	return out + err.Error()
}

// scene is a volume that a machine at b writes to all the time.
type scene struct {
	*bed.Scene
	writer *bed.Machine
}

// whole waits until all three copies have everything.
func (s *scene) whole() {
	s.T.Helper()
	s.Await("a", func(st bed.Status) bool {
		for _, r := range st.Replicas {
			if r.State != "Home" && r.State != "Member" && r.State != "Follower" {
				return false
			}
		}
		return st.State == "Ready" && len(st.Replicas) == 3
	})
}

// grows waits until the machine has noted more lines.
func (s *scene) grows(t *testing.T) {
	t.Helper()
	lines := func() int {
		b, err := os.ReadFile(s.writer.Shared() + "/lines")
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is not there before the first line
			t.Fatal(err)
		}
		return strings.Count(string(b), "\n")
	}
	for before := lines(); lines() < before+5; {
		if s.Ctx.Err() != nil {
			t.Fatal("writing does not go on")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// create tries to make another volume, from a manifest in which something was replaced.
func (s *scene) create(old, with string) (string, error) {
	m := bed.Manifest("other", 2, "a")
	changed := strings.Replace(m, old, with, 1)
	if m == changed {
		s.T.Fatalf("%q is not in %s", old, m)
	}
	return "", s.Bed.Create(s.Ctx, "a", changed)
}

// fails starts the gateway of c with a changed configuration, waits for it to end, and returns what
// it said.
func (s *scene) fails(t *testing.T, change ...string) string {
	t.Helper()
	p := s.start(t, change...)
	ctx, cancel := context.WithTimeout(s.Ctx, 30*time.Second)
	defer cancel()
	err := p.Wait(ctx)
	if err == nil || !p.Exited() {
		p.Kill()
		t.Fatalf("the gateway goes on, or ended in order: %v", err)
	}
	return log(t, p)
}

func (s *scene) start(t *testing.T, change ...string) *stage.Proc {
	t.Helper()
	p, err := s.Bed.Site("c").TryGateway(change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func log(t *testing.T, p *stage.Proc) string {
	t.Helper()
	b, err := os.ReadFile(p.Log())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// says waits until a process has said all of the words in one line.
func (s *scene) says(t *testing.T, p *stage.Proc, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(s.Ctx, 30*time.Second)
	defer cancel()
	for {
		text := log(t, p)
		for l := range strings.Lines(text) {
			n := 0
			for _, w := range words {
				if strings.Contains(l, w) {
					n++
				}
			}
			if n == len(words) {
				return
			}
		}
		if ctx.Err() != nil || p.Exited() {
			t.Fatalf("no line has all of %q: %s", words, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestBadInput(t *testing.T) {
	s := &scene{Scene: bed.NewScene(t, bed.Config{Promise: "2s"}, bed.Manifest("v", 2, "a"))}
	s.writer = s.Machine("b", "wb")
	lines := s.writer.Begin("lines", s.Tool+" write /mnt/v/lines /x/lines")
	s.grows(t)

	t.Run("more copies than sites", func(t *testing.T) {
		out, err := s.create("copies: 3", "copies: 4")
		wants(t, refused(t, out, err), "4 copies", "3 known sites", "register another site", "lower spec.replication.copies")
	})
	t.Run("unknown field", func(t *testing.T) {
		out, err := s.create("size:", "sizze:")
		wants(t, refused(t, out, err), ".yaml", "spec.sizze", "unknown field", "did you mean size?")
	})
	t.Run("negative size", func(t *testing.T) {
		out, err := s.create("20Gi", "-20Gi")
		wants(t, refused(t, out, err), ".yaml", "spec.size", "-20Gi", "write")
	})
	t.Run("wrong store key", s.wrongStoreKey)
	t.Run("certificate of another organization", s.wrongOrganization)
	t.Run("site of another organization", s.takenSite)
	t.Run("certificate of another federation", s.wrongFederation)
	t.Run("client that was not admitted", s.notAdmitted)
	t.Run("organization that was expelled", s.expelled)
	t.Run("authority that was replaced", s.replaced)
	t.Run("a member of the registry is killed", s.memberKilled)
	t.Run("a member of the registry writes what it likes", s.behind)
	t.Run("users of another organization", s.users)
	t.Run("clients without a certificate", s.certificates)
	t.Run("registry down", s.registryDown)

	s.grows(t)
	lines.Finish(s.Ctx)
	s.writer.Verify("/mnt/v/lines", "/x/lines")
}

func (s *scene) stopGateway(t *testing.T) {
	t.Helper()
	s.whole()
	if err := s.Bed.Site("c").Gateway().Terminate(s.Ctx); err != nil {
		t.Fatal(err)
	}
}

func (s *scene) startGateway(t *testing.T) {
	t.Helper()
	if err := s.Bed.Site("c").StartGateway(); err != nil {
		t.Fatal(err)
	}
	s.whole()
}

func (s *scene) wrongStoreKey(t *testing.T) {
	s.stopGateway(t)
	out := s.fails(t, "secretKey: "+bed.SecretKey, "secretKey: not-the-secret")
	wants(t, out, "store.accessKey", bed.AccessKey, "store.secretKey", s.Bed.Site("c").S3.Endpoint(), "refuses")
	if strings.Contains(out, "not-the-secret") {
		t.Error("the secret is in the message")
	}
	s.startGateway(t)
}

func (s *scene) wrongOrganization(t *testing.T) {
	s.stopGateway(t)
	own := s.Bed.TLS("gc")
	theirs, err := s.Bed.Issue("org-x", "c", pki.PartGateway, "gc", s.Bed.Site("c").Addr())
	if err != nil {
		t.Fatal(err)
	}
	out := s.fails(t, own.CA, theirs.CA, own.Cert, theirs.Cert, own.Key, theirs.Key)
	wants(t, out, "organization", "org-c", "org-x", theirs.Cert, "issue a certificate")
	s.startGateway(t)
}

// takenSite starts a gateway of organization org-x, with a valid certificate, that claims to be at
// site c, which belongs to org-c.
func (s *scene) takenSite(t *testing.T) {
	c := s.Bed.Site("c")
	own := s.Bed.TLS("gc")
	theirs, err := s.Bed.Issue("org-x", "c", pki.PartGateway, "gx", c.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Bed.AdmitOrganizations(s.Ctx, "org-x"); err != nil {
		t.Fatal(err)
	}
	p := s.start(t, own.CA, theirs.CA, own.Cert, theirs.Cert, own.Key, theirs.Key, "organization: org-c", "organization: org-x",
		"gateway: gc", "gateway: gx",
		":7001", ":7009", ":2049", ":2059", c.PoolDir(), c.PoolDir()+"-x")
	s.says(t, p, "not registered", "site c", `organization: \"org-x\"`, `belongs to organization \"org-c\"`, "correct organization",
		"choose another site name")
	st, err := s.Bed.Status(s.Ctx, "a", "v")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range st.Replicas {
		if r.Gateway == "gx" {
			t.Errorf("the foreign gateway has a copy: %+v", st)
		}
	}
	s.grows(t)
}

func (s *scene) wrongFederation(t *testing.T) {
	s.stopGateway(t)
	other, err := pki.NewAuthority(bed.Federation, time.Now().Add(-time.Hour), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := other.Issue(pki.Identity{Federation: bed.Federation, Organization: "org-c", Site: "c", Gateway: "gc",
		Part: pki.PartGateway}, nil,
		time.Now().Add(-time.Hour), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := pair.Write(t.TempDir(), "gc")
	if err != nil {
		t.Fatal(err)
	}
	own := s.Bed.TLS("gc")
	wants(t, s.fails(t, own.Cert, cert, own.Key, key), "tls", cert, own.CA)
	s.startGateway(t)
}

func (s *scene) notAdmitted(t *testing.T) {
	b := s.Bed.Site("b")
	g, err := b.Guest(s.Ctx, "wx")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Kill()
	err = g.Mount(s.Ctx, b.Addr(), "/v", "/mnt/v", "vers=4.2,proto=tcp,soft,timeo=50,retrans=1")
	if err == nil {
		t.Fatal("a client that was not admitted mounts the volume")
	}
	t.Logf("mount says: %v", err)
	s.says(t, b.Gateway(), "refused", g.Addr(), "weir volume admit")
	// The remedy works.
	if _, err := b.Mount(s.Ctx, g, "v"); err != nil {
		t.Error(err)
	}
}

// memberKilled: etcd and gatekeeper of one site are killed, each site's in turn, while people read
// the registry. No command fails, no gateway counts as gone, and writing goes on.
func (s *scene) memberKilled(t *testing.T) {
	s.whole()
	ctx, stop := context.WithCancel(s.Ctx)
	defer stop()
	asked := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			for _, command := range [][]string{{"volume", "list"}, {"site", "list"}} {
				if out, err := s.Bed.Weir(s.Ctx, "a", command...); err != nil {
					t.Errorf("%v: %v: %s", command, err, out)
				}
				n++
			}
			if r, err := s.Bed.Report(s.Ctx, "b"); err == nil {
				for _, g := range r.Gateways {
					if !g.Alive {
						t.Errorf("gateway %s counts as gone", g.Name)
					}
				}
			}
		}
		asked <- n
	}()
	for _, m := range s.Bed.Etcd.Members() {
		s.grows(t)
		m.Kill()
		s.grows(t)
		time.Sleep(2 * time.Second) // as long as a power cut that people see
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		if err := m.Ready(s.Ctx); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	t.Logf("%d commands, none of which failed", <-asked)
	s.whole()
}

func (s *scene) registryDown(t *testing.T) {
	s.whole()
	for _, m := range s.Bed.Etcd.Members() {
		m.Kill()
	}
	ctx, cancel := context.WithTimeout(s.Ctx, time.Minute)
	defer cancel()
	manifest := t.TempDir() + "/other.yaml"
	if err := os.WriteFile(manifest, []byte(bed.Manifest("other", 2, "a")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := s.Bed.Weir(ctx, "a", "volume", "create", "-f", manifest)
	wants(t, refused(t, out, err), append(s.Bed.Etcd.Endpoints(), "does not answer", "running volumes go on", "check them")...)
	s.grows(t)
	for _, m := range s.Bed.Etcd.Members() {
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
	}
	s.whole()
	if out, err := s.Bed.Weir(s.Ctx, "a", "volume", "create", "-f", manifest); err != nil {
		t.Errorf("after the registry is back: %v: %s", err, out)
	}
}
