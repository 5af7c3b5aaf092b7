// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"time"

	"github.com/weir-storage/weir/volume"
)

func testAttributes(e *env) {
	e.sub("set", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		e.write(f, 0, "hello")
		when := time.Date(1999, 12, 31, 23, 59, 59, 123456789, time.UTC)
		early := time.Date(1901, 1, 1, 0, 0, 0, 1, time.UTC)
		late := time.Date(2200, 1, 1, 0, 0, 0, 999999999, time.UTC)
		for _, tc := range []struct {
			name string
			set  volume.SetAttr
			want func(a *volume.Attr) // applied to the attributes before
		}{
			{"nothing", volume.SetAttr{}, func(*volume.Attr) {}},
			{"mode", volume.SetAttr{Mode: ptr(uint32(0o7777))}, func(a *volume.Attr) { a.Mode = 0o7777 }},
			{"owner", volume.SetAttr{UID: ptr(uint32(5))}, func(a *volume.Attr) { a.UID = 5; a.Mode = 0o1777 }},
			{"mode 0", volume.SetAttr{Mode: ptr(uint32(0))}, func(a *volume.Attr) { a.Mode = 0 }},
			{"group", volume.SetAttr{GID: ptr(uint32(1<<32 - 2))}, func(a *volume.Attr) { a.GID = 1<<32 - 2 }},
			{"atime", volume.SetAttr{Atime: &when}, func(a *volume.Attr) { a.Atime = when }},
			{"mtime", volume.SetAttr{Mtime: &early}, func(a *volume.Attr) { a.Mtime = early }},
			{"both", volume.SetAttr{Atime: &late, Mtime: &when}, func(a *volume.Attr) { a.Atime, a.Mtime = late, when }},
			{"size and mtime", volume.SetAttr{Size: ptr(uint64(3)), Mtime: &late}, func(a *volume.Attr) { a.Size, a.Used, a.Mtime = 3, 3, late }},
			{"larger", volume.SetAttr{Size: ptr(uint64(10)), Mtime: &late}, func(a *volume.Attr) { a.Size, a.Mtime = 10, late }},
			{"several", volume.SetAttr{Mode: ptr(uint32(0o640)), UID: ptr(uint32(7)), GID: ptr(uint32(8)), Atime: &when, Mtime: &when}, func(a *volume.Attr) {
				a.Mode, a.UID, a.GID, a.Atime, a.Mtime = 0o640, 7, 8, when, when
			}},
		} {
			before := e.attr(f)
			want := before
			tc.want(&want)
			got := e.setAttr(f, tc.set)
			if !tc.set.Empty() && got.Change <= before.Change {
				e.Errorf("%s: change attribute went from %d to %d", tc.name, before.Change, got.Change)
			}
			if exact(got) != exact(e.attr(f)) {
				e.Errorf("%s: SetAttr returned %+v, GetAttr %+v", tc.name, got, e.attr(f))
			}
			// The implementation chooses the time of change, and how exactly it counts data.
			want.Change, want.Ctime, want.Used = got.Change, got.Ctime, got.Used
			if exact(got) != exact(want) {
				e.Errorf("%s: attributes are\n%+v, want\n%+v", tc.name, got, want)
			}
		}
		if got := e.content(f); got != "hel\x00\x00\x00\x00\x00\x00\x00" {
			e.Errorf("content is %q after truncating and extending", got)
		}
		a := e.setAttr(f, volume.SetAttr{Atime: &time.Time{}, Mtime: &time.Time{}})
		if a.Atime.Equal(when) || a.Mtime.Equal(when) || a.Atime.IsZero() || a.Mtime.IsZero() {
			e.Errorf("the home's time was not set: atime %v, mtime %v", a.Atime, a.Mtime)
		}
	})
	e.sub("outcomes", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		link := e.create(dir, "link", linkArgs("f")).Handle
		for _, tc := range []struct {
			h    volume.Handle
			set  volume.SetAttr
			want error
		}{
			{dir, volume.SetAttr{Size: ptr(uint64(0))}, volume.ErrIsDir},
			{link, volume.SetAttr{Size: ptr(uint64(0))}, volume.ErrInvalid},
			{f, volume.SetAttr{Size: ptr(uint64(volume.MaxSize) + 1)}, volume.ErrTooBig},
			{f, volume.SetAttr{Mode: ptr(uint32(0o10000))}, volume.ErrInvalid},
		} {
			before := e.attr(tc.h)
			_, err := e.v.SetAttr(e.ctx, e.req(), tc.h, tc.set)
			e.fails(err, tc.want)
			if exact(e.attr(tc.h)) != exact(before) {
				e.Errorf("a refused SetAttr changed attributes")
			}
		}
		if a := e.setAttr(f, volume.SetAttr{Size: ptr(uint64(volume.MaxSize))}); a.Size != volume.MaxSize || a.Used != 0 {
			e.Errorf("the largest file has size %d, used %d", a.Size, a.Used)
		}
	})
}

func testSetAttrPermissions(e *env) {
	past := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	mode, size := ptr(uint32(0o600)), ptr(uint64(1))
	now := &time.Time{}
	for _, tc := range []struct {
		name string
		mode uint32 // of a file of alice and group alice
		as   volume.Caller
		set  volume.SetAttr
		want error
	}{
		{"owner chmod", 0o000, alice, volume.SetAttr{Mode: mode}, nil},
		{"other chmod", 0o777, bob, volume.SetAttr{Mode: mode}, volume.ErrPerm},
		{"root chmod", 0o000, root, volume.SetAttr{Mode: mode}, nil},
		{"owner gives away", 0o777, alice, volume.SetAttr{UID: ptr(bob.UID)}, volume.ErrPerm},
		{"owner keeps", 0o777, alice, volume.SetAttr{UID: ptr(alice.UID)}, nil},
		{"other takes", 0o777, bob, volume.SetAttr{UID: ptr(bob.UID)}, volume.ErrPerm},
		{"root gives away", 0o000, root, volume.SetAttr{UID: ptr(bob.UID)}, nil},
		{"owner, own group", 0o000, alice, volume.SetAttr{GID: ptr(uint32(staff))}, nil},
		{"owner, foreign group", 0o777, alice, volume.SetAttr{GID: ptr(bob.GID)}, volume.ErrPerm},
		{"other, own group", 0o777, bob, volume.SetAttr{GID: ptr(bob.GID)}, volume.ErrPerm},
		{"owner sets times", 0o000, alice, volume.SetAttr{Atime: &past, Mtime: &past}, nil},
		{"other sets times", 0o666, bob, volume.SetAttr{Mtime: &past}, volume.ErrPerm},
		{"writer touches", 0o666, bob, volume.SetAttr{Atime: now, Mtime: now}, nil},
		{"reader touches", 0o644, bob, volume.SetAttr{Mtime: now}, volume.ErrAccess},
		{"owner truncates", 0o000, alice, volume.SetAttr{Size: size}, nil},
		{"writer truncates", 0o666, bob, volume.SetAttr{Size: size}, nil},
		{"reader truncates", 0o644, bob, volume.SetAttr{Size: size}, volume.ErrAccess},
	} {
		e.sub(tc.name, func(e *env, dir volume.Handle) {
			f := e.by(alice).file(dir, "f", tc.mode)
			before := e.attr(f)
			_, err := e.v.SetAttr(e.ctx, volume.Request{Caller: tc.as}, f, tc.set)
			e.fails(err, tc.want)
			if after := e.attr(f); tc.want != nil && exact(after) != exact(before) {
				e.Errorf("a refused SetAttr changed %+v to %+v", before, after)
			}
		})
	}
	for _, tc := range []struct {
		name string
		mode uint32 // before; of a file of alice and group staff
		as   volume.Caller
		do   func(*env, volume.Handle)
		want uint32
	}{
		{"write clears", 0o6777, bob, func(e *env, h volume.Handle) { e.write(h, 0, "x") }, 0o777},
		{"owner's write clears", 0o4755, alice, func(e *env, h volume.Handle) { e.write(h, 0, "x") }, 0o755},
		{"root's write keeps", 0o6777, root, func(e *env, h volume.Handle) { e.write(h, 0, "x") }, 0o6777},
		{"no data keeps", 0o6777, bob, func(e *env, h volume.Handle) { e.write(h, 0, "") }, 0o6777},
		{"truncate clears", 0o6777, bob, func(e *env, h volume.Handle) { e.setAttr(h, volume.SetAttr{Size: ptr(uint64(9))}) }, 0o777},
		{"root's chown clears", 0o6755, root, func(e *env, h volume.Handle) { e.setAttr(h, volume.SetAttr{UID: ptr(bob.UID)}) }, 0o755},
		{"chgrp clears", 0o6755, alice, func(e *env, h volume.Handle) { e.setAttr(h, volume.SetAttr{GID: ptr(alice.GID)}) }, 0o755},
		{"set-gid without execute", 0o2766, bob, func(e *env, h volume.Handle) { e.write(h, 0, "x") }, 0o2766},
		{"chmod in the group", 0o644, alice, func(e *env, h volume.Handle) { e.setAttr(h, volume.SetAttr{Mode: ptr(uint32(0o2755))}) }, 0o2755},
		{"chmod outside the group", 0o644, volume.Caller{UID: alice.UID, GID: 9}, func(e *env, h volume.Handle) {
			e.setAttr(h, volume.SetAttr{Mode: ptr(uint32(0o2755))})
		}, 0o755},
	} {
		e.sub("set-id "+tc.name, func(e *env, dir volume.Handle) {
			f := e.file(dir, "f", 0)
			e.setAttr(f, volume.SetAttr{UID: ptr(alice.UID), GID: ptr(uint32(staff))})
			e.setAttr(f, volume.SetAttr{Mode: &tc.mode})
			tc.do(e.by(tc.as), f)
			if got := e.attr(f).Mode; got != tc.want {
				e.Errorf("mode is %#o, want %#o", got, tc.want)
			}
		})
	}
}

// testChangeAttribute checks that every change of an inode raises its change
// attribute, and that nothing else does it for the directory above.
func testChangeAttribute(e *env) {
	e.sub("all", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		d := e.mkdir(dir, "d", 0o755)
		e.mkdir(dir, "d2", 0o755)
		d2 := e.lookup(dir, "d2").Handle
		for _, tc := range []struct {
			name    string
			changes []volume.Handle
			do      func() error
		}{
			{"write", []volume.Handle{f}, func() error { _, err := e.v.Write(e.ctx, e.req(), f, 0, []byte("abc"), true); return err }},
			{"same bytes again", nil, func() error { _, err := e.v.Write(e.ctx, e.req(), f, 0, []byte("abc"), true); return err }},
			{"unstable write", []volume.Handle{f}, func() error { _, err := e.v.Write(e.ctx, e.req(), f, 1, []byte("x"), false); return err }},
			{"truncate", []volume.Handle{f}, func() error {
				_, err := e.v.SetAttr(e.ctx, e.req(), f, volume.SetAttr{Size: ptr(uint64(1))})
				return err
			}},
			{"extend", []volume.Handle{f}, func() error {
				_, err := e.v.SetAttr(e.ctx, e.req(), f, volume.SetAttr{Size: ptr(uint64(100))})
				return err
			}},
			{"punch", []volume.Handle{f}, func() error { _, err := e.v.Punch(e.ctx, e.req(), f, 0, 1); return err }},
			{"chmod", []volume.Handle{f}, func() error {
				_, err := e.v.SetAttr(e.ctx, e.req(), f, volume.SetAttr{Mode: ptr(uint32(0o600))})
				return err
			}},
			{"set xattr", []volume.Handle{f}, func() error {
				_, err := e.v.SetXattr(e.ctx, e.req(), f, "user.a", []byte("1"), volume.XattrEither)
				return err
			}},
			{"replace xattr", []volume.Handle{f}, func() error {
				_, err := e.v.SetXattr(e.ctx, e.req(), f, "user.a", []byte("2"), volume.XattrEither)
				return err
			}},
			{"remove xattr", []volume.Handle{f}, func() error { _, err := e.v.RemoveXattr(e.ctx, e.req(), f, "user.a"); return err }},
			{"link", []volume.Handle{f, d}, func() error { _, err := e.v.Link(e.ctx, e.req(), f, d, "g"); return err }},
			{"create", []volume.Handle{d}, func() error { _, err := e.v.Create(e.ctx, e.req(), d, "new", fileArgs(0)); return err }},
			{"mkdir", []volume.Handle{d}, func() error { _, err := e.v.Create(e.ctx, e.req(), d, "newd", dirArgs(0o755)); return err }},
			{"rename", []volume.Handle{d}, func() error { return e.rename(d, "new", d, "new2") }},
			{"rename across", []volume.Handle{d, d2}, func() error { return e.rename(d, "newd", d2, "newd") }},
			{"rename over", []volume.Handle{d, f}, func() error { return e.rename(d, "new2", d, "g") }},
			{"remove", []volume.Handle{d}, func() error { _, err := e.v.Remove(e.ctx, e.req(), d, "g"); return err }},
			{"rmdir", []volume.Handle{d2}, func() error { _, err := e.v.Remove(e.ctx, e.req(), d2, "newd"); return err }},
			{"refused remove", nil, func() error {
				_, err := e.v.Remove(e.ctx, e.req(), d2, "newd")
				if outcome(err) == volume.ErrNotExist {
					return nil
				}
				return err
			}},
			{"read", nil, func() error { _, _, err := e.v.Read(e.ctx, e.req(), f, 0, make([]byte, 10)); return err }},
			{"list", nil, func() error { _, _, err := e.v.ReadDir(e.ctx, e.req(), d, 0, 10); return err }},
		} {
			all := []volume.Handle{dir, f, d, d2}
			before := make(map[volume.Handle]uint64)
			for _, h := range all {
				before[h] = e.attr(h).Change
			}
			e.ok(tc.do())
			for _, h := range all {
				after := e.attr(h).Change
				must := false
				for _, c := range tc.changes {
					must = must || c == h
				}
				if after < before[h] || must && after == before[h] {
					e.Errorf("%s: change attribute of inode %d went from %d to %d", tc.name, h.Ino, before[h], after)
				}
				if (h == dir) && after != before[h] {
					e.Errorf("%s: changed the directory above", tc.name)
				}
			}
		}
	})
}

// testPermissions checks what the mode bits decide, for every method that asks.
func testPermissions(e *env) {
	type op func(e *env, dir, f volume.Handle) error
	ops := map[string]op{
		"lookup": func(e *env, dir, _ volume.Handle) error { _, err := e.v.Lookup(e.ctx, e.req(), dir, "f"); return err },
		"readdir": func(e *env, dir, _ volume.Handle) error {
			_, _, err := e.v.ReadDir(e.ctx, e.req(), dir, 0, 1)
			return err
		},
		"create": func(e *env, dir, _ volume.Handle) error {
			_, err := e.v.Create(e.ctx, e.req(), dir, "new", fileArgs(0o644))
			return err
		},
		"link": func(e *env, dir, f volume.Handle) error {
			_, err := e.v.Link(e.ctx, e.req(), f, dir, "new")
			return err
		},
		"remove":  func(e *env, dir, _ volume.Handle) error { _, err := e.v.Remove(e.ctx, e.req(), dir, "f"); return err },
		"rename":  func(e *env, dir, _ volume.Handle) error { return e.rename(dir, "f", dir, "new") },
		"getattr": func(e *env, _, f volume.Handle) error { _, err := e.v.GetAttr(e.ctx, e.req(), f); return err },
		"read": func(e *env, _, f volume.Handle) error {
			_, _, err := e.v.Read(e.ctx, e.req(), f, 0, make([]byte, 1))
			return err
		},
		"seek": func(e *env, _, f volume.Handle) error { _, err := e.v.Seek(e.ctx, e.req(), f, 0, true); return err },
		"write": func(e *env, _, f volume.Handle) error {
			_, err := e.v.Write(e.ctx, e.req(), f, 0, []byte("x"), true)
			return err
		},
		"punch":  func(e *env, _, f volume.Handle) error { _, err := e.v.Punch(e.ctx, e.req(), f, 0, 1); return err },
		"commit": func(e *env, _, f volume.Handle) error { _, err := e.v.Commit(e.ctx, e.req(), f); return err },
		"getxattr": func(e *env, _, f volume.Handle) error {
			_, err := e.v.GetXattr(e.ctx, e.req(), f, "user.x")
			return err
		},
		"listxattr": func(e *env, _, f volume.Handle) error { _, err := e.v.ListXattr(e.ctx, e.req(), f); return err },
		"setxattr": func(e *env, _, f volume.Handle) error {
			_, err := e.v.SetXattr(e.ctx, e.req(), f, "user.y", nil, volume.XattrEither)
			return err
		},
		"removexattr": func(e *env, _, f volume.Handle) error {
			_, err := e.v.RemoveXattr(e.ctx, e.req(), f, "user.x")
			return err
		},
	}
	for _, tc := range []struct {
		dir, file uint32 // modes; both are alice's and staff's
		as        volume.Caller
		denied    []string
	}{
		{0o777, 0o666, bob, nil},
		{0o000, 0o000, root, nil},
		{0o700, 0o000, alice, []string{"getxattr", "listxattr", "setxattr", "removexattr"}}, // the owner can go on using open files
		{0o000, 0o600, alice, []string{"lookup", "readdir", "create", "link", "remove", "rename"}},
		{0o770, 0o660, bob, []string{"lookup", "readdir", "create", "link", "remove", "rename", "read", "seek", "write", "punch", "getxattr", "listxattr", "setxattr", "removexattr"}},
		{0o770, 0o660, volume.Caller{UID: 5, GID: staff}, nil},
		{0o770, 0o660, volume.Caller{UID: 5, GID: 5, Groups: []uint32{4, staff}}, nil},
		{0o707, 0o606, volume.Caller{UID: 5, GID: staff}, []string{"lookup", "readdir", "create", "link", "remove", "rename", "read", "seek", "write", "punch", "getxattr", "listxattr", "setxattr", "removexattr"}},
		{0o755, 0o644, bob, []string{"create", "link", "remove", "rename", "write", "punch", "setxattr", "removexattr"}},
		{0o711, 0o711, bob, []string{"readdir", "create", "link", "remove", "rename", "write", "punch", "getxattr", "listxattr", "setxattr", "removexattr"}},
		{0o744, 0o622, bob, []string{"lookup", "create", "link", "remove", "rename", "read", "seek", "getxattr", "listxattr"}},
		{0o733, 0o666, bob, []string{"readdir"}},
	} {
		for name, do := range ops {
			e.sub(name, func(e *env, work volume.Handle) {
				dir := e.mkdir(work, "d", 0o777)
				f := e.file(dir, "f", 0o666)
				e.write(f, 0, "abc")
				_, err := e.v.SetXattr(e.ctx, e.req(), f, "user.x", []byte("v"), volume.XattrCreate)
				e.ok(err)
				e.setAttr(f, volume.SetAttr{Mode: &tc.file, UID: ptr(alice.UID), GID: ptr(uint32(staff))})
				e.setAttr(dir, volume.SetAttr{Mode: &tc.dir, UID: ptr(alice.UID), GID: ptr(uint32(staff))})
				var want error
				for _, d := range tc.denied {
					if d == name {
						want = volume.ErrAccess
					}
				}
				if got := outcome(do(e.by(tc.as), dir, f)); got != want {
					e.Errorf("directory %#o, file %#o, user %d: outcome %v, want %v", tc.dir, tc.file, tc.as.UID, got, want)
				}
			})
		}
	}
}
