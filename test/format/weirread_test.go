// SPDX-License-Identifier: Apache-2.0

package format

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// python is an interpreter that has what the reader imports.
var python = sync.OnceValue(func() string {
	for _, p := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(p, "-c", "import cryptography, zstandard").Run() == nil {
			return p
		}
	}
	return ""
})

// reader runs the program on a store.
func reader(t *testing.T, root string, args ...string) (out, messages string, err error) {
	t.Helper()
	if python() == "" {
		t.Fatal("there is no python3 with cryptography and zstandard: run hack/install-deps")
	}
	file := filepath.Join(t.TempDir(), "keys")
	text := "# as weir volume keys --export writes it\n"
	for i, k := range keys {
		text += fmt.Sprintf("%d %s\n", i, hex.EncodeToString(k[:]))
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(python(), append([]string{"-B", "../../docs/weirread.py", "--store", root, "--volume", id.String(),
		"--keys", file}, args...)...)
	var o, e bytes.Buffer
	c.Stdout, c.Stderr = &o, &e
	err = c.Run()
	return o.String(), e.String(), err
}

// shown is what a volume or a folder has: a description by path.
type shown map[string]string

// describe is one description. Hard links have the first path of theirs in common.
func describe(kind fs.FileMode, mode uint32, size uint64, mtime time.Time, first, target string, content []byte,
	xattrs map[string]string) string {
	if kind == fs.ModeDir {
		size = 0
	}
	return fmt.Sprintf("%s %04o %d %d %x %q %x %q", kind, mode, size, mtime.UnixNano(), first, target, content, xattrs)
}

var kinds = map[volume.Type]fs.FileMode{volume.Regular: 0, volume.Directory: fs.ModeDir, volume.Symlink: fs.ModeSymlink,
	volume.FIFO: fs.ModeNamedPipe, volume.Socket: fs.ModeSocket}

// shows is what an engine shows below a directory.
func (h *host) shows(snap uint32) shown {
	h.Helper()
	out, first := shown{}, map[uint64]string{}
	var walk func(path string, a volume.Attr)
	walk = func(path string, a volume.Attr) {
		if a.Type != volume.Directory && first[a.Ino] == "" {
			first[a.Ino] = path
		}
		var target string
		var content []byte
		xattrs := map[string]string{}
		if a.Type == volume.Symlink {
			var err error
			target, err = h.ReadLink(h.Context(), asRoot, a.Handle)
			h.ok(err)
			a.Mode = 0o777
		} else {
			names, err := h.ListXattr(h.Context(), asRoot, a.Handle)
			h.ok(err)
			for _, n := range names {
				v, err := h.GetXattr(h.Context(), asRoot, a.Handle, n)
				h.ok(err)
				xattrs[n] = string(v)
			}
		}
		for a.Type == volume.Regular && uint64(len(content)) < a.Size {
			b := make([]byte, min(a.Size-uint64(len(content)), volume.MaxIO))
			n, _, err := h.Read(h.Context(), asRoot, a.Handle, uint64(len(content)), b)
			h.ok(err)
			content = append(content, b[:n]...)
		}
		out[path] = describe(kinds[a.Type], a.Mode, a.Size, a.Mtime, first[a.Ino], target, content, xattrs)
		if a.Type != volume.Directory {
			return
		}
		entries, _, err := h.ReadDir(h.Context(), asRoot, a.Handle, 0, 1<<20)
		h.ok(err)
		for _, e := range entries {
			walk(strings.TrimPrefix(path+"/"+e.Name, "/"), e.Attr)
		}
	}
	root := volume.Root
	root.Snap = snap
	a, err := h.GetAttr(h.Context(), asRoot, root)
	h.ok(err)
	walk("", a)
	return out
}

// found is what the reader wrote into a folder. Paths of hard links are sorted as want has them.
func found(t *testing.T, root string, want shown) shown {
	t.Helper()
	out := shown{}
	for path := range want {
		full := filepath.Join(root, path)
		i, err := os.Lstat(full)
		if err != nil {
			continue
		}
		first := ""
		if !i.IsDir() { // the one that want names
			b, err := hex.DecodeString(strings.Fields(want[path])[4])
			if err != nil {
				t.Fatal(err)
			}
			first = string(b)
			if other, err := os.Lstat(filepath.Join(root, first)); err == nil && !os.SameFile(i, other) {
				first = "another file than " + first
			}
		}
		var target string
		var content []byte
		xattrs := map[string]string{}
		kind := i.Mode().Type()
		mode := uint32(i.Mode().Perm())
		switch {
		case kind == fs.ModeSymlink:
			target, err = os.Readlink(full)
		case kind == 0:
			content, err = os.ReadFile(full)
		}
		if err != nil {
			t.Fatal(err)
		}
		if kind != fs.ModeSymlink {
			xattrs = xattrsOf(t, full)
		}
		out[path] = describe(kind, mode, uint64(i.Size()), i.ModTime(), first, target, content, xattrs)
	}
	n := 0
	if err := filepath.WalkDir(root, func(string, fs.DirEntry, error) error { n++; return nil }); err != nil || n != len(out) {
		t.Errorf("there are %d paths in the folder, %d are known: %v", n, len(out), err)
	}
	return out
}

// same reports paths that differ. Some may be missing.
func same(t *testing.T, what string, got, want shown, missing bool) {
	t.Helper()
	for path, w := range want {
		switch g, ok := got[path]; {
		case !ok && !missing:
			t.Errorf("%s: %q is missing", what, path)
		case ok && g != w:
			t.Errorf("%s: %q is\n%.300s\nwant\n%.300s", what, path, g, w)
		}
	}
}

// extract has the reader write all to a folder, which it must do without a complaint.
func extract(t *testing.T, root string, want shown, args ...string) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "out")
	_, messages, err := reader(t, root, append(args, "extract", to)...)
	if err != nil || messages != "" {
		t.Fatalf("extract %v: %v: %s", args, err, messages)
	}
	same(t, fmt.Sprint("extract ", args), found(t, to, want), want, false)
}

// written is a volume that was written, in a store.
type written struct {
	*host
	root     string   // of the store
	names    []string // of segments
	junk     int      // so many of these have only what nothing refers to
	first    string   // hash of the first of two checkpoints
	one, two shown    // what it had in two snapshots
	now      shown
	unused   []string // of segments that nothing uses since the second checkpoint
}

// write has an engine write a volume in three epochs, with two data keys.
func write(t *testing.T) *written {
	h := newHost(t)
	to, root := newStore(t)
	w := &written{host: h, root: root}
	rng := mathrand.New(mathrand.NewPCG(3, 9))
	h.lead(1)
	h.file(volume.Root, "junk", h.random(rng, 2<<20))
	h.remove(volume.Root, "junk")
	w.junk = len(h.upload(to))

	docs := h.make(volume.Root, "docs", volume.CreateArgs{Type: volume.Directory})
	deep := docs
	for i := range 5 {
		deep = h.make(deep, fmt.Sprint("level ", i), volume.CreateArgs{Type: volume.Directory})
	}
	big := h.file(docs, "big", h.random(rng, 2<<20+12345))
	h.file(docs, "more junk", h.random(rng, 2<<20))
	h.remove(docs, "more junk")
	text := h.file(docs, "text", bytes.Repeat([]byte("words that compress well. "), 20000))
	h.file(deep, "empty", nil)
	bad := "no UTF-8 \xff\xfe"
	h.file(deep, bad, []byte("bytes"))
	h.make(docs, "to text", volume.CreateArgs{Type: volume.Symlink, Target: "../docs/text"})
	h.make(docs, "pipe", volume.CreateArgs{Type: volume.FIFO})
	h.make(docs, "socket", volume.CreateArgs{Type: volume.Socket})
	_, err := h.Link(t.Context(), asRoot, text, deep, "text again")
	h.ok(err)
	sparse := h.file(docs, "sparse", []byte("begin"))
	h.write(sparse, 5<<20, []byte("after a hole"))
	h.size(sparse, 9<<20)
	if takesXattrs(t) {
		h.xattr(text, "colour", []byte("blue"))
		h.xattr(docs, "empty", nil)
		h.xattr(big, "large", h.random(rng, 3000))
	}
	for i := range 40 {
		h.file(docs, fmt.Sprintf("file %02d", i), h.random(rng, i*100))
	}
	one, err := h.TakeSnapshot(t.Context(), asRoot, "one")
	h.ok(err)

	h.write(text, 100, []byte("OTHER WORDS"))
	h.write(big, 64<<10-7, h.random(rng, 200<<10))
	h.size(big, 1<<20+1)
	h.size(sparse, 100)
	h.write(sparse, 1<<20, []byte("later"))
	_, err = h.Punch(t.Context(), asRoot, text, 4096, 70000)
	h.ok(err)
	h.rename(docs, "file 07", deep, "moved")
	h.rename(docs, "file 08", docs, "file 09")
	for i := 20; i < 30; i++ {
		h.remove(docs, fmt.Sprintf("file %02d", i))
	}
	h.lead(2)
	first, unused := h.checkpoint(to, 0)
	w.first = hex.EncodeToString(first[:])
	h.keys.Add(map[uint32]segment.DataKey{1: keys[1]})
	h.keys.Use(1)
	h.log.NewSalt()
	h.file(docs, "file 20", []byte("new under an old name"))
	two, err := h.TakeSnapshot(t.Context(), asRoot, "two")
	h.ok(err)
	h.size(big, 0) // takes another content
	h.write(big, 10, []byte("short"))
	_, err = h.Clean(t.Context())
	h.ok(err)
	_, more := h.checkpoint(to, 1)
	unused = append(unused, more...)
	h.file(docs, "few changes", []byte("since then"))
	h.remove(docs, "file 31")
	_, more = h.checkpoint(to, 1)
	if unused = append(unused, more...); h.changes == 0 {
		t.Error("no checkpoint is a change of another")
	}
	h.lead(3)
	h.file(docs, "last", h.random(rng, 150<<10))
	h.remove(deep, "empty")
	w.names = h.upload(to)
	h.applied()
	for _, name := range w.names {
		_, seq, _, err := segment.ParseName(name)
		h.ok(err)
		if slices.Contains(unused, seq) {
			w.unused = append(w.unused, name)
		}
	}
	w.one, w.two, w.now = h.shows(one.Snap), h.shows(two.Snap), h.shows(0)
	return w
}

// TestReader: what the reader lists and extracts is what the engine shows.
func TestReader(t *testing.T) {
	w := write(t)
	if len(w.names) < w.junk+4 || w.junk < 2 {
		t.Fatalf("%d segments, of which %d have nothing that is left", len(w.names), w.junk)
	}
	extract(t, w.root, w.now)
	extract(t, w.root, w.now, "--no-checkpoint")
	extract(t, w.root, w.now, "--checkpoint", w.first)
	extract(t, w.root, w.one, "--snapshot", "one")
	extract(t, w.root, w.two, "--snapshot", "two")
	extract(t, w.root, w.two, "--snapshot", "two", "--no-checkpoint")
	if out, messages, err := reader(t, w.root, "verify"); err != nil || out+messages != "" {
		t.Errorf("verify: %v: %s%s", err, out, messages)
	}
	out, messages, err := reader(t, w.root, "snapshots")
	if err != nil || !strings.Contains(out, `"name": "one"`) || !strings.Contains(out, `"name": "two"`) {
		t.Errorf("snapshots: %v: %s%s", err, out, messages)
	}
	w.list(t, "list")

	// Only the checkpoint and the log after it, and what files refer to.
	part := duplicate(t, w.root)
	for _, n := range w.unused {
		w.ok(os.Remove(filepath.Join(part, n)))
	}
	if last := w.unused[len(w.unused)-1]; len(w.unused) <= w.junk || slices.Index(w.names, last) < len(w.unused) {
		t.Fatalf("segments that nothing uses are %q of %q", w.unused, w.names)
	}
	extract(t, part, w.now)
	extract(t, part, w.one, "--snapshot", "one")
	last := w.unused[len(w.unused)-1]
	if _, messages, err := reader(t, part, "--no-checkpoint", "list"); err == nil || !strings.Contains(messages, last) {
		t.Errorf("without the log's beginning: %v: %s", err, messages)
	}
}
