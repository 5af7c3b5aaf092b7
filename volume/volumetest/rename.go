// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"github.com/weir-storage/weir/volume"
)

// testRename tries every kind of source with every kind of target, in one
// directory and between two.
func testRename(e *env) {
	kinds := []string{"none", "file", "link", "empty", "full"}
	build := func(e *env, dir volume.Handle, name, kind string) volume.Handle {
		switch kind {
		case "file":
			return e.file(dir, name, 0o644)
		case "link":
			return e.create(dir, name, linkArgs("x")).Handle
		case "empty":
			return e.mkdir(dir, name, 0o755)
		case "full":
			h := e.mkdir(dir, name, 0o755)
			e.file(h, "inside", 0o644)
			return h
		}
		return volume.Handle{}
	}
	isDir := func(kind string) bool { return kind == "empty" || kind == "full" }
	for _, src := range kinds {
		for _, dst := range kinds {
			for _, across := range []bool{false, true} {
				name := src + " to " + dst
				if across {
					name += " in another directory"
				}
				e.sub(name, func(e *env, work volume.Handle) {
					a, b := e.mkdir(work, "a", 0o755), e.mkdir(work, "b", 0o755)
					if !across {
						b = a
					}
					s, d := build(e, a, "s", src), build(e, b, "d", dst)
					beforeA, beforeB := e.attr(a), e.attr(b)
					var want error
					switch {
					case src == "none":
						want = volume.ErrNotExist
					case dst == "none":
					case isDir(src) && !isDir(dst):
						want = volume.ErrNotDir
					case !isDir(src) && isDir(dst):
						want = volume.ErrIsDir
					case dst == "full":
						want = volume.ErrNotEmpty
					}
					from, to, err := e.v.Rename(e.ctx, e.req(), a, "s", b, "d")
					e.fails(err, want)
					afterA, afterB := e.attr(a), e.attr(b)
					if want != nil {
						if exact(afterA) != exact(beforeA) || exact(afterB) != exact(beforeB) {
							e.Errorf("a refused rename changed a directory")
						}
						return
					}
					e.gone(a, "s")
					if got := e.lookup(b, "d"); got.Handle != s {
						e.Errorf("the new name leads to %+v, want %+v", got.Handle, s)
					}
					if from.Before != beforeA.Change || from.After != afterA.Change || to.Before != beforeB.Change ||
						to.After != afterB.Change || from.After <= from.Before || to.After <= to.Before {
						e.Errorf("changes %+v and %+v; directories from %d and %d to %d and %d", from, to, beforeA.Change,
							beforeB.Change, afterA.Change, afterB.Change)
					}
					if dst != "none" {
						_, err := e.v.GetAttr(e.ctx, e.req(), d)
						e.fails(err, volume.ErrStale)
					}
					if isDir(src) {
						if got := e.lookup(s, "..").Handle; got != b {
							e.Errorf(".. is %+v, want %+v", got, b)
						}
					}
					for _, dir := range []volume.Handle{a, b} {
						subdirs := uint32(0)
						for _, entry := range e.list(dir, 10) {
							if entry.Attr.Type == volume.Directory {
								subdirs++
							}
						}
						if n := e.attr(dir).Nlink; n != 2+subdirs {
							e.Errorf("a directory with %d subdirectories has %d links", subdirs, n)
						}
					}
				})
			}
		}
	}
	e.sub("into itself", func(e *env, work volume.Handle) {
		d := e.mkdir(work, "d", 0o755)
		deep := e.mkdir(e.mkdir(d, "x", 0o755), "y", 0o755)
		e.fails(e.rename(work, "d", d, "d"), volume.ErrInvalid)
		e.fails(e.rename(work, "d", deep, "d"), volume.ErrInvalid)
		e.ok(e.rename(work, "d", work, "e"))
		// The other way round, the target is an ancestor and not empty.
		e.fails(e.rename(d, "x", work, "e"), volume.ErrNotEmpty)
		e.file(deep, "f", 0o644)
		e.fails(e.rename(deep, "f", d, "x"), volume.ErrIsDir)
	})
	e.sub("same inode", func(e *env, work volume.Handle) {
		d := e.mkdir(work, "d", 0o755)
		f := e.file(d, "f", 0o644)
		_, err := e.v.Link(e.ctx, e.req(), f, work, "g")
		e.ok(err)
		before := e.attr(f)
		for _, to := range []struct {
			dir  volume.Handle
			name string
		}{{work, "g"}, {d, "f"}} {
			_, _, err := e.v.Rename(e.ctx, e.req(), d, "f", to.dir, to.name)
			e.ok(err)
		}
		e.ok(e.rename(work, "d", work, "d"))
		if e.lookup(d, "f").Handle != f || e.lookup(work, "g").Handle != f || exact(e.attr(f)) != exact(before) {
			e.Errorf("renaming to another name of the same inode changed something: %+v, before %+v", e.attr(f), before)
		}
	})
	e.sub("replaced hard link", func(e *env, work volume.Handle) {
		f := e.file(work, "f", 0o644)
		_, err := e.v.Link(e.ctx, e.req(), f, work, "g")
		e.ok(err)
		h := e.file(work, "h", 0o644)
		e.ok(e.rename(work, "h", work, "g"))
		if e.attr(f).Nlink != 1 || e.lookup(work, "g").Handle != h {
			e.Errorf("after replacing one of two names: %+v", e.attr(f))
		}
	})
	e.sub("not a directory", func(e *env, work volume.Handle) {
		f := e.file(work, "f", 0o644)
		e.fails(e.rename(f, "x", work, "y"), volume.ErrNotDir)
		e.fails(e.rename(work, "f", f, "y"), volume.ErrNotDir)
	})
}

func testRenamePermissions(e *env) {
	e.sub("all", func(e *env, work volume.Handle) {
		a := e.by(alice)
		closed := e.mkdir(work, "closed", 0o755) // only root may change it
		e.file(closed, "f", 0o666)
		a.file(work, "mine", 0o644)
		e.fails(a.rename(closed, "f", work, "f"), volume.ErrAccess)
		e.fails(a.rename(work, "mine", closed, "mine"), volume.ErrAccess)
		e.fails(a.rename(work, "mine", closed, "f"), volume.ErrAccess)
		blind := e.mkdir(work, "blind", 0o666) // may not be searched
		e.fails(a.rename(blind, "f", work, "f"), volume.ErrAccess)
		e.fails(a.rename(work, "mine", blind, "f"), volume.ErrAccess)

		sticky := e.mkdir(work, "sticky", 0o1777)
		e.by(bob).file(sticky, "bob's", 0o666)
		a.file(sticky, "alice's", 0o644)
		e.fails(a.rename(sticky, "bob's", work, "x"), volume.ErrPerm)
		e.fails(a.rename(work, "mine", sticky, "bob's"), volume.ErrPerm)
		_, err := e.v.Remove(e.ctx, a.req(), sticky, "bob's")
		e.fails(err, volume.ErrPerm)
		e.ok(a.rename(work, "mine", sticky, "alice's"))
		e.ok(a.rename(sticky, "alice's", work, "mine"))
		e.ok(e.rename(sticky, "bob's", work, "root may"))

		e.mkdir(work, "roots", 0o755) // a directory that alice may move, but not to another parent
		other := a.mkdir(work, "other", 0o755)
		e.ok(a.rename(work, "roots", work, "roots2"))
		e.fails(a.rename(work, "roots2", other, "roots"), volume.ErrAccess)
	})
}
