// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// ward is a volume with one of everything, which tests damage.
type ward struct {
	*host
	dir, sub, f, fresh, link, old, held volume.Handle
	t                                   *testing.T
}

func newWard(t *testing.T) *ward {
	h := newHost(t, nil)
	h.damaged = true
	w := &ward{host: h, t: t}
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	mkdir := func(in volume.Handle, name string) volume.Handle {
		c, err := h.Create(ctx, asRoot, in, name, volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded})
		must(err)
		return c.Attr.Handle
	}
	w.dir = mkdir(volume.Root, "dir")
	w.sub = mkdir(w.dir, "sub")
	w.f = newFile(t, h, w.dir, "f")
	w.old = newFile(t, h, w.sub, "old")
	link, err := h.Create(ctx, asRoot, w.dir, "l", volume.CreateArgs{Type: volume.Symlink, Mode: volume.Guarded, Target: "target"})
	must(err)
	w.link = link.Attr.Handle
	r := volume.Request{ID: volume.OpID{Slot: "slot", Seq: 1}}
	must(second(h.Write(ctx, r, w.f, 10, []byte("0123456789"), true)))
	must(second(h.Write(ctx, asRoot, w.f, 100, []byte("0123456789"), true)))
	must(second(h.Write(ctx, asRoot, w.old, 0, []byte("what was"), true)))
	must(second(h.SetXattr(ctx, asRoot, w.f, "user.a", []byte("value"), volume.XattrEither)))
	must(second(h.Link(ctx, asRoot, w.f, w.dir, "hard")))
	must(second(h.TakeSnapshot(ctx, asRoot, "monday")))
	must(second(h.Remove(ctx, asRoot, w.sub, "old")))
	zero := uint64(0)
	must(second(h.SetAttr(ctx, asRoot, w.f, volume.SetAttr{Size: &zero})))
	must(second(h.Write(ctx, asRoot, w.f, 0, []byte("new content"), true)))
	w.fresh = newFile(t, h, w.sub, "fresh")
	must(second(h.Write(ctx, asRoot, w.fresh, 0, make([]byte, 100<<10), true)))
	w.held = newFile(t, h, volume.Root, "held")
	must(h.Hold(w.held))
	must(second(h.Remove(ctx, asRoot, volume.Root, "held")))
	must(h.WaitApplied(ctx, h.lastEnd()))
	must(h.Flush())
	return w
}

// value returns what the store has under a key.
func (w *ward) value(k []byte) []byte {
	w.t.Helper()
	v, ok, _, err := w.store.Live(nil).Get(k)
	if err != nil || !ok {
		w.t.Fatalf("%x: %t, %v", k, ok, err)
	}
	return v
}

func (w *ward) inode(h volume.Handle) *meta.Inode {
	w.t.Helper()
	n, err := meta.DecodeInode(meta.InodeKey(h.Ino), w.value(meta.InodeKey(h.Ino)))
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// edit is an operation that writes an inode with a change.
func (w *ward) edit(h volume.Handle, f func(n *meta.Inode)) []segment.Op {
	n := w.inode(h)
	f(n)
	return []segment.Op{setOp(n.Encode())}
}

func (w *ward) entry(dir volume.Handle, name string) meta.Dirent {
	w.t.Helper()
	k := meta.NameKey(dir.Ino, name)
	d, err := meta.DecodeName(k, w.value(k), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// rewrite is operations that write an entry with a change, by name.
func (w *ward) rewrite(dir volume.Handle, name string, f func(d *meta.Dirent)) []segment.Op {
	d := w.entry(dir, name)
	f(&d)
	return []segment.Op{setOp(d.EncodeName(dir.Ino))}
}

func (w *ward) extent(content uint64) meta.Extent {
	w.t.Helper()
	lo, hi := meta.AllExtents(content)
	for p, err := range w.store.Live(nil).Range(lo, hi) {
		if err != nil {
			w.t.Fatal(err)
		}
		x, err := meta.DecodeExtent(p.Key, p.Value)
		if err != nil {
			w.t.Fatal(err)
		}
		return x
	}
	w.t.Fatalf("content %d has no extent", content)
	return meta.Extent{}
}

func (w *ward) versions() meta.VersionsOf {
	v, err := meta.DecodeVersions(meta.VersionsKey(), w.value(meta.VersionsKey()))
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

func setOp(k, v []byte) segment.Op { return segment.Op{Kind: segment.Set, Key: k, Value: v} }

func gone(k []byte) segment.Op { return segment.Op{Kind: segment.Delete, Key: k} }

// TestCheckFindsDamage damages one rule after the other. The check finds it, and says where users
// see it.
func TestCheckFindsDamage(t *testing.T) {
	later := ^uint64(0) >> 8
	for _, test := range []struct {
		name   string
		damage func(w *ward) []segment.Op
		kind   fsck.Kind
		path   string
	}{
		{"a value", func(w *ward) []segment.Op {
			k := meta.InodeKey(w.sub.Ino)
			v := bytes.Clone(w.value(k))
			v[9] ^= 1
			return []segment.Op{setOp(k, v)}
		}, fsck.Malformed, "/dir/sub"},
		{"a value of the history", func(w *ward) []segment.Op {
			k := meta.HistoryKey(meta.InodeKey(w.f.Ino), 1)
			return []segment.Op{setOp(k, meta.EncodeHistory(k, []byte("no inode"), true))}
		}, fsck.Malformed, "/dir/f"},
		{"a table", func(*ward) []segment.Op { return []segment.Op{setOp([]byte("y12345"), []byte("x"))} }, fsck.Malformed, ""},
		{"a short key", func(*ward) []segment.Op { return []segment.Op{setOp([]byte("i12"), []byte("x"))} }, fsck.Malformed, ""},
		{"a key with a generation", func(w *ward) []segment.Op {
			k := meta.InodeKey(w.f.Ino)
			k[len(k)-1] = 3
			return []segment.Op{setOp(k, w.value(meta.InodeKey(w.f.Ino)))}
		}, fsck.Malformed, "/dir/f"},
		{"a change attribute", func(w *ward) []segment.Op {
			return w.edit(w.f, func(n *meta.Inode) { n.Change = later })
		}, fsck.Number, "/dir/f"},
		{"a generation", func(w *ward) []segment.Op {
			ops := w.edit(w.fresh, func(n *meta.Inode) { n.Gen = 9 })
			d := w.entry(w.sub, "fresh")
			d.Handle.Gen = 9
			return append(ops, setOp(d.EncodeName(w.sub.Ino)), setOp(d.EncodeCookie(w.sub.Ino)))
		}, fsck.Number, "/dir/sub/fresh"},
		{"a cookie", func(w *ward) []segment.Op {
			d := w.entry(w.sub, "fresh")
			ops := []segment.Op{gone(meta.CookieKey(w.sub.Ino, d.Cookie))}
			d.Cookie = later
			return append(ops, setOp(d.EncodeName(w.sub.Ino)), setOp(d.EncodeCookie(w.sub.Ino)))
		}, fsck.Number, "/dir/sub"},
		{"a slot", func(*ward) []segment.Op { return []segment.Op{gone(meta.SlotKey("slot"))} }, fsck.Result, ""},
		{"a result", func(*ward) []segment.Op {
			k := meta.ResultKey("slot", 0)
			return []segment.Op{setOp(k, meta.EncodeResult(k, 7, nil))}
		}, fsck.Result, ""},
		{"an inode that is gone", func(w *ward) []segment.Op {
			return []segment.Op{gone(meta.InodeKey(w.fresh.Ino))}
		}, fsck.Name, "/dir/sub/fresh"},
		{"a name's generation", func(w *ward) []segment.Op {
			return w.rewrite(w.sub, "fresh", func(d *meta.Dirent) { d.Handle.Gen = 3 })
		}, fsck.Name, "/dir/sub/fresh"},
		{"a name's type", func(w *ward) []segment.Op {
			return w.rewrite(w.sub, "fresh", func(d *meta.Dirent) { d.Type = volume.FIFO })
		}, fsck.Name, "/dir/sub/fresh"},
		{"a link count", func(w *ward) []segment.Op {
			return w.edit(w.f, func(n *meta.Inode) { n.Nlink = 5 })
		}, fsck.Links, "/dir/f"},
		{"a directory's link count", func(w *ward) []segment.Op {
			return w.edit(w.dir, func(n *meta.Inode) { n.Nlink = 5 })
		}, fsck.Links, "/dir"},
		{"a directory's number of entries", func(w *ward) []segment.Op {
			return w.edit(w.dir, func(n *meta.Inode) { n.Entries = 5 })
		}, fsck.Entries, "/dir"},
		{"a parent", func(w *ward) []segment.Op {
			return w.edit(w.sub, func(n *meta.Inode) { n.Parent = volume.Root })
		}, fsck.Parent, "/dir/sub"},
		{"a circle", func(w *ward) []segment.Op { // /dir/sub/dir instead of /dir
			d := w.entry(volume.Root, "dir")
			ops := []segment.Op{gone(meta.NameKey(volume.Root.Ino, "dir")), gone(meta.CookieKey(volume.Root.Ino, d.Cookie)),
				setOp(d.EncodeName(w.sub.Ino)), setOp(d.EncodeCookie(w.sub.Ino))}
			ops = append(ops, w.edit(volume.Root, func(n *meta.Inode) { n.Entries--; n.Nlink-- })...)
			ops = append(ops, w.edit(w.dir, func(n *meta.Inode) { n.Parent = w.sub })...)
			return append(ops, w.edit(w.sub, func(n *meta.Inode) { n.Entries++; n.Nlink++ })...)
		}, fsck.Cycle, ""},
		{"an entry by cookie", func(w *ward) []segment.Op {
			return []segment.Op{gone(meta.CookieKey(w.sub.Ino, w.entry(w.sub, "fresh").Cookie))}
		}, fsck.Entries, "/dir/sub"},
		{"an entry by cookie of another name", func(w *ward) []segment.Op {
			d := w.entry(w.sub, "fresh")
			d.Name = "flesh"
			return []segment.Op{setOp(d.EncodeCookie(w.sub.Ino))}
		}, fsck.Entries, "/dir/sub"},
		{"a target", func(w *ward) []segment.Op {
			return []segment.Op{gone(meta.TargetKey(w.link.Ino))}
		}, fsck.Belongings, "/dir/l"},
		{"a target's length", func(w *ward) []segment.Op {
			k := meta.TargetKey(w.link.Ino)
			return []segment.Op{setOp(k, meta.EncodeBytes(k, []byte("elsewhere")))}
		}, fsck.Belongings, "/dir/l"},
		{"an attribute", func(w *ward) []segment.Op {
			return []segment.Op{gone(meta.XattrKey(w.f.Ino, "user.a"))}
		}, fsck.Belongings, "/dir/f"},
		{"an attribute of nothing", func(w *ward) []segment.Op {
			k := meta.XattrKey(w.fresh.Ino+1, "user.a")
			return []segment.Op{setOp(k, meta.EncodeBytes(k, nil))}
		}, fsck.Belongings, ""},
		{"a lost inode", func(w *ward) []segment.Op {
			return []segment.Op{gone(meta.OrphanKey(w.held.Ino))}
		}, fsck.Orphan, ""},
		{"an orphan with a name", func(w *ward) []segment.Op {
			return []segment.Op{setOp(meta.EncodeOrphan(w.fresh))}
		}, fsck.Orphan, "/dir/sub/fresh"},
		{"a size", func(w *ward) []segment.Op {
			return w.edit(w.fresh, func(n *meta.Inode) { n.Size = 1000 })
		}, fsck.Extents, "/dir/sub/fresh"},
		{"used bytes", func(w *ward) []segment.Op {
			return w.edit(w.fresh, func(n *meta.Inode) { n.Used-- })
		}, fsck.Extents, "/dir/sub/fresh"},
		{"extents that overlap", func(w *ward) []segment.Op {
			x := w.extent(w.fresh.Ino)
			x.Off, x.Len = 7, 8
			return []segment.Op{setOp(x.Encode(w.fresh.Ino))}
		}, fsck.Extents, "/dir/sub/fresh"},
		{"a hole", func(w *ward) []segment.Op {
			return []segment.Op{gone(meta.ExtentKey(w.fresh.Ino, 0))}
		}, fsck.Extents, "/dir/sub/fresh"},
		{"a block after the end", func(w *ward) []segment.Op {
			x := w.extent(w.fresh.Ino)
			x.Ref.Off = 1 << 24
			return []segment.Op{setOp(x.Encode(w.fresh.Ino))}
		}, fsck.Block, "/dir/sub/fresh"},
		{"a block of no segment", func(w *ward) []segment.Op {
			x := w.extent(w.fresh.Ino)
			x.Ref.Seq = 99
			return []segment.Op{setOp(x.Encode(w.fresh.Ino))}
		}, fsck.Block, "/dir/sub/fresh"},
		{"a block of a segment that was condemned", func(*ward) []segment.Op {
			return []segment.Op{setOp(meta.EncodeCondemned(1, 1))}
		}, fsck.Block, "/dir/sub/fresh"},
		{"used by the volume", func(*ward) []segment.Op {
			return []segment.Op{setOp(meta.Accounting{Bytes: 5, Inodes: 3}.Encode())}
		}, fsck.Quota, ""},
		{"held by snapshots", func(w *ward) []segment.Op {
			a, err := meta.DecodeAccounting(meta.AccountingKey(), w.value(meta.AccountingKey()))
			if err != nil || !a.Counted {
				w.t.Fatal(a, err)
			}
			a.Held++
			return []segment.Op{setOp(a.Encode())}
		}, fsck.Quota, ""},
		{"a trash that is gone", func(w *ward) []segment.Op {
			return w.edit(w.dir, func(n *meta.Inode) { n.Trash = w.fresh.Ino })
		}, fsck.Parent, "/dir"},
		{"no accounting", func(*ward) []segment.Op {
			return []segment.Op{gone(meta.AccountingKey())}
		}, fsck.Quota, ""},
		{"used by a snapshot", func(w *ward) []segment.Op {
			s, err := meta.DecodeSnapshot(meta.SnapshotKey(1), w.value(meta.SnapshotKey(1)))
			if err != nil {
				w.t.Fatal(err)
			}
			s.Used.Bytes++
			return []segment.Op{setOp(s.Encode())}
		}, fsck.Quota, "/.snapshots/monday"},
		{"a content of two files", func(w *ward) []segment.Op {
			return w.edit(w.fresh, func(n *meta.Inode) { n.Content = w.inode(w.f).Content })
		}, fsck.Content, "/dir/sub/fresh"},
		{"a dead content that lives", func(w *ward) []segment.Op {
			return []segment.Op{setOp(meta.DeadContent{Gen: 1}.Encode(w.fresh.Ino, meta.SnapshotLevel))}
		}, fsck.Content, "/dir/sub/fresh"},
		{"another dead content that lives", func(w *ward) []segment.Op {
			return []segment.Op{setOp(meta.DeadContent{Gen: 1}.Encode(w.inode(w.f).Content, meta.SnapshotLevel))}
		}, fsck.Content, "/dir/f"},
		{"a content of none", func(w *ward) []segment.Op {
			return []segment.Op{gone(meta.DeadKey(w.old.Ino))}
		}, fsck.Leftover, ""},
		{"a snapshot", func(*ward) []segment.Op { return []segment.Op{gone(meta.SnapshotKey(1))} }, fsck.Snapshot, ""},
		{"a snapshot's name", func(*ward) []segment.Op { return []segment.Op{gone(meta.NamedKey("monday"))} }, fsck.Snapshot, ""},
		{"a name of no snapshot", func(*ward) []segment.Op {
			return []segment.Op{setOp(meta.EncodeNamed("tuesday", 1))}
		}, fsck.Snapshot, ""},
		{"the newest snapshot", func(w *ward) []segment.Op {
			v := w.versions()
			v.Newest = 0
			return []segment.Op{setOp(v.Encode())}
		}, fsck.Snapshot, ""},
		{"the last snapshot", func(w *ward) []segment.Op {
			v := w.versions()
			v.Last = 0
			return []segment.Op{setOp(v.Encode())}
		}, fsck.History, "/dir/sub"},
		{"the history of what came later", func(w *ward) []segment.Op {
			k := meta.HistoryKey(meta.InodeKey(w.fresh.Ino), 1)
			return []segment.Op{setOp(k, meta.EncodeHistory(k, nil, false))}
		}, fsck.History, "/dir/sub/fresh"},
		{"what no snapshot needs", func(w *ward) []segment.Op {
			v := w.versions()
			v.Last = 2
			k := meta.HistoryKey(meta.InodeKey(w.f.Ino), 2)
			return []segment.Op{setOp(v.Encode()), setOp(k, meta.EncodeHistory(k, nil, false))}
		}, fsck.Leftover, "/dir/f"},
		{"a dead content that no snapshot shows", func(*ward) []segment.Op {
			return []segment.Op{setOp(meta.DeadContent{Gen: 0}.Encode(12345, meta.SnapshotLevel))}
		}, fsck.Leftover, ""},
		{"what a snapshot has of an inode", func(w *ward) []segment.Op {
			k := meta.HistoryKey(meta.InodeKey(w.old.Ino), 1)
			return []segment.Op{setOp(k, meta.EncodeHistory(k, nil, false))}
		}, fsck.Name, "/.snapshots/monday/dir/sub/old"},
		{"what a snapshot has of a file's extents", func(w *ward) []segment.Op {
			return []segment.Op{gone(meta.ExtentKey(w.old.Ino, 0))}
		}, fsck.Extents, "/.snapshots/monday/dir/sub/old"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWard(t)
			check := func() *fsck.Report {
				t.Helper()
				report, err := w.Check(t.Context(), fsck.Config{Entries: 3, Segments: func(seq uint64) (uint64, bool) {
					return 1 << 20, seq <= w.Applied().Seq
				}})
				if err != nil {
					t.Fatal(err)
				}
				return report
			}
			far := w.store.State()
			far.Position.Off = 1 << 30 // blocks of this journal lie anywhere
			apply := func(ops []segment.Op) {
				t.Helper()
				if err := w.store.Apply([][]segment.Op{ops}, far); err != nil {
					t.Fatal(err)
				}
			}
			apply(nil)
			if before := check(); before.Count() != 0 || before.Orphans != 1 || before.Snapshots != 1 {
				t.Fatalf("before: %+v", before)
			}
			apply(test.damage(w))
			report := check()
			if !slices.ContainsFunc(report.Findings, func(f fsck.Finding) bool { return f.Kind == test.kind && f.Path == test.path }) {
				t.Errorf("want %s at %q, found %d", test.kind, test.path, report.Count())
			}
			for _, f := range report.Findings {
				t.Logf("%s %q %d: %s", f.Kind, f.Path, f.Inode, f.Detail)
				if f.Advice == "" {
					t.Errorf("%s has no advice", f.Kind)
				}
			}
		})
	}
}

// TestCheckReadsBlocks: a block that cannot be read is told at the files that have it, also at what
// only a snapshot shows.
func TestCheckReadsBlocks(t *testing.T) {
	w := newWard(t)
	old, fresh := w.extent(w.old.Ino).Ref, w.extent(w.fresh.Ino).Ref
	read := map[segment.BlockRef]int{}
	bad := errors.New("tag differs")
	report, err := w.Check(t.Context(), fsck.Config{Blocks: func(_ context.Context, refs []segment.BlockRef) ([]error, error) {
		errs := make([]error, len(refs))
		for i, ref := range refs {
			read[ref]++
			if ref == old || ref == fresh {
				errs[i] = bad
			}
		}
		return errs, nil
	}})
	if err != nil || !report.Complete {
		t.Fatal(report, err)
	}
	var paths []string
	for _, f := range report.Findings {
		if f.Kind != fsck.Unreadable {
			t.Errorf("found %+v", f)
		}
		paths = append(paths, f.Path)
	}
	slices.Sort(paths)
	if want := []string{"/.snapshots/monday/dir/sub/old", "/dir/sub/fresh"}; !slices.Equal(paths, want) {
		t.Errorf("unreadable: %q, want %q", paths, want)
	}
	if len(read) != 6 || report.Blocks != 6 {
		t.Errorf("%d blocks were read, the report says %d", len(read), report.Blocks)
	}
}

// TestCheckEnds: a check ends with its context, and with who paces it.
func TestCheckEnds(t *testing.T) {
	w := newWard(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Check(ctx, fsck.Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("check with a context that ended: %v", err)
	}
	slow := errors.New("slow down")
	read := func(context.Context, []segment.BlockRef) ([]error, error) {
		return nil, errors.New("read without being paced")
	}
	cfg := fsck.Config{Blocks: read, Pace: func(context.Context, int) error { return slow }}
	if _, err := w.Check(t.Context(), cfg); !errors.Is(err, slow) {
		t.Errorf("check that is not to go on: %v", err)
	}
}
