// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// scene is a bed on which org-a lends room at its site a.
type scene struct {
	*bed.Bed
	*testing.T
	ctx   context.Context
	store *stage.Proc
	tls   stage.TLS
}

const port = 7005

// says runs a command as a person of a site's organization, and returns what it prints.
func (s *scene) says(site, text string, args ...string) string {
	s.Helper()
	out, err := s.Weir(s.ctx, site, append([]string{"exchange"}, args...)...)
	if err != nil || !strings.Contains(out, text) {
		s.Fatalf("%v: %s, want %q", err, out, text)
	}
	return out
}

// fails is says of a command that is refused.
func (s *scene) fails(site, text string, args ...string) {
	s.Helper()
	out, err := s.Weir(s.ctx, site, append([]string{"exchange"}, args...)...)
	if err == nil || !strings.Contains(err.Error(), text) {
		s.Fatalf("%v: %s, want %q", err, out, text)
	}
}

// begin starts the store of site a, in the bucket of that site.
func (s *scene) begin() {
	s.Helper()
	a := s.Site("a")
	var err error
	s.store, err = a.Start("store", a.Command(context.Background(), s.Program(), "store", "--config", a.Config(), "--ca", s.tls.CA,
		"--cert",
		s.tls.Cert, "--key", s.tls.Key, "--listen", fmt.Sprintf("%s:%d", a.Addr(), port), "--dir", filepath.Join(a.Dir(), "store")))
	if err != nil {
		s.Fatal(err)
	}
}

// tries uses the room with a site's gateway's certificate.
func (s *scene) tries(site, id string, args ...string) (string, error) {
	b := s.Site(site)
	out, err := b.Command(s.ctx, s.Program(), append([]string{"exchange", "try", id, "--config", b.Config()}, args...)...).CombinedOutput()
	return string(out), err
}

// there is how many objects of guests are on the disk of the host's S3.
func (s *scene) there() (n int) {
	s.Helper()
	err := filepath.WalkDir(s.Site("a").Dir(), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(path, "/lent/") {
			n++
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *scene) eventually(what string, is func() bool) {
	s.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("it does not come true that %s", what)
		}
	}
}

var idForm = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

func TestLending(t *testing.T) {
	b := bed.Test(t, bed.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := b.AwaitSites(ctx); err != nil {
		t.Fatal(err)
	}
	s := &scene{Bed: b, T: t, ctx: ctx}
	a := b.Site("a")
	var err error
	if s.tls, err = b.Issue("org-a", "a", pki.PartStore, "store", a.Addr()); err != nil {
		t.Fatal(err)
	}
	s.begin()

	s.says("a", "64Mi of store at site a are offered as disks", "offer", "disks", "--site", "a", "--amount", "64Mi", "--notice", "2s",
		"--grace", "1s", "--price", "a cake")
	s.says("b", "org-a/disks", "find")
	id := idForm.FindString(s.says("b", "org-a accepts or declines it", "request", "org-a/disks", "--amount", "8Mi", "--until", "30d"))
	s.says("c", "There are no agreements.", "status", "--all") // it is not theirs
	s.fails("c", "no agreement has an ID that begins with", "accept", id)
	s.fails("b", `"org-a" accepts or declines`, "accept", id)
	s.says("a", "is accepted", "accept", id)
	s.says("a", "is active", "ready", id, "--endpoint", fmt.Sprintf("https://%s:%d", a.Addr(), port))
	s.says("b", "gateway gb may fill 4Mi", "room", id, "gb", "--amount", "4Mi")
	s.fails("b", "a gateway cannot fill 9Mi of it", "room", id, "gb", "--amount", "9Mi")

	// The guest's gateway uses it, also while the registry is away and after the store was killed.
	var out string
	s.eventually("the room is used", func() bool {
		out, err = s.tries("b", id)
		return err == nil
	})
	if !strings.Contains(out, "gateway gb has 0 objects of 0 B there") {
		t.Errorf("%s", out)
	}
	for what, x := range map[string]struct{ site, amount, text string }{
		"more than its room":           {"b", "4194305", "that gateway gb may fill of the agreement"},
		"a gateway of somebody else":   {"c", "1Mi", "no agreement has an ID that begins with"},
		"the host's own, who sees it":  {"a", "1Mi", `"org-b" borrows by it, and this certificate is of "org-a"`},
		"more than can be tried there": {"b", "65Mi", "write from 1 byte to 64Mi"},
	} {
		if out, err := s.tries(x.site, id, "--amount", x.amount); err == nil || !strings.Contains(out, x.text) {
			t.Errorf("%s: %v: %s", what, err, out)
		}
	}
	s.store.Kill()
	s.begin()
	s.eventually("it is used again", func() bool {
		out, err = s.tries("b", id, "--amount", "4Mi")
		return err == nil
	})
	t.Logf("4 MiB: %s", strings.ReplaceAll(out, "\n", ", "))

	// Who is expelled is refused at once, and let in again.
	if err := b.Federation(ctx, "expel", "org-b", "--why", "a test"); err != nil {
		t.Fatal(err)
	}
	s.eventually("who was expelled is refused", func() bool { _, err := s.tries("b", id); return err != nil })
	if err := b.Federation(ctx, "admit", "org-b"); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is used again", func() bool { _, err := s.tries("b", id); return err == nil })

	if out, err := s.tries("b", id, "--amount", "2Mi", "--keep"); err != nil || !strings.Contains(out,
		"gateway gb has 1 objects of 2.0 MiB there") {
		t.Errorf("%v: %s", err, out)
	}
	if there := s.there(); there != 1 {
		t.Errorf("%d objects are in the host's bucket", there)
	}

	// The host gives notice. Nothing is deleted before the time, and then everything.
	s.says("a", "is Ending: the host gave notice (old disks)", "end", id, "--why", "old disks")
	s.fails("a", "the guest may have something there until", "end", id, "--delete")
	time.Sleep(2100 * time.Millisecond)
	if out, err := s.tries("b", id); err == nil || !strings.Contains(out, "AccessDenied") && !strings.Contains(out, "access refused") {
		t.Errorf("it is written after the end: %v: %s", err, out)
	}
	s.says("b", "is Drained: the guest needs nothing there any more", "end", id, "--drained")
	s.says("a", "is Drained", "end", id, "--delete")
	s.eventually("the host has a receipt", func() bool {
		return strings.Contains(s.says("a", "", "end", id, "--delete"), "the host deleted everything: the guest confirms it")
	})
	s.says("b", "is Ended: nothing is there any more", "end", id, "--confirm")
	s.says("a", "64Mi", "find", "--mine") // what it took is the offer's again
	s.says("a", "offer disks is gone", "withdraw", "disks")
	out = s.says("b", "deleted, 1 objects of 2Mi", "status", id)
	if there := s.there(); there != 0 {
		t.Errorf("%d objects are left in the host's bucket", there)
	}
	t.Log(out)
	told, err := os.ReadFile(s.store.Log())
	if err != nil || !strings.Contains(string(told), "audit=refused") {
		t.Errorf("%v: nothing is in the store's log of what was refused", err)
	}
}
