// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"strings"

	"github.com/weir-storage/weir/volume"
)

// testSnapshots takes snapshots, changes everything that is in them, and reads them.
func testSnapshots(e *env) {
	s, ok := e.v.(volume.Snapshotter)
	if !ok {
		e.Skip("the volume keeps no snapshots")
	}
	dir := e.workDir()
	file := e.file(dir, "file", 0o666)
	gone := e.file(dir, "gone", 0o600)
	sub := e.mkdir(dir, "sub", 0o777)
	inner := e.file(sub, "inner", 0o644)
	link, err := e.v.Create(e.ctx, e.req(), dir, "link", volume.CreateArgs{Type: volume.Symlink, Mode: volume.Guarded, Target: "far"})
	e.ok(err)
	e.write(file, 0, "hello world")
	e.write(gone, 0, "not for ever")
	_, err = e.v.SetXattr(e.ctx, e.req(), file, "user.a", []byte("1"), volume.XattrEither)
	e.ok(err)

	id := volume.OpID{Slot: "snapshots", Seq: 1}
	one, err := s.TakeSnapshot(e.ctx, volume.Request{ID: id}, "one")
	e.ok(err)
	if again, err := s.TakeSnapshot(e.ctx, volume.Request{ID: id}, "one"); err != nil || again != one {
		e.Errorf("the repeat says %+v, %v, first %+v", again, err, one)
	}
	_, err = s.TakeSnapshot(e.ctx, e.req(), "one")
	e.fails(err, volume.ErrExist)
	for name, want := range map[string]error{
		"": volume.ErrInvalid, ".": volume.ErrInvalid, "a/b": volume.ErrInvalid, "@12": volume.ErrInvalid,
		strings.Repeat("n", 256): volume.ErrNameTooLong,
	} {
		_, err := s.TakeSnapshot(e.ctx, e.req(), name)
		e.fails(err, want)
	}
	e.fails(s.DropSnapshot(e.ctx, e.req(), "none"), volume.ErrNotExist)

	in := func(h volume.Handle) volume.Handle {
		h.Snap = one.Snap
		return h
	}
	before := map[volume.Handle]volume.Attr{}
	for _, h := range []volume.Handle{dir, file, gone, sub, inner, link.Attr.Handle} {
		a, err := e.v.GetAttr(e.ctx, e.req(), in(h))
		e.ok(err)
		if a.Handle != in(h) {
			e.Errorf("the attributes of %v have handle %v", in(h), a.Handle)
		}
		before[h] = a
	}
	// Change all of it.
	e.write(file, 6, "there, and more")
	_, err = e.v.SetXattr(e.ctx, e.req(), file, "user.a", []byte("2"), volume.XattrEither)
	e.ok(err)
	_, err = e.v.SetXattr(e.ctx, e.req(), file, "user.b", []byte("3"), volume.XattrEither)
	e.ok(err)
	_, err = e.v.Remove(e.ctx, e.req(), dir, "gone")
	e.ok(err)
	_, err = e.v.Remove(e.ctx, e.req(), dir, "link")
	e.ok(err)
	e.ok(e.rename(sub, "inner", dir, "moved"))
	_, err = e.v.Remove(e.ctx, e.req(), dir, "sub")
	e.ok(err)
	size := uint64(3)
	_, err = e.v.SetAttr(e.ctx, e.req(), inner, volume.SetAttr{Size: &size})
	e.ok(err)
	late := e.file(dir, "late", 0o666)

	check := func() {
		e.Helper()
		for h, want := range before {
			got := e.attr(in(h))
			if got != want {
				e.Errorf("in the snapshot %v was %+v and is %+v", h, want, got)
			}
		}
		for h, want := range map[volume.Handle]string{file: "hello world", gone: "not for ever", inner: ""} {
			if got, err := readAll(e.ctx, e.v, e.req(), in(h)); err != nil || string(got) != want {
				e.Errorf("in the snapshot %v has %q, %v, want %q", h, got, err, want)
			}
		}
		if got := e.names(in(dir)); got != "file gone sub link" {
			e.Errorf("in the snapshot the directory has %q", got)
		}
		if got := e.names(in(sub)); got != "inner" {
			e.Errorf("in the snapshot the other directory has %q", got)
		}
		if value, err := e.v.GetXattr(e.ctx, e.req(), in(file), "user.a"); err != nil || string(value) != "1" {
			e.Errorf("in the snapshot the attribute is %q, %v", value, err)
		}
		if target, err := e.v.ReadLink(e.ctx, e.req(), in(link.Attr.Handle)); err != nil || target != "far" {
			e.Errorf("in the snapshot the link leads to %q, %v", target, err)
		}
		_, err := e.v.GetAttr(e.ctx, e.req(), in(late))
		e.fails(err, volume.ErrStale)
		_, err = e.v.Lookup(e.ctx, e.req(), in(dir), "late")
		e.fails(err, volume.ErrNotExist)
		up, err := e.v.Lookup(e.ctx, e.req(), in(sub), "..")
		e.ok(err)
		if up.Handle != in(dir) {
			e.Errorf(".. in the snapshot is %v, want %v", up.Handle, in(dir))
		}
	}
	check()
	two, err := s.TakeSnapshot(e.ctx, e.req(), "two")
	e.ok(err)
	e.write(file, 0, "XXXXX")
	check()
	if e.s.Restart != nil {
		e.v = e.s.Restart()
		s = e.v.(volume.Snapshotter)
		check()
	}

	// Nothing changes what is in a snapshot.
	_, err = e.v.Write(e.ctx, e.req(), in(file), 0, []byte("x"), true)
	e.fails(err, volume.ErrReadOnly)
	_, err = e.v.SetAttr(e.ctx, e.req(), in(file), volume.SetAttr{Size: &size})
	e.fails(err, volume.ErrReadOnly)
	_, err = e.v.Create(e.ctx, e.req(), in(dir), "new", fileArgs(0o666))
	e.fails(err, volume.ErrReadOnly)
	_, err = e.v.Remove(e.ctx, e.req(), in(dir), "file")
	e.fails(err, volume.ErrReadOnly)
	e.fails(e.rename(in(dir), "file", dir, "restored"), volume.ErrReadOnly)
	e.fails(e.rename(dir, "file", in(dir), "restored"), volume.ErrReadOnly)
	_, err = e.v.Link(e.ctx, e.req(), in(file), dir, "restored")
	e.fails(err, volume.ErrReadOnly)
	_, err = e.v.Punch(e.ctx, e.req(), in(file), 0, 1)
	e.fails(err, volume.ErrReadOnly)
	_, err = e.v.SetXattr(e.ctx, e.req(), in(file), "user.a", nil, volume.XattrEither)
	e.fails(err, volume.ErrReadOnly)
	_, err = e.v.RemoveXattr(e.ctx, e.req(), in(file), "user.a")
	e.fails(err, volume.ErrReadOnly)

	list, err := s.Snapshots(e.ctx)
	e.ok(err)
	if len(list) != 2 || list[0] != one || list[1] != two {
		e.Errorf("the snapshots are %+v, want %+v and %+v", list, one, two)
	}
	e.ok(s.DropSnapshot(e.ctx, e.req(), "two"))
	check()
	e.ok(s.DropSnapshot(e.ctx, e.req(), "one"))
	_, err = e.v.GetAttr(e.ctx, e.req(), in(file))
	e.fails(err, volume.ErrStale)
	if data, err := readAll(e.ctx, e.v, e.req(), file); err != nil || string(data) != "XXXXX there, and more" {
		e.Errorf("at last the file has %q, %v", data, err)
	}
}

// testRollback makes a volume what it was, and looks at what clients see of that.
func testRollback(e *env) {
	s, ok := e.v.(volume.Snapshotter)
	if !ok {
		e.Skip("the volume keeps no snapshots")
	}
	dir := e.workDir()
	file, gone := e.file(dir, "file", 0o666), e.file(dir, "gone", 0o666)
	e.write(file, 0, "as it was")
	_, err := s.TakeSnapshot(e.ctx, e.req(), "one")
	e.ok(err)
	e.write(file, 0, "changed")
	_, err = e.v.Remove(e.ctx, e.req(), dir, "gone")
	e.ok(err)
	late := e.file(dir, "late", 0o666)
	changed, changedDir := e.attr(file), e.attr(dir)

	e.fails(s.Rollback(e.ctx, e.req(), "none", "before"), volume.ErrNotExist)
	e.fails(s.Rollback(e.ctx, e.req(), "one", "one"), volume.ErrExist)
	e.fails(s.Rollback(e.ctx, e.req(), "one", "@1"), volume.ErrInvalid)
	r := volume.Request{ID: volume.OpID{Slot: "rollback", Seq: 1}}
	e.ok(s.Rollback(e.ctx, r, "one", "before"))

	back := e.attr(file)
	if back.Handle != file || back.Change == changed.Change || e.attr(dir).Change == changedDir.Change {
		e.Errorf("clients do not see that %+v is another than %+v", back, changed)
	}
	if got := e.names(dir); got != "file gone" {
		e.Errorf("the directory has %q", got)
	}
	if a, err := e.v.Lookup(e.ctx, e.req(), dir, "gone"); err != nil || a.Handle != gone {
		e.Errorf("the file that was removed is %v, %v, and was %v", a.Handle, err, gone)
	}
	_, err = e.v.GetAttr(e.ctx, e.req(), late)
	e.fails(err, volume.ErrStale)
	if again := e.file(dir, "late", 0o666); again.Ino == late.Ino {
		e.Errorf("inode number %d is used again", late.Ino)
	}
	e.write(file, 0, "afterwards")
	e.ok(s.Rollback(e.ctx, r, "one", "before")) // the repeat does nothing
	if e.s.Restart != nil {
		e.v = e.s.Restart()
		s = e.v.(volume.Snapshotter)
		e.ok(s.Rollback(e.ctx, r, "one", "before"))
	}
	if data, err := readAll(e.ctx, e.v, e.req(), file); err != nil || string(data) != "afterwards" {
		e.Errorf("the file has %q, %v", data, err)
	}
	e.ok(s.Rollback(e.ctx, e.req(), "before", "again")) // it can be undone
	if got := e.names(dir); got != "file late" {
		e.Errorf("the directory has %q", got)
	}
	if data, err := readAll(e.ctx, e.v, e.req(), file); err != nil || string(data) != "changedas" {
		e.Errorf("the file has %q, %v", data, err)
	}
}

// names lists a directory, sorted by cookie.
func (e *env) names(dir volume.Handle) string {
	e.Helper()
	entries, err := listAll(e.ctx, e.v, e.req(), dir, 2)
	e.ok(err)
	var names []string
	for _, x := range entries {
		names = append(names, x.Name)
	}
	return strings.Join(names, " ")
}
