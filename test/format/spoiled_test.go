// SPDX-License-Identifier: Apache-2.0

package format

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-storage/weir/volume"
)

var seed = flag.Uint64("flips", 1, "seed of the bytes that are spoiled")

func (h *host) make(dir volume.Handle, name string, args volume.CreateArgs) volume.Handle {
	h.Helper()
	mode, owner := uint32(0o750), uint32(os.Geteuid())
	args.Mode = volume.Guarded
	args.Attr.Mode, args.Attr.UID, args.Attr.GID = &mode, &owner, &owner
	c, err := h.Create(h.Context(), asRoot, dir, name, args)
	h.ok(err)
	return c.Attr.Handle
}

func (h *host) file(dir volume.Handle, name string, content []byte) volume.Handle {
	h.Helper()
	f := h.make(dir, name, volume.CreateArgs{Type: volume.Regular})
	h.write(f, 0, content)
	return f
}

func (h *host) write(f volume.Handle, off uint64, content []byte) {
	h.Helper()
	for len(content) > 0 {
		n := min(len(content), volume.MaxIO)
		_, err := h.Write(h.Context(), asRoot, f, off, content[:n], true)
		h.ok(err)
		content, off = content[n:], off+uint64(n)
	}
}

func (h *host) remove(dir volume.Handle, name string) {
	h.Helper()
	_, err := h.Remove(h.Context(), asRoot, dir, name)
	h.ok(err)
}

func (h *host) rename(from volume.Handle, name string, to volume.Handle, newName string) {
	h.Helper()
	_, _, err := h.Rename(h.Context(), asRoot, from, name, to, newName)
	h.ok(err)
}

func (h *host) size(f volume.Handle, size uint64) {
	h.Helper()
	_, err := h.SetAttr(h.Context(), asRoot, f, volume.SetAttr{Size: &size})
	h.ok(err)
}

func (h *host) xattr(f volume.Handle, name string, value []byte) {
	h.Helper()
	_, err := h.SetXattr(h.Context(), asRoot, f, name, value, volume.XattrEither)
	h.ok(err)
}

func (h *host) random(rng *mathrand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// takesXattrs reports whether the folder of temporary files keeps extended attributes.
func takesXattrs(t *testing.T) bool {
	return syscall.Setxattr(t.TempDir(), "user.probe", []byte("x"), 0) == nil
}

// xattrsOf returns the user attributes of a file.
func xattrsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	out := map[string]string{}
	list := make([]byte, 64<<10)
	n, err := syscall.Listxattr(path, list)
	if errors.Is(err, syscall.ENOTSUP) {
		return out
	}
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		short, ok := strings.CutPrefix(name, "user.")
		if !ok {
			continue
		}
		v := make([]byte, volume.MaxXattr)
		n, err := syscall.Getxattr(path, name, v)
		if err != nil {
			t.Fatal(err)
		}
		out[short] = string(v[:n])
	}
	return out
}

// list compares what the command list says with the engine's attributes.
func (w *written) list(t *testing.T, args ...string) {
	t.Helper()
	out, messages, err := reader(t, w.root, args...)
	if err != nil {
		t.Fatalf("list: %v: %s", err, messages)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(w.now) {
		t.Errorf("%d lines for %d paths", len(lines), len(w.now))
	}
	for _, line := range lines {
		var l struct {
			Path, Type, Mode, Mtime string
			Nlink, UID, GID         uint32
			Size, Used, Inode       uint64
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		a, err := w.GetAttr(t.Context(), asRoot, volume.Root)
		w.ok(err)
		for part := range strings.SplitSeq(l.Path, "/") {
			if part == "." {
				break
			}
			a, err = w.Lookup(t.Context(), asRoot, a.Handle, strings.ReplaceAll(part, `\xff\xfe`, "\xff\xfe"))
			w.ok(err)
		}
		if l.Inode != a.Ino || l.Nlink != a.Nlink || l.UID != a.UID || l.GID != a.GID || l.Size != a.Size || l.Used != a.Used ||
			l.Mode != fmt.Sprintf("%04o", a.Mode) || l.Mtime != fmt.Sprintf("%d.%09d", a.Mtime.Unix(), a.Mtime.Nanosecond()) {
			t.Errorf("%s\nthe engine says %+v", line, a)
		}
	}
}

// TestSpoiled flips a byte of each object. The reader names the object wherever it needs it. What
// it writes is right, or not there.
func TestSpoiled(t *testing.T) {
	w := write(t)
	rng := mathrand.New(mathrand.NewPCG(*seed, 0))
	var all []string
	w.ok(filepath.WalkDir(w.root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(w.root, path)
			all = append(all, name)
		}
		return err
	}))
	failed := 0
	for i, name := range all {
		root := duplicate(t, w.root)
		path := filepath.Join(root, name)
		b, err := os.ReadFile(path)
		w.ok(err)
		at := rng.IntN(len(b))
		if i%4 == 3 {
			at = rng.IntN(min(len(b), 128)) // in the header
		}
		b[at] ^= 1 << rng.IntN(8)
		w.ok(os.WriteFile(path, b, 0o600))
		what := fmt.Sprintf("byte %d of %s is spoiled (-flips %d)", at, name, *seed)
		if _, messages, err := reader(t, root, "verify"); err == nil || !strings.Contains(messages, name) {
			t.Errorf("%s: verify: %v: %s", what, err, messages)
		}
		segment := !strings.Contains(name, "/m/") && !strings.Contains(name, "/c/")
		if _, messages, err := reader(t, root, "--no-checkpoint", "list"); (err != nil) != segment ||
			segment && !strings.Contains(messages, name) {
			t.Errorf("%s: list without checkpoint: %v: %s", what, err, messages)
		}
		to := filepath.Join(t.TempDir(), "out")
		if _, messages, err := reader(t, root, "extract", to); err != nil {
			failed++
			if !strings.Contains(messages, name) {
				t.Errorf("%s: extract: %v: %s", what, err, messages)
			}
		}
		if _, err := os.Stat(to); err == nil {
			same(t, what, withoutTimes(found(t, to, w.now)), withoutTimes(w.now), true)
		}
	}
	if failed < 3 {
		t.Errorf("only %d of %d spoiled objects were noticed when all was extracted", failed, len(all))
	}
}

// withoutTimes leaves out what a directory has that a file is missing from.
func withoutTimes(s shown) shown {
	out := shown{}
	for path, d := range s {
		if !strings.HasPrefix(d, "d") {
			out[path] = d
		}
	}
	return out
}

// TestBranches: two homes wrote on, one of which a person made home by force. The epochs decide.
// Where they do not, the reader asks.
func TestBranches(t *testing.T) {
	to, root := newStore(t)
	a, b := newHost(t), newHost(t)
	a.lead(1)
	f := a.file(volume.Root, "file", []byte("both have this"))
	b.copyFrom(a)
	a.write(f, 0, []byte("left out"))
	a.upload(to)
	a.file(volume.Root, "left out", []byte("too"))
	lost := a.upload(to)

	b.lead(2)
	b.file(volume.Root, "kept", []byte("this"))
	kept := b.upload(to)
	b.applied()
	extract(t, root, b.shows(0))
	a.applied()
	extract(t, root, a.shows(0), "--tip", lost[len(lost)-1])

	w := duplicate(t, root)
	for _, n := range kept[1:] {
		if err := os.Remove(filepath.Join(w, n)); err != nil {
			t.Fatal(err)
		}
	}
	_, messages, err := reader(t, w, "list")
	if err == nil || !strings.Contains(messages, "--tip") || !strings.Contains(messages, kept[0]) ||
		!strings.Contains(messages, lost[len(lost)-1]) {
		t.Errorf("two ends of one epoch: %v: %s", err, messages)
	}
	extract(t, w, a.shows(0), "--tip", lost[len(lost)-1])
}

// TestDamagedSegment: with --damaged, what is right in a segment that is not whole can be had
// without a checkpoint too. The files of a block that is not right are named.
func TestDamagedSegment(t *testing.T) {
	w := write(t)
	root := duplicate(t, w.root)
	name := w.names[w.junk+1]
	b, err := os.ReadFile(filepath.Join(root, name))
	w.ok(err)
	b[len(b)/2] ^= 1 // in a block of the file that is called big
	w.ok(os.WriteFile(filepath.Join(root, name), b, 0o600))
	to := filepath.Join(t.TempDir(), "out")
	_, messages, err := reader(t, root, "--no-checkpoint", "--damaged", "--snapshot", "one", "extract", to)
	if err == nil || !strings.Contains(messages, "docs/big: "+name+": block at byte ") || !strings.Contains(messages, "1 paths") {
		t.Errorf("%v: %s", err, messages)
	}
	got := found(t, to, w.one)
	if _, ok := got["docs/big"]; ok || len(got) != len(w.one)-1 {
		t.Errorf("%d paths of %d, docs/big among them: %t", len(got), len(w.one), ok)
	}
	same(t, "with --damaged", got, w.one, true)
}
