// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"strings"

	"github.com/weir-storage/weir/volume"
)

func testCreate(e *env) {
	e.sub("attributes", func(e *env, dir volume.Handle) {
		for _, tc := range []struct {
			name string
			args volume.CreateArgs
			want volume.Attr
		}{
			{"file", fileArgs(0o640), volume.Attr{Type: volume.Regular, Mode: 0o640, Nlink: 1}},
			{"mode defaults to 0", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded},
				volume.Attr{Type: volume.Regular, Nlink: 1}},
			{"file with size", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded,
				Attr: volume.SetAttr{Size: ptr(uint64(5000))}}, volume.Attr{Type: volume.Regular, Nlink: 1, Size: 5000}},
			{"directory", dirArgs(0o1755), volume.Attr{Type: volume.Directory, Mode: 0o1755, Nlink: 2}},
			{"link", linkArgs("to/somewhere"), volume.Attr{Type: volume.Symlink, Mode: 0o777, Nlink: 1, Size: 12}},
			{"fifo", volume.CreateArgs{Type: volume.FIFO, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: ptr(uint32(0o600))}},
				volume.Attr{Type: volume.FIFO, Mode: 0o600, Nlink: 1}},
			{"socket", volume.CreateArgs{Type: volume.Socket, Mode: volume.Guarded,
				Attr: volume.SetAttr{Mode: ptr(uint32(0o600))}}, volume.Attr{Type: volume.Socket, Mode: 0o600, Nlink: 1}},
			{"block", volume.CreateArgs{Type: volume.Block, Mode: volume.Guarded, Rdev: 8<<32 | 1},
				volume.Attr{Type: volume.Block, Nlink: 1, Rdev: 8<<32 | 1}},
			{"char", volume.CreateArgs{Type: volume.Char, Mode: volume.Guarded, Rdev: 1<<32 | 3},
				volume.Attr{Type: volume.Char, Nlink: 1, Rdev: 1<<32 | 3}},
		} {
			before := e.attr(dir)
			c, err := e.v.Create(e.ctx, e.req(), dir, tc.name, tc.args)
			e.ok(err)
			a := c.Attr
			if !c.New || c.Dir.Before != before.Change || c.Dir.After <= c.Dir.Before || e.attr(dir).Change != c.Dir.After {
				e.Errorf("%s: created %+v in a directory with change %d, now %d", tc.name, c, before.Change, e.attr(dir).Change)
			}
			if a.Ino < 2 || a.Change == 0 || a.Btime.IsZero() || a.Mtime.IsZero() || a.Ctime.IsZero() || a.Atime.IsZero() {
				e.Errorf("%s: attributes not filled in: %+v", tc.name, a)
			}
			if tc.args.Type != volume.Directory && a.Size != tc.want.Size || a.Used != 0 && tc.args.Type == volume.Regular {
				e.Errorf("%s: size %d used %d, want size %d used 0", tc.name, a.Size, a.Used, tc.want.Size)
			}
			if a.Type != tc.want.Type || a.Mode != tc.want.Mode || a.Nlink != tc.want.Nlink || a.Rdev != tc.want.Rdev ||
				a.UID != 0 || a.GID != 0 {
				e.Errorf("%s: attributes are %+v, want %+v", tc.name, a, tc.want)
			}
			if got := e.lookup(dir, tc.name); exact(got) != exact(a) {
				e.Errorf("%s: Lookup returns %+v, Create returned %+v", tc.name, got, a)
			}
			if got := e.attr(a.Handle); exact(got) != exact(a) {
				e.Errorf("%s: GetAttr returns %+v, Create returned %+v", tc.name, got, a)
			}
		}
		if n := e.attr(dir).Nlink; n != 3 {
			e.Errorf("the directory with one subdirectory has %d links, want 3", n)
		}
	})
	e.sub("owner", func(e *env, dir volume.Handle) {
		setgid := e.create(dir, "setgid", dirArgs(0o2777)).Handle
		e.setAttr(setgid, volume.SetAttr{GID: ptr(uint32(77))})
		a := e.by(alice)
		if got := a.create(dir, "f", fileArgs(0o600)); got.UID != alice.UID || got.GID != alice.GID {
			e.Errorf("alice's file belongs to %d:%d", got.UID, got.GID)
		}
		if got := a.create(setgid, "f", fileArgs(0o600)); got.UID != alice.UID || got.GID != 77 {
			e.Errorf("alice's file in a set-gid directory belongs to %d:%d", got.UID, got.GID)
		}
		if got := a.create(setgid, "d", dirArgs(0o755)); got.GID != 77 || got.Mode != 0o2755 {
			e.Errorf("a directory in a set-gid directory has group %d, mode %#o", got.GID, got.Mode)
		}
		own := fileArgs(0o600)
		own.Attr.UID, own.Attr.GID = ptr(alice.UID), ptr(uint32(staff))
		if got := a.create(dir, "staff", own); got.UID != alice.UID || got.GID != staff {
			e.Errorf("alice's file for staff belongs to %d:%d", got.UID, got.GID)
		}
		_, err := e.v.Create(e.ctx, volume.Request{Caller: bob}, dir, "not bob's", own)
		e.fails(err, volume.ErrPerm)
		if got := e.create(dir, "given away", own); got.UID != alice.UID || got.GID != staff {
			e.Errorf("root's file for alice belongs to %d:%d", got.UID, got.GID)
		}
		_, err = e.v.Create(e.ctx, volume.Request{Caller: bob}, dir, "device", volume.CreateArgs{Type: volume.Char, Mode: volume.Guarded})
		e.fails(err, volume.ErrPerm)
	})
	e.sub("outcomes", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		try := func(where volume.Handle, name string, args volume.CreateArgs, want error) {
			e.Helper()
			_, err := e.v.Create(e.ctx, e.req(), where, name, args)
			e.fails(err, want)
		}
		try(dir, "f", fileArgs(0o644), volume.ErrExist)
		try(dir, "f", dirArgs(0o755), volume.ErrExist)
		try(dir, "f", linkArgs("x"), volume.ErrExist)
		try(f, "x", fileArgs(0o644), volume.ErrNotDir)
		try(dir, "x", volume.CreateArgs{Mode: volume.Guarded}, volume.ErrInvalid)
		try(dir, "x", volume.CreateArgs{Type: volume.Socket + 1, Mode: volume.Guarded}, volume.ErrInvalid)
		try(dir, "x", volume.CreateArgs{Type: volume.Directory, Mode: volume.Unchecked}, volume.ErrInvalid)
		try(dir, "x", fileArgs(0o10000), volume.ErrInvalid)
		try(dir, "x", linkArgs(""), volume.ErrInvalid)
		try(dir, "x", linkArgs(strings.Repeat("x", volume.MaxTarget+1)), volume.ErrNameTooLong)
		big := fileArgs(0o644)
		big.Attr.Size = ptr(uint64(volume.MaxSize) + 1)
		try(dir, "x", big, volume.ErrTooBig)
		e.gone(dir, "x")
	})
}

func testCreateModes(e *env) {
	unchecked := volume.CreateArgs{Type: volume.Regular, Mode: volume.Unchecked, Attr: volume.SetAttr{Mode: ptr(uint32(0o600))}}
	exclusive := volume.CreateArgs{Type: volume.Regular, Mode: volume.Exclusive, Verf: [8]byte{1},
		Attr: volume.SetAttr{Mode: ptr(uint32(0o600))}}
	e.sub("unchecked", func(e *env, dir volume.Handle) {
		first, err := e.v.Create(e.ctx, e.req(), dir, "f", unchecked)
		e.ok(err)
		e.write(first.Attr.Handle, 0, "hello")
		before := e.attr(dir).Change
		again, err := e.v.Create(e.ctx, e.req(), dir, "f", unchecked)
		e.ok(err)
		if !first.New || again.New || again.Attr.Handle != first.Attr.Handle || again.Attr.Size != 5 || again.Attr.Mode != 0o600 {
			e.Errorf("first %+v, again %+v", first, again)
		}
		if again.Dir.Before != before || again.Dir.After != before {
			e.Errorf("the directory did not change, but Create says %+v", again.Dir)
		}
		truncate := unchecked
		truncate.Attr.Size = ptr(uint64(0))
		_, err = e.v.Create(e.ctx, volume.Request{Caller: bob}, dir, "f", truncate)
		e.fails(err, volume.ErrAccess)
		if got := e.content(first.Attr.Handle); got != "hello" {
			e.Errorf("content is %q after a refused truncation", got)
		}
		again, err = e.v.Create(e.ctx, e.req(), dir, "f", truncate)
		e.ok(err)
		if again.New || again.Attr.Size != 0 || again.Attr.Handle != first.Attr.Handle {
			e.Errorf("with size 0: %+v", again)
		}
	})
	e.sub("exclusive", func(e *env, dir volume.Handle) {
		first, err := e.v.Create(e.ctx, e.req(), dir, "f", exclusive)
		e.ok(err)
		again, err := e.v.Create(e.ctx, e.req(), dir, "f", exclusive)
		e.ok(err)
		if !first.New || again.New || again.Attr.Handle != first.Attr.Handle {
			e.Errorf("first %+v, again %+v", first, again)
		}
		other := exclusive
		other.Verf = [8]byte{2}
		_, err = e.v.Create(e.ctx, e.req(), dir, "f", other)
		e.fails(err, volume.ErrExist)
		e.file(dir, "plain", 0o644)
		zero := exclusive
		zero.Verf = [8]byte{}
		_, err = e.v.Create(e.ctx, e.req(), dir, "plain", zero)
		e.fails(err, volume.ErrExist)
	})
	e.sub("what is there", func(e *env, dir volume.Handle) {
		e.mkdir(dir, "dir", 0o755)
		e.create(dir, "link", linkArgs("f"))
		for _, args := range []volume.CreateArgs{unchecked, exclusive} {
			_, err := e.v.Create(e.ctx, e.req(), dir, "dir", args)
			e.fails(err, volume.ErrIsDir)
			_, err = e.v.Create(e.ctx, e.req(), dir, "link", args)
			e.fails(err, volume.ErrExist)
		}
		_, err := e.v.Create(e.ctx, e.req(), dir, "dir", fileArgs(0o644))
		e.fails(err, volume.ErrExist)
	})
}

func testNames(e *env) {
	e.sub("good", func(e *env, dir volume.Handle) {
		for _, name := range []string{
			"a", "...", " ", "-rf", strings.Repeat("x", volume.MaxName), strings.Repeat("ü", volume.MaxName/2),
			"Grüße", "Gru\u0308ße", "日本語", "😀", "new\nline", "tab\t", "\xff\xfe", "\x01", `back\slash`, "*?[]", "A", ".hidden", "trailing.",
		} {
			h := e.file(dir, name, 0o644)
			if got := e.lookup(dir, name); got.Handle != h {
				e.Errorf("name %q leads to inode %d, want %d", name, got.Ino, h.Ino)
			}
		}
		seen := make(map[string]bool)
		for _, entry := range e.list(dir, 3) {
			seen[entry.Name] = true
		}
		for name := range seen {
			e.ok(e.rename(dir, name, dir, "moving"))
			e.ok(e.rename(dir, "moving", dir, name))
			e.remove(dir, name)
			e.gone(dir, name)
		}
		if len(seen) != 19 {
			e.Errorf("listed %d names, want 19: %v", len(seen), seen)
		}
	})
	e.sub("bad", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		for _, tc := range []struct {
			name string
			want error
		}{
			{"", volume.ErrInvalid}, {"a/b", volume.ErrInvalid}, {"/", volume.ErrInvalid}, {"a\x00", volume.ErrInvalid},
			{strings.Repeat("x", volume.MaxName+1), volume.ErrNameTooLong}, {strings.Repeat("ü", 128), volume.ErrNameTooLong},
			{".", volume.ErrInvalid}, {"..", volume.ErrInvalid},
		} {
			if tc.name != "." && tc.name != ".." {
				_, err := e.v.Lookup(e.ctx, e.req(), dir, tc.name)
				e.fails(err, tc.want)
			}
			_, err := e.v.Create(e.ctx, e.req(), dir, tc.name, fileArgs(0o644))
			e.fails(err, tc.want)
			_, err = e.v.Link(e.ctx, e.req(), f, dir, tc.name)
			e.fails(err, tc.want)
			_, err = e.v.Remove(e.ctx, e.req(), dir, tc.name)
			e.fails(err, tc.want)
			e.fails(e.rename(dir, tc.name, dir, "x"), tc.want)
			e.fails(e.rename(dir, "f", dir, tc.name), tc.want)
		}
	})
	e.sub("dots", func(e *env, dir volume.Handle) {
		d := e.mkdir(dir, "d", 0o755)
		for _, tc := range []struct {
			dir  volume.Handle
			name string
			want volume.Handle
		}{{d, ".", d}, {d, "..", dir}, {dir, "..", volume.Root}, {volume.Root, "..", volume.Root}, {volume.Root, ".", volume.Root}} {
			if got := e.lookup(tc.dir, tc.name).Handle; got != tc.want {
				e.Errorf("%q of %+v is %+v, want %+v", tc.name, tc.dir, got, tc.want)
			}
		}
		e.ok(e.rename(dir, "d", volume.Root, "dots moved"))
		if got := e.lookup(d, "..").Handle; got != volume.Root {
			e.Errorf("after moving, .. is %+v", got)
		}
		f := e.file(d, "f", 0o644)
		_, err := e.v.Lookup(e.ctx, e.req(), f, ".")
		e.fails(err, volume.ErrNotDir)
		_, err = e.v.Lookup(e.ctx, e.req(), f, "x")
		e.fails(err, volume.ErrNotDir)
	})
}

func testRemove(e *env) {
	e.sub("all", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		d := e.mkdir(dir, "d", 0o755)
		inner := e.file(d, "inner", 0o644)
		try := func(where volume.Handle, name string, want error) {
			e.Helper()
			_, err := e.v.Remove(e.ctx, e.req(), where, name)
			e.fails(err, want)
		}
		try(dir, "none", volume.ErrNotExist)
		try(dir, "d", volume.ErrNotEmpty)
		try(f, "x", volume.ErrNotDir)
		before := e.attr(dir)
		c, err := e.v.Remove(e.ctx, e.req(), dir, "f")
		e.ok(err)
		after := e.attr(dir)
		if c.Before != before.Change || c.After != after.Change || c.After <= c.Before || after.Nlink != 3 {
			e.Errorf("removed %+v, directory before %+v, after %+v", c, before, after)
		}
		e.gone(dir, "f")
		try(dir, "f", volume.ErrNotExist)
		e.remove(d, "inner")
		e.remove(dir, "d")
		if n := e.attr(dir).Nlink; n != 2 {
			e.Errorf("an empty directory has %d links", n)
		}
		for _, h := range []volume.Handle{f, d, inner} {
			_, err := e.v.GetAttr(e.ctx, e.req(), h)
			e.fails(err, volume.ErrStale)
		}
		if again := e.file(dir, "f", 0o644); again == f || again.Ino == f.Ino {
			e.Errorf("inode number %d was used again", f.Ino)
		}
	})
}

func testLink(e *env) {
	e.sub("all", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		d := e.mkdir(dir, "d", 0o755)
		e.write(f, 0, "data")
		change := e.attr(f).Change
		before := e.attr(d).Change
		c, err := e.v.Link(e.ctx, e.req(), f, d, "g")
		e.ok(err)
		if c.Attr.Handle != f || c.Attr.Nlink != 2 || !c.New || c.Dir.Before != before || c.Dir.After <= before || c.Attr.Change <= change {
			e.Errorf("linked %+v", c)
		}
		if got := e.lookup(d, "g"); exact(got) != exact(e.attr(f)) || got.Nlink != 2 {
			e.Errorf("the new name leads to %+v", got)
		}
		try := func(h, where volume.Handle, name string, want error) {
			e.Helper()
			_, err := e.v.Link(e.ctx, e.req(), h, where, name)
			e.fails(err, want)
		}
		try(f, d, "g", volume.ErrExist)
		try(d, dir, "h", volume.ErrIsDir)
		try(f, f, "h", volume.ErrNotDir)
		e.remove(dir, "f")
		if a := e.attr(f); a.Nlink != 1 || e.content(f) != "data" {
			e.Errorf("after removing one of two names: %+v", a)
		}
		link := e.create(dir, "s", linkArgs("f")).Handle
		if _, err := e.v.Link(e.ctx, e.req(), link, dir, "s2"); err != nil || e.attr(link).Nlink != 2 {
			e.Errorf("link to a symbolic link: %v", err)
		}
		e.remove(d, "g")
		try(f, dir, "h", volume.ErrStale)
	})
}

func testSymlink(e *env) {
	e.sub("all", func(e *env, dir volume.Handle) {
		for i, target := range []string{"x", "/absolute/path", "../..", "with space",
			strings.Repeat("p/", volume.MaxTarget/2) + "p", "\xff"} {
			name := string(rune('a' + i))
			a := e.create(dir, name, linkArgs(target))
			got, err := e.v.ReadLink(e.ctx, e.req(), a.Handle)
			e.ok(err)
			if got != target || a.Size != uint64(len(target)) {
				e.Errorf("target is %q, size %d, want %q", got, a.Size, target)
			}
		}
		for _, h := range []volume.Handle{dir, e.file(dir, "file", 0o644)} {
			_, err := e.v.ReadLink(e.ctx, e.req(), h)
			e.fails(err, volume.ErrInvalid)
		}
		link := e.lookup(dir, "a").Handle
		_, _, err := e.v.Read(e.ctx, e.req(), link, 0, make([]byte, 1))
		e.fails(err, volume.ErrInvalid)
		_, err = e.v.Lookup(e.ctx, e.req(), link, "x")
		e.fails(err, volume.ErrNotDir)
	})
}
