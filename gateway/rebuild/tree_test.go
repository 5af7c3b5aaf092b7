// SPDX-License-Identifier: Apache-2.0

package rebuild

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/volume"
)

// TestTheTreeIsByteForByte compares what is written with what the volume's home shows.
func TestTheTreeIsByteForByte(t *testing.T) {
	for seed := range uint64(3) {
		h, _, _ := history(t, 10+seed)
		r, err := Make(t.Context(), newTarget(t, h.store).Config)
		h.ok(err)
		c, err := r.Open(h.store)
		h.ok(err)
		to := t.TempDir()
		w, err := Extract(t.Context(), c, to, false)
		h.ok(err)
		h.ok(c.Close())
		t.Logf("%+v", w)
		files := 0
		compare(h, volume.Root, to, os.Geteuid() == 0, &files)
		if files < 10 || w.Bytes == 0 {
			t.Fatalf("seed %d: %d files were compared", seed, files)
		}
	}
}

func compare(h *home, dir volume.Handle, path string, owners bool, files *int) {
	h.Helper()
	entries, _, err := h.engine.ReadDir(h.Context(), asRoot, dir, 0, 10000)
	h.ok(err)
	there, err := os.ReadDir(path)
	h.ok(err)
	if len(there) != len(entries) {
		h.Fatalf("%s has %d entries, want %d", path, len(there), len(entries))
	}
	for _, e := range entries {
		*files++
		at := filepath.Join(path, e.Name)
		var s unix.Stat_t
		h.ok(unix.Lstat(at, &s))
		a := e.Attr
		if s.Mtim.Nano() != a.Mtime.UnixNano() || owners && (s.Uid != a.UID || s.Gid != a.GID) ||
			a.Type != volume.Symlink && s.Mode&0o7777 != a.Mode || a.Type == volume.Regular && (uint64(s.Size) != a.Size ||
			uint32(s.Nlink) != a.Nlink) {
			h.Fatalf("%s is %+v, want %+v", at, s, a)
		}
		switch a.Type {
		case volume.Directory:
			compare(h, a.Handle, at, owners, files)
		case volume.Symlink:
			want, err := h.engine.ReadLink(h.Context(), asRoot, a.Handle)
			h.ok(err)
			if got, err := os.Readlink(at); err != nil || got != want {
				h.Fatalf("%s is %q, %v, want %q", at, got, err, want)
			}
			continue
		case volume.Regular:
			got, err := os.ReadFile(at)
			if os.IsPermission(err) {
				continue
			}
			h.ok(err)
			want := make([]byte, 0, a.Size)
			for off := uint64(0); off < a.Size; {
				p := make([]byte, volume.MaxIO)
				n, _, err := h.engine.Read(h.Context(), asRoot, a.Handle, off, p)
				h.ok(err)
				want = append(want, p[:n]...)
				off += uint64(n)
			}
			if !bytes.Equal(got, want) {
				h.Fatalf("%s has %d bytes, want %d", at, len(got), len(want))
			}
		}
		names, err := h.engine.ListXattr(h.Context(), asRoot, a.Handle)
		h.ok(err)
		for _, n := range names {
			want, err := h.engine.GetXattr(h.Context(), asRoot, a.Handle, n)
			h.ok(err)
			p := make([]byte, 100)
			size, err := unix.Lgetxattr(at, "user."+n, p)
			if err == unix.ENOTSUP {
				continue
			}
			if err != nil || !bytes.Equal(p[:size], want) {
				h.Fatalf("%s of %s is %q, %v, want %q", n, at, p[:size], err, want)
			}
		}
	}
}
