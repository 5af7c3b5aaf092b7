// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-storage/weir/volume"
)

// place is where the changes of onceKinds happen.
type place struct {
	dir, sub, file volume.Handle // file is sub/f, with the data "0123456789" and the attribute user.x
}

func (e *env) place(work volume.Handle, name string) place {
	p := place{dir: e.mkdir(work, name, 0o755)}
	p.sub = e.mkdir(p.dir, "sub", 0o755)
	p.file = e.file(p.sub, "f", 0o644)
	e.file(p.sub, "g", 0o644)
	e.write(p.file, 0, "0123456789")
	_, err := e.v.SetXattr(e.ctx, e.req(), p.file, "user.x", []byte("x"), volume.XattrCreate)
	e.ok(err)
	return p
}

// onceKinds are changes of every kind. Each returns its result as a value that ==
// can compare.
var onceKinds = []struct {
	name string
	do   func(e *env, r volume.Request, p place) (any, error)
	anew error // the outcome of executing it a second time
}{
	{"create", func(e *env, r volume.Request, p place) (any, error) {
		return created(e.v.Create(e.ctx, r, p.sub, "new", fileArgs(0o600)))
	}, volume.ErrExist},
	{"create unchecked", func(e *env, r volume.Request, p place) (any, error) {
		args := fileArgs(0o600)
		args.Mode, args.Attr.Size = volume.Unchecked, ptr(uint64(3))
		return created(e.v.Create(e.ctx, r, p.sub, "f", args))
	}, nil},
	{"create exclusive", func(e *env, r volume.Request, p place) (any, error) {
		args := fileArgs(0o600)
		args.Mode, args.Verf = volume.Exclusive, [8]byte{9}
		return created(e.v.Create(e.ctx, r, p.sub, "new", args))
	}, nil},
	{"mkdir", func(e *env, r volume.Request, p place) (any, error) {
		return created(e.v.Create(e.ctx, r, p.sub, "new", dirArgs(0o755)))
	}, volume.ErrExist},
	{"symlink", func(e *env, r volume.Request, p place) (any, error) {
		return created(e.v.Create(e.ctx, r, p.sub, "new", linkArgs("target")))
	}, volume.ErrExist},
	{"link", func(e *env, r volume.Request, p place) (any, error) {
		return created(e.v.Link(e.ctx, r, p.file, p.dir, "new"))
	}, volume.ErrExist},
	{"remove", func(e *env, r volume.Request, p place) (any, error) {
		return e.v.Remove(e.ctx, r, p.sub, "f")
	}, volume.ErrNotExist},
	{"rename", func(e *env, r volume.Request, p place) (any, error) {
		from, to, err := e.v.Rename(e.ctx, r, p.sub, "f", p.dir, "new")
		return [2]volume.DirChange{from, to}, err
	}, volume.ErrNotExist},
	{"rename over", func(e *env, r volume.Request, p place) (any, error) {
		from, to, err := e.v.Rename(e.ctx, r, p.sub, "f", p.sub, "g")
		return [2]volume.DirChange{from, to}, err
	}, volume.ErrNotExist},
	{"rename directory", func(e *env, r volume.Request, p place) (any, error) {
		from, to, err := e.v.Rename(e.ctx, r, p.dir, "sub", p.dir, "new")
		return [2]volume.DirChange{from, to}, err
	}, volume.ErrNotExist},
	{"setattr", func(e *env, r volume.Request, p place) (any, error) {
		return attributes(e.v.SetAttr(e.ctx, r, p.file, volume.SetAttr{Mode: ptr(uint32(0o400))}))
	}, nil},
	{"truncate", func(e *env, r volume.Request, p place) (any, error) {
		return attributes(e.v.SetAttr(e.ctx, r, p.file, volume.SetAttr{Size: ptr(uint64(4))}))
	}, nil},
	{"write", func(e *env, r volume.Request, p place) (any, error) {
		w, err := e.v.Write(e.ctx, r, p.file, 5, []byte("data"), true)
		w.Attr = exact(w.Attr)
		return w, err
	}, nil},
	{"punch", func(e *env, r volume.Request, p place) (any, error) {
		return attributes(e.v.Punch(e.ctx, r, p.file, 2, 3))
	}, nil},
	{"setxattr", func(e *env, r volume.Request, p place) (any, error) {
		return e.v.SetXattr(e.ctx, r, p.file, "user.new", []byte("value"), volume.XattrCreate)
	}, volume.ErrExist},
	{"removexattr", func(e *env, r volume.Request, p place) (any, error) {
		return e.v.RemoveXattr(e.ctx, r, p.file, "user.x")
	}, volume.ErrNoXattr},
}

func created(c volume.Created, err error) (any, error) {
	c.Attr = exact(c.Attr)
	return c, err
}

func attributes(a volume.Attr, err error) (any, error) { return exact(a), err }

// picture describes everything below h, with all attributes.
func (e *env) picture(h volume.Handle) string {
	e.Helper()
	var b strings.Builder
	var walk func(path string, a volume.Attr)
	walk = func(path string, a volume.Attr) {
		fmt.Fprintf(&b, "%s %+v\n", path, exact(a))
		list, err := e.v.ListXattr(e.ctx, e.req(), a.Handle)
		e.ok(err)
		for _, name := range list {
			value, err := e.v.GetXattr(e.ctx, e.req(), a.Handle, name)
			e.ok(err)
			fmt.Fprintf(&b, "%s %s=%q\n", path, name, value)
		}
		switch a.Type {
		case volume.Regular:
			fmt.Fprintf(&b, "%s %q\n", path, e.content(a.Handle))
		case volume.Directory:
			entries := e.list(a.Handle, 100)
			slices.SortFunc(entries, func(x, y volume.Entry) int { return strings.Compare(x.Name, y.Name) })
			for _, entry := range entries {
				walk(path+"/"+entry.Name, entry.Attr)
			}
		}
	}
	walk("", e.attr(h))
	return b.String()
}

func testOnce(e *env) {
	for _, kind := range onceKinds {
		e.sub(kind.name, func(e *env, work volume.Handle) {
			p := e.place(work, "place")
			id := volume.OpID{Slot: "client/session/" + kind.name, Seq: 1<<32 - 1, Index: 3}
			first, err := kind.do(e, volume.Request{ID: id}, p)
			e.ok(err)
			after := e.picture(p.dir)
			for range 2 {
				again, err := kind.do(e, volume.Request{ID: id}, p)
				e.ok(err)
				if again != first {
					e.Errorf("the repeat returned\n%+v, first\n%+v", again, first)
				}
			}
			if got := e.picture(p.dir); got != after {
				e.Errorf("the repeat changed something:\n%s\nwas\n%s", got, after)
			}
			id.Seq++ // wraps to 0
			second, err := kind.do(e, volume.Request{ID: id}, p)
			e.fails(err, kind.anew)
			if err == nil && second == first && kind.name != "create exclusive" {
				e.Error("another Seq was not executed")
			}
		})
	}
}

func testOnceSlots(e *env) {
	create := func(e *env, id volume.OpID, dir volume.Handle, name string) (volume.Created, error) {
		return e.v.Create(e.ctx, volume.Request{ID: id}, dir, name, fileArgs(0o600))
	}
	e.sub("errors are results", func(e *env, dir volume.Handle) {
		id := volume.OpID{Slot: "errors", Seq: 7}
		e.file(dir, "f", 0o644)
		_, err := create(e, id, dir, "f")
		e.fails(err, volume.ErrExist)
		e.remove(dir, "f")
		_, err = create(e, id, dir, "f")
		e.fails(err, volume.ErrExist)
		e.gone(dir, "f")
		id.Seq++
		c, err := create(e, id, dir, "f")
		e.ok(err)
		again, err := create(e, id, dir, "f")
		e.ok(err)
		if again.Attr.Handle != c.Attr.Handle {
			e.Errorf("the repeat created %+v, first %+v", again.Attr.Handle, c.Attr.Handle)
		}
	})
	e.sub("indices", func(e *env, dir volume.Handle) {
		var made []volume.Handle
		for i := range uint32(3) {
			c, err := create(e, volume.OpID{Slot: "indices", Seq: 1, Index: i}, dir, fmt.Sprint(i))
			e.ok(err)
			made = append(made, c.Attr.Handle)
		}
		for i := range uint32(3) {
			c, err := create(e, volume.OpID{Slot: "indices", Seq: 1, Index: i}, dir, fmt.Sprint(i))
			e.ok(err)
			if c.Attr.Handle != made[i] {
				e.Errorf("index %d: %+v, first %+v", i, c.Attr.Handle, made[i])
			}
		}
	})
	e.sub("slots are apart", func(e *env, dir volume.Handle) {
		_, err := create(e, volume.OpID{Slot: "apart 1", Seq: 1}, dir, "f")
		e.ok(err)
		_, err = create(e, volume.OpID{Slot: "apart 2", Seq: 1}, dir, "f")
		e.fails(err, volume.ErrExist)
	})
	e.sub("late duplicates", func(e *env, dir volume.Handle) {
		old := volume.OpID{Slot: "late", Seq: 1<<32 - 1}
		_, err := create(e, old, dir, "f")
		e.ok(err)
		_, err = e.v.Remove(e.ctx, volume.Request{ID: volume.OpID{Slot: "late", Seq: 0}}, dir, "f")
		e.ok(err)
		_, err = create(e, old, dir, "f")
		e.fails(err, volume.ErrUnknown)
		e.gone(dir, "f")
	})
	e.sub("zero", func(e *env, dir volume.Handle) {
		_, err := create(e, volume.OpID{}, dir, "f")
		e.ok(err)
		_, err = create(e, volume.OpID{}, dir, "f")
		e.fails(err, volume.ErrExist)
	})
	e.sub("long slot", func(e *env, dir volume.Handle) {
		_, err := create(e, volume.OpID{Slot: strings.Repeat("s", 64), Seq: 1}, dir, "f")
		e.ok(err)
		_, err = create(e, volume.OpID{Slot: strings.Repeat("s", 65), Seq: 1}, dir, "g")
		e.fails(err, volume.ErrInvalid)
	})
	e.sub("forget", func(e *env, dir volume.Handle) {
		kept := volume.OpID{Slot: "client2/x", Seq: 1}
		c, err := create(e, kept, dir, "kept")
		e.ok(err)
		_, err = create(e, volume.OpID{Slot: "client1/x", Seq: 1}, dir, "f")
		e.ok(err)
		e.ok(e.v.Forget(e.ctx, "client1/"))
		e.ok(e.v.Forget(e.ctx, "nobody/"))
		again, err := create(e, kept, dir, "kept")
		e.ok(err)
		if again.Attr.Handle != c.Attr.Handle {
			e.Error("Forget dropped another slot's result")
		}
	})
}

func testOnceAfterRestart(e *env) {
	if e.s.Restart == nil {
		return
	}
	work := e.workDir()
	places := make([]place, len(onceKinds))
	first := make([]any, len(onceKinds))
	id := func(i int) volume.Request {
		return volume.Request{ID: volume.OpID{Slot: fmt.Sprintf("restart/%d", i), Seq: 5, Index: 1}}
	}
	for i, kind := range onceKinds {
		places[i] = e.place(work, kind.name)
		var err error
		first[i], err = kind.do(e, id(i), places[i])
		e.ok(err)
	}
	e.v = e.s.Restart()
	before := e.picture(work)
	for i, kind := range onceKinds {
		again, err := kind.do(e, id(i), places[i])
		if err != nil || again != first[i] {
			e.Errorf("%s: the repeat after a restart returned\n%+v, %v; first\n%+v", kind.name, again, err, first[i])
		}
	}
	if after := e.picture(work); after != before {
		e.Errorf("repeats after a restart changed something:\n%s\nwas\n%s", after, before)
	}
	for i, kind := range onceKinds {
		r := id(i)
		r.ID.Seq++
		_, err := kind.do(e, r, places[i])
		if outcome(err) != kind.anew {
			e.Errorf("%s: with another Seq after a restart: %v, want %v", kind.name, err, kind.anew)
		}
	}
}
