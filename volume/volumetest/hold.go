// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"errors"

	"github.com/weir-storage/weir/volume"
)

func testOrphans(e *env) {
	stale := func(e *env, h volume.Handle) {
		e.Helper()
		_, err := e.v.GetAttr(e.ctx, e.req(), h)
		e.fails(err, volume.ErrStale)
	}
	e.sub("file", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		e.write(f, 0, "data")
		e.ok(e.v.Hold(f))
		e.ok(e.v.Hold(f))
		e.remove(dir, "f")
		e.gone(dir, "f")
		if a := e.attr(f); a.Nlink != 0 || a.Size != 4 {
			e.Errorf("a removed, held file has %+v", a)
		}
		e.write(f, 4, " and more")
		if got := e.content(f); got != "data and more" {
			e.Errorf("content is %q", got)
		}
		e.setAttr(f, volume.SetAttr{Size: ptr(uint64(4))})
		_, err := e.v.Link(e.ctx, e.req(), f, dir, "back")
		e.fails(err, volume.ErrNotExist)
		e.v.Release(f)
		if got := e.content(f); got != "data" {
			e.Errorf("content is %q with one hold left", got)
		}
		e.ok(e.v.Hold(f))
		e.v.Release(f)
		e.v.Release(f)
		stale(e, f)
		if err := e.v.Hold(f); err != nil {
			e.fails(err, volume.ErrStale)
		} else {
			e.v.Release(f)
			if !e.s.Trails {
				e.Error("what is gone is held")
			}
		}
		stale(e, f)
	})
	e.sub("released before the end", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		e.ok(e.v.Hold(f))
		e.v.Release(f)
		e.attr(f)
		e.remove(dir, "f")
		stale(e, f)
	})
	e.sub("replaced", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		e.write(f, 0, "old")
		e.ok(e.v.Hold(f))
		e.file(dir, "new", 0o644)
		e.ok(e.rename(dir, "new", dir, "f"))
		if e.attr(f).Nlink != 0 || e.content(f) != "old" {
			e.Errorf("a replaced, held file has %+v", e.attr(f))
		}
		e.v.Release(f)
		stale(e, f)
	})
	e.sub("with another name", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		_, err := e.v.Link(e.ctx, e.req(), f, dir, "g")
		e.ok(err)
		e.ok(e.v.Hold(f))
		e.remove(dir, "f")
		e.v.Release(f)
		if e.attr(f).Nlink != 1 {
			e.Errorf("attributes are %+v", e.attr(f))
		}
	})
	e.sub("directory", func(e *env, dir volume.Handle) {
		d := e.mkdir(dir, "d", 0o755)
		f := e.file(dir, "f", 0o644)
		e.ok(e.v.Hold(d))
		e.remove(dir, "d")
		if a := e.attr(d); a.Nlink != 0 || a.Type != volume.Directory {
			e.Errorf("a removed, held directory has %+v", a)
		}
		if got := e.list(d, 10); len(got) != 0 {
			e.Errorf("it lists %v", names(got))
		}
		_, err := e.v.Create(e.ctx, e.req(), d, "x", fileArgs(0o644))
		e.fails(err, volume.ErrNotExist)
		_, err = e.v.Link(e.ctx, e.req(), f, d, "x")
		e.fails(err, volume.ErrNotExist)
		_, err = e.v.Lookup(e.ctx, e.req(), d, "..")
		e.fails(err, volume.ErrNotExist)
		e.fails(e.rename(dir, "f", d, "x"), volume.ErrNotExist)
		e.v.Release(d)
		stale(e, d)
	})
}

// testStale calls every method with handles of inodes that are gone or never were.
func testStale(e *env) {
	e.sub("all", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		gone := e.file(dir, "gone", 0o644)
		e.remove(dir, "gone")
		for _, h := range []volume.Handle{gone, {Ino: f.Ino, Gen: f.Gen + 1}, {Ino: 1 << 60, Gen: f.Gen}, {Ino: 1, Gen: 12345}, {}} {
			r := e.req()
			for name, do := range map[string]func() error{
				"getattr":     func() error { _, err := e.v.GetAttr(e.ctx, r, h); return err },
				"lookup":      func() error { _, err := e.v.Lookup(e.ctx, r, h, "x"); return err },
				"readlink":    func() error { _, err := e.v.ReadLink(e.ctx, r, h); return err },
				"readdir":     func() error { _, _, err := e.v.ReadDir(e.ctx, r, h, 0, 1); return err },
				"read":        func() error { _, _, err := e.v.Read(e.ctx, r, h, 0, make([]byte, 1)); return err },
				"seek":        func() error { _, err := e.v.Seek(e.ctx, r, h, 0, true); return err },
				"getxattr":    func() error { _, err := e.v.GetXattr(e.ctx, r, h, "user.a"); return err },
				"listxattr":   func() error { _, err := e.v.ListXattr(e.ctx, r, h); return err },
				"create":      func() error { _, err := e.v.Create(e.ctx, r, h, "x", fileArgs(0)); return err },
				"link":        func() error { _, err := e.v.Link(e.ctx, r, h, dir, "x"); return err },
				"link into":   func() error { _, err := e.v.Link(e.ctx, r, f, h, "x"); return err },
				"remove":      func() error { _, err := e.v.Remove(e.ctx, r, h, "x"); return err },
				"rename":      func() error { return e.rename(h, "x", dir, "y") },
				"rename into": func() error { return e.rename(dir, "f", h, "y") },
				"setattr":     func() error { _, err := e.v.SetAttr(e.ctx, r, h, volume.SetAttr{Mode: ptr(uint32(0))}); return err },
				"write":       func() error { _, err := e.v.Write(e.ctx, r, h, 0, []byte("x"), true); return err },
				"commit":      func() error { _, err := e.v.Commit(e.ctx, r, h); return err },
				"punch":       func() error { _, err := e.v.Punch(e.ctx, r, h, 0, 1); return err },
				"setxattr": func() error {
					_, err := e.v.SetXattr(e.ctx, r, h, "user.a", nil, volume.XattrEither)
					return err
				},
				"removexattr": func() error { _, err := e.v.RemoveXattr(e.ctx, r, h, "user.a"); return err },
				"setlock":     func() error { return e.v.SetLock(e.ctx, r, h, volume.Lock{}, false) },
				"testlock":    func() error { return e.v.TestLock(e.ctx, r, h, volume.Lock{}) },
				"hold":        func() error { return e.v.Hold(h) },
			} {
				if name == "hold" && e.s.Trails {
					continue // see Subject.Trails
				}
				if got := outcome(do()); got != volume.ErrStale {
					e.Errorf("%s of %+v: outcome %v, want %v", name, h, got, volume.ErrStale)
				}
			}
		}
	})
}

func testLocks(e *env) {
	owner := func(name string) volume.LockOwner { return volume.LockOwner{Gateway: "gateway", Owner: name} }
	e.sub("all", func(e *env, dir volume.Handle) {
		f, g := e.file(dir, "f", 0o644), e.file(dir, "g", 0o644)
		set := func(h volume.Handle, l volume.Lock) error { return e.v.SetLock(e.ctx, e.req(), h, l, false) }
		mine := volume.Lock{Owner: owner("a"), Start: 10, End: 19, Exclusive: true}
		e.ok(set(f, mine))
		e.ok(set(f, mine))
		theirs := volume.Lock{Owner: owner("b"), Start: 15, End: ^uint64(0)}
		for name, err := range map[string]error{"SetLock": set(f, theirs), "TestLock": e.v.TestLock(e.ctx, e.req(), f, theirs)} {
			e.fails(err, volume.ErrLocked)
			var conflict *volume.LockConflict
			if !errors.As(err, &conflict) || conflict.Held != mine {
				e.Errorf("%s: %v does not say that %+v is held", name, err, mine)
			}
		}
		e.ok(set(g, theirs))
		e.ok(e.v.TestLock(e.ctx, e.req(), f, volume.Lock{Owner: owner("a"), End: ^uint64(0), Exclusive: true}))
		downgraded := mine
		downgraded.Start, downgraded.Exclusive = 15, false
		e.ok(set(f, downgraded))
		e.ok(set(f, theirs))
		e.fails(set(f, mine), volume.ErrLocked) // an upgrade that conflicts
		e.ok(e.v.Unlock(e.ctx, e.req(), f, volume.Lock{Owner: owner("b"), Start: 0, End: 17}))
		e.ok(e.v.Unlock(e.ctx, e.req(), f, volume.Lock{Owner: owner("nobody"), Start: 0, End: ^uint64(0)}))
		var conflict *volume.LockConflict
		if err := e.v.TestLock(e.ctx, e.req(), f, mine); !errors.As(err, &conflict) || conflict.Held.Start != 18 || conflict.Held.Owner != owner("b") {
			e.Errorf("after unlocking the beginning: %v", err)
		}
		e.ok(e.v.Unlock(e.ctx, e.req(), f, theirs))
		e.ok(e.v.TestLock(e.ctx, e.req(), f, mine))
		other := mine
		other.Owner.Gateway = "another gateway"
		e.fails(set(f, other), volume.ErrLocked)
		e.fails(set(f, volume.Lock{Owner: owner("a"), Start: 2, End: 1}), volume.ErrInvalid)
		e.fails(set(dir, mine), volume.ErrIsDir)
		e.fails(set(e.create(dir, "l", linkArgs("x")).Handle, mine), volume.ErrInvalid)
		// Locks are advisory: they do not protect data.
		e.by(root).write(f, 10, "x")
	})
}
