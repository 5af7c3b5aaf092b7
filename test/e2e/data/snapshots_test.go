// SPDX-License-Identifier: Apache-2.0

package data

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/test/e2e/bed"
)

// TestUsersRestoreFromSnapshots: a user of a Linux client gets a file back with cp from .snapshots,
// at a site that is not the volume's home, and nothing else there can be changed.
func TestUsersRestoreFromSnapshots(t *testing.T) {
	s := newScene(t, bed.Config{})
	far := s.Machine("b", "wb")
	s.guest.Do("mkdir /mnt/v/dir && cd /mnt/v/dir && echo before > file && echo gone > other && sync")
	if out, err := s.Bed.Weir(s.Ctx, "a", "volume", "snapshot", "create", "v", "monday"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.guest.Do("echo after > /mnt/v/dir/file && rm /mnt/v/dir/other && echo new > /mnt/v/dir/new && sync")
	for _, m := range []*bed.Machine{s.guest, far} {
		got := m.Do("cd /mnt/v/dir; cat .snapshots/monday/file ../.snapshots/monday/dir/other; ls .snapshots/monday; ls -A;" +
			" ls .snapshots; cat file")
		if want := "before\ngone\nfile\nother\nfile\nnew\nmonday\nafter"; got != want {
			t.Errorf("a client sees %q, want %q", got, want)
		}
		out := m.Do("cd /mnt/v/dir; (echo x > .snapshots/monday/file) 2>&1; rm .snapshots/monday/file 2>&1; mkdir .snapshots/x 2>&1; true")
		if n := strings.Count(out, "Read-only file system"); n != 3 {
			t.Errorf("a client that changes a snapshot is told %q", out)
		}
	}
	far.Do("cd /mnt/v/dir; cp -p .snapshots/monday/other . && cp .snapshots/monday/file file && sync")
	// The client at a may know for some seconds that the file is gone (nfs(5), acdirmax).
	if got := s.guest.Do("cd /mnt/v/dir; until ls other >/dev/null 2>&1; do sleep 1; done; cat other file"); got != "gone\nbefore" {
		t.Errorf("after the restore the files have %q", got)
	}
	f := strings.Fields(far.Do("cd /mnt/v/dir; stat -c '%i %d' file .snapshots/monday/file"))
	if len(f) != 4 || f[0] != f[2] || f[1] == f[3] {
		t.Errorf("inode and device of a file, and of what it was: %q", f)
	}
	// Programs go through a snapshot as through any directory.
	far.Do("cd /mnt/v/dir; find .snapshots/monday -type f | wc -l | grep -qx 2 && tar cf - .snapshots/monday | tar tf - | grep -q other")
	madeOf(s, far)
	if out, err := s.Bed.Weir(s.Ctx, "a", "volume", "snapshot", "drop", "v", "monday"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := s.guest.Do("ls /mnt/v/dir/.snapshots/monday 2>/dev/null || echo none"); got != "none" {
		t.Errorf("after it was dropped it has %q", got)
	}
}

// madeOf makes a volume of the snapshot, and one of the volume, and looks at them from another
// site than the one that made them.
func madeOf(s *scene, far *bed.Machine) {
	s.T.Helper()
	for from, want := range map[string]string{"v@monday": "before\nfile\nother", "v": "before\nfile\nnew\nother"} {
		name := strings.ReplaceAll("of-"+from, "@", "-")
		if err := s.Bed.Create(s.Ctx, "a", bed.Manifest(name, 2, "a"), "--from", from); err != nil {
			s.T.Fatal(err)
		}
		dir, err := s.Bed.Site("b").Mount(s.Ctx, far.Guest, name)
		if err != nil {
			s.T.Fatal(err)
		}
		if got := far.Do("cd " + dir + "/dir && cat file && ls -A && echo more >> file && sync"); got != want {
			s.T.Errorf("a volume made of %s has %q, want %q", from, got, want)
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) { // the home tells for a while what it dropped
		out, err := s.Bed.Weir(s.Ctx, "a", "volume", "snapshot", "list", "v")
		if err == nil && !strings.Contains(out, "clone-") && strings.Contains(out, "monday") {
			return
		}
		if err != nil || time.Now().After(end) {
			s.T.Fatalf("afterwards the volume has the snapshots %q, %v", out, err)
		}
	}
}
