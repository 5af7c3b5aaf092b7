// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// pairs returns everything that the store of e has in the given range.
func pairs(t testing.TB, e *Engine, lo, hi []byte) (out []meta.Pair) {
	t.Helper()
	if err := e.WaitApplied(context.Background(), e.lastEnd()); err != nil {
		t.Fatal(err)
	}
	for p, err := range e.store.Live(nil).Range(lo, hi) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, meta.Pair{Key: bytes.Clone(p.Key), Value: bytes.Clone(p.Value)})
	}
	return out
}

// keysOf names the tables that have keys, except the applied position's.
func keysOf(t testing.TB, e *Engine) string {
	var tables []string
	for _, p := range pairs(t, e, []byte{0}, []byte{0xff}) {
		if table := meta.Table(p.Key[0]); table != meta.Applied {
			tables = append(tables, table.String())
		}
	}
	return strings.Join(slices.Compact(tables), " ")
}

// TestDamagedMetadata damages one value of the store after the other. Whatever needs the value must
// fail with ErrIO, and nothing may return a wrong answer (protocol-19).
func TestDamagedMetadata(t *testing.T) {
	h := newHost(t, nil)
	ctx := t.Context()
	dir, err := h.Create(ctx, asRoot, volume.Root, "dir", volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded})
	if err != nil {
		t.Fatal(err)
	}
	d := dir.Attr.Handle
	f := newFile(t, h, d, "f")
	link, err := h.Create(ctx, asRoot, d, "l", volume.CreateArgs{Type: volume.Symlink, Mode: volume.Guarded, Target: "target"})
	if err != nil {
		t.Fatal(err)
	}
	r := volume.Request{ID: volume.OpID{Slot: "slot", Seq: 1}}
	write := func() error { return second(h.Write(ctx, r, f, 10, []byte("0123456789"), true)) }
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.SetXattr(ctx, asRoot, f, "user.a", []byte("value"), volume.XattrEither); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"getattr":   func() error { return second(h.GetAttr(ctx, asRoot, f)) },
		"lookup":    func() error { return second(h.Lookup(ctx, asRoot, d, "f")) },
		"readdir":   func() error { _, _, err := h.ReadDir(ctx, asRoot, d, 0, 9); return err },
		"readlink":  func() error { return second(h.ReadLink(ctx, asRoot, link.Attr.Handle)) },
		"read":      func() error { _, _, err := h.Read(ctx, asRoot, f, 0, make([]byte, 99)); return err },
		"seek":      func() error { return second(h.Seek(ctx, asRoot, f, 0, false)) },
		"getxattr":  func() error { return second(h.GetXattr(ctx, asRoot, f, "user.a")) },
		"listxattr": func() error { return second(h.ListXattr(ctx, asRoot, f)) },
		"space":     func() error { return second(h.Space(ctx)) },
		"repeat":    write,
	}
	affected := map[meta.Table][]string{
		meta.Accountings: {"space"},
		meta.Cookies:     {"readdir"},
		meta.Extents:     {"read", "seek"},
		meta.Inodes:      nil, // depends on which inode
		meta.Names:       nil,
		meta.Results:     {"repeat"},
		meta.Slots:       {"repeat"},
		meta.Targets:     {"readlink"},
		meta.Xattrs:      {"getxattr", "listxattr"},
	}
	for name, do := range calls {
		if err := do(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	put := func(p meta.Pair) {
		t.Helper()
		ops := [][]segment.Op{{{Kind: segment.Set, Key: p.Key, Value: p.Value}}}
		if err := h.store.Apply(ops, h.store.State()); err != nil {
			t.Fatal(err)
		}
		h.rows.applied(ops, true, h.cache.namespace)
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.pass(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pairs(t, h.Engine, []byte{0}, []byte{0xff}) {
		table := meta.Table(p.Key[0])
		if table == meta.Applied {
			continue
		}
		want, known := affected[table]
		if !known {
			t.Fatalf("the test does not know %s", table)
		}
		for _, at := range []int{0, 1, len(p.Value) / 2, len(p.Value) - 1} {
			bad := bytes.Clone(p.Value)
			bad[at] ^= 0x10
			put(meta.Pair{Key: p.Key, Value: bad})
			unseen := bytes.HasPrefix(p.Key, cookiesOfRoot()) || bytes.Equal(p.Key, meta.InodeKey(volume.Root.Ino)) ||
				bytes.Equal(p.Key, meta.NameKey(volume.Root.Ino, "dir")) || bytes.Equal(p.Key, meta.NameKey(d.Ino, "l"))
			inRef := table == meta.Extents && at >= len(p.Value)-segment.BlockRefSize
			failed := 0
			for name, do := range calls {
				err := do()
				if err != nil {
					failed++
					wantOutcome(t, name+" with damaged "+table.String(), err, volume.ErrIO)
				} else if slices.Contains(want, name) && !unseen && (!inRef || name != "seek") {
					t.Errorf("%s with byte %d of %s damaged gives an answer", name, at, table)
				}
			}
			if failed == 0 && !unseen && want == nil {
				t.Errorf("nothing fails with byte %d of %s %x damaged", at, table, p.Key)
			}
		}
		put(p)
	}
	for name, do := range calls {
		if err := do(); err != nil {
			t.Errorf("%s after all was repaired: %v", name, err)
		}
	}
}

func cookiesOfRoot() []byte {
	lo, _ := meta.CookieRange(volume.Root.Ino, 0)
	return lo[:9]
}

// TestLostBlock reads a file one of whose blocks is lost everywhere.
func TestLostBlock(t *testing.T) {
	h := newHost(t, nil)
	f := newFile(t, h, volume.Root, "f")
	if _, err := h.Write(t.Context(), asRoot, f, 0, make([]byte, 128<<10), true); err != nil {
		t.Fatal(err)
	}
	h.journal.forgetBlocks()
	_, _, err := h.Read(t.Context(), asRoot, f, 0, make([]byte, 10))
	wantOutcome(t, "read of a lost block", err, volume.ErrIO)
	// A block whose length differs from the recorded one must not be padded with zeros.
	lo, hi := meta.AllExtents(f.Ino)
	for _, p := range pairs(t, h.Engine, lo, hi) {
		x, err := meta.DecodeExtent(p.Key, p.Value)
		if err != nil {
			t.Fatal(err)
		}
		h.journal.blocks[x.Ref] = segment.Pack([]byte("short"), segment.Fast)
	}
	_, _, err = h.Read(t.Context(), asRoot, f, 0, make([]byte, 10))
	wantOutcome(t, "read of a short block", err, volume.ErrIO)
}

// TestNoPlaintextOnDisk looks for names, targets, attributes and results in the files of the
// metadata (protocol-18).
func TestNoPlaintextOnDisk(t *testing.T) {
	root := t.TempDir()
	e := openEngine(t, vfs.Default, newMemJournal(), func(c *Config) { c.Dir = filepath.Join(root, "meta") })
	e.journal.(*memJournal).machine = e
	if err := e.Lead(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	const secret = "SecretOfTheVolume"
	for i := range 200 {
		name := secret + strings.Repeat("x", i)
		r := volume.Request{ID: volume.OpID{Slot: secret, Seq: uint32(i)}}
		c, err := e.Create(t.Context(), r, volume.Root, name, volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.SetXattr(t.Context(), asRoot, c.Attr.Handle, secret, []byte(secret), volume.XattrEither); err != nil {
			t.Fatal(err)
		}
		args := volume.CreateArgs{Type: volume.Symlink, Mode: volume.Guarded, Target: secret}
		if _, err := e.Create(t.Context(), asRoot, volume.Root, "l"+name, args); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			if err := e.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	size := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		size += len(b)
		if bytes.Contains(b, []byte(secret)) || bytes.Contains(b, []byte("leveldb")) || bytes.Contains(b, []byte("\xf0\x9f\xaa\xb3")) {
			t.Errorf("%s holds plaintext", path)
		}
		return err
	})
	if err != nil || size < 10000 {
		t.Fatalf("looked at %d bytes, %v", size, err)
	}
	again := openEngine(t, vfs.Default, newMemJournal(), func(c *Config) { c.Dir = filepath.Join(root, "meta") })
	if _, err := again.Lookup(t.Context(), asRoot, volume.Root, secret); err != nil {
		t.Error(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{
		ID: testID, FS: vfs.Default, Dir: filepath.Join(root, "meta"), DataKey: [32]byte{9},
		Now: e.cfg.Now, Rand: e.cfg.Rand, Logger: e.cfg.Logger,
	}); err == nil {
		t.Error("metadata opens with another key")
	}
}
