// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/test/e2e/bed"
)

// lends starts the store of a site, whose organization offers room, and returns the agreement by
// which org-a borrows all of it.
func lends(s *bed.Scene, site string, grace string) (id string) {
	s.T.Helper()
	at := s.Bed.Site(site)
	tls, err := s.Bed.Issue("org-"+site, site, pki.PartStore, "store-"+site, at.Addr())
	if err != nil {
		s.T.Fatal(err)
	}
	if _, err := at.Start("store-"+site, at.Command(context.Background(), s.Bed.Program(), "store", "--config", at.Config(), "--ca", tls.CA,
		"--cert", tls.Cert, "--key", tls.Key, "--listen", fmt.Sprintf("%s:%d", at.Addr(), port), "--dir",
		filepath.Join(at.Dir(), "store"))); err != nil {
		s.T.Fatal(err)
	}
	says(s, site, "are offered", "exchange", "offer", "disks", "--site", site, "--amount", "4Gi", "--notice", "90s", "--grace", grace)
	id = idForm.FindString(says(s, "a", "accepts or declines it", "exchange", "request", "org-"+site+"/disks", "--amount", "4Gi", "--until",
		"30d"))
	says(s, site, "is accepted", "exchange", "accept", id)
	says(s, site, "is active", "exchange", "ready", id, "--endpoint", fmt.Sprintf("https://%s:%d", at.Addr(), port))
	says(s, "a", "may fill 4Gi", "exchange", "room", id, "ga", "--amount", "4Gi")
	return id
}

// says runs a command as a person of a site's organization, and returns what it prints.
func says(s *bed.Scene, site, text string, args ...string) string {
	s.T.Helper()
	out, err := s.Bed.Weir(s.Ctx, site, args...)
	if err != nil || !strings.Contains(out, text) {
		s.T.Fatalf("%v: %s, want %q", err, out, text)
	}
	return out
}

// objects are what guests have in the bucket of a site's S3, by path.
func objects(s *bed.Scene, site string) (paths []string) {
	s.T.Helper()
	if err := filepath.WalkDir(s.Bed.Site(site).Dir(), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(path, "/lent/") {
			paths = append(paths, path)
		}
		return nil
	}); err != nil {
		s.T.Fatal(err)
	}
	return paths
}

// names are those of some objects in a store that is lent, without the agreement that it is for.
func names(paths []string) map[string]bool {
	out := map[string]bool{}
	for _, path := range paths {
		_, name, _ := strings.Cut(path, "/lent/")
		_, name, _ = strings.Cut(name, "/")
		out[name] = true
	}
	return out
}

// whole reports which lent stores have everything, as the volume's home says.
func whole(s *bed.Scene) map[string]bool {
	s.T.Helper()
	r, err := s.Bed.Report(s.Ctx, "a")
	if err != nil {
		s.T.Fatal(err)
	}
	out := map[string]bool{}
	for _, v := range r.Volumes {
		for _, l := range v.Stores {
			out[l.Agreement] = l.Whole && l.Problem == ""
		}
	}
	return out
}

func until(s *bed.Scene, what string, is func() bool) {
	s.T.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			s.T.Fatalf("it does not come true that %s: %v", what, says(s, "a", "", "status"))
		}
	}
}

// TestEndWhileWriting: an organization borrows room at another and has its volume there besides its
// copy. The host gives notice while a client writes. The volume goes to a third organization's
// store; nothing leaves the first one before that has everything; the client sees no error; and
// nothing of the guest is left on the host's disks.
func TestEndWhileWriting(t *testing.T) {
	s := bed.NewScene(t, bed.Config{}, `apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: v}
spec:
  size: 4Gi
  replication: {copies: 1, sites: {required: [a]}}
  durability: {maxLag: {time: 4s}}
`)
	first, second := lends(s, "b", "60s"), lends(s, "c", "60s")
	m := s.Machine("a", "m")
	lines := m.Begin("lines", s.Tool+" write /mnt/v/lines /x/lines")
	files := m.Begin("files", "PACE=50ms "+s.Tool+" files /mnt/v /x/files")
	says(s, "a", "is in stores of org-b at site b", "volume", "stores", "v", first[:8])
	until(s, "the first store has everything", func() bool { return whole(s)[first] })
	// What it has there is to be found on its disk, as long as it is there.
	var sample []byte
	until(s, "some objects are there", func() bool {
		all := objects(s, "b")
		sample = middle(t, all)
		return len(all) >= 3 && sample != nil
	})
	if !onDisk(t, s.Bed.Site("b").Dir(), sample) {
		t.Fatal("the search does not find what is there")
	}
	had := names(objects(s, "b")) // what was seen in the first store
	says(s, "b", "is Ending: the host gave notice", "exchange", "end", first, "--why", "the disks are old")
	says(s, "a", "is in stores of org-c at site c", "volume", "stores", "v", second[:8])
	until(s, "nothing is in the first store", func() bool {
		now := names(objects(s, "b"))
		there := names(objects(s, "c")) // later than the first store was looked at
		maps.Copy(had, now)
		for name := range had {
			if !now[name] && !there[name] {
				t.Errorf("%s left the first store before the second one had it", name)
			}
		}
		return len(now) == 0
	})
	says(s, "a", "is Drained", "exchange", "end", first, "--drained")
	says(s, "b", "is Drained", "exchange", "end", first, "--delete")
	until(s, "the host has a receipt", func() bool {
		return strings.Contains(says(s, "b", "", "exchange", "end", first, "--delete"), "the host deleted everything")
	})
	says(s, "a", "is Ended", "exchange", "end", first, "--confirm")
	if onDisk(t, s.Bed.Site("b").Dir(), sample) {
		t.Error("what the guest had is on the host's disk")
	}
	lines.Finish(s.Ctx)
	files.Finish(s.Ctx)
	m.Verify("/mnt/v/lines", "/x/lines")
	until(s, "the second store has everything", func() bool { return whole(s)[second] })
	t.Logf("%d objects are in the second store; %s", len(objects(s, "c")), says(s, "a", "", "exchange", "usage", second))
}

// middle is a part of a file that is large enough, of these; nil: none is.
func middle(t *testing.T, paths []string) []byte {
	t.Helper()
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 64<<10 {
			return b[32<<10 : 33<<10]
		}
	}
	return nil
}

// onDisk reports whether some file below a folder has these bytes.
func onDisk(t *testing.T, dir string, what []byte) (found bool) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || found {
			return nil // it went meanwhile
		}
		if i, err := d.Info(); err != nil || i.Size() > 256<<20 {
			return nil // a guest's image, which is not the store's
		}
		b, err := os.ReadFile(path)
		found = err == nil && bytes.Contains(b, what)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return found
}
