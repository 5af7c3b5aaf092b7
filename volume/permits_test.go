// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var (
	testRoot  = Caller{}
	testOwner = Caller{UID: 10, GID: 10}
	testGroup = Caller{UID: 11, GID: 11, Groups: []uint32{5, 20}}
	testOther = Caller{UID: 12, GID: 12}
)

func attrOf(t Type, mode uint32) Attr { return Attr{Type: t, Mode: mode, UID: 10, GID: 20, Nlink: 1} }

func TestPermits(t *testing.T) {
	for _, tc := range []struct {
		typ  Type
		mode uint32
		c    Caller
		want Access
		ok   bool
	}{
		{Regular, 0o400, testOwner, Read, true},
		{Regular, 0o400, testOwner, Write, false},
		{Regular, 0o200, testOwner, Write, true},
		{Regular, 0o100, testOwner, Exec, true},
		{Regular, 0o077, testOwner, Read, false}, // the owner's class alone counts
		{Regular, 0o040, testGroup, Read, true},
		{Regular, 0o707, testGroup, Read, false},
		{Regular, 0o004, testOther, Read, true},
		{Regular, 0o770, testOther, Read, false},
		{Regular, 0o600, testOwner, Read | Write, true},
		{Regular, 0o600, testOwner, Read | Exec, false},
		{Regular, 0o000, testOther, 0, true},
		{Regular, 0o000, testRoot, Read | Write, true},
		{Regular, 0o666, testRoot, Exec, false},
		{Regular, 0o001, testRoot, Exec, true},
		{Directory, 0o000, testRoot, Read | Write | Exec, true},
		{Regular, 0o7000, testOther, Read, false},
	} {
		if got := Permits(attrOf(tc.typ, tc.mode), tc.c, tc.want); got != tc.ok {
			t.Errorf("Permits(%#o, user %d, %b) = %v", tc.mode, tc.c.UID, tc.want, got)
		}
	}
}

func TestPermitsIO(t *testing.T) {
	for _, tc := range []struct {
		mode        uint32
		c           Caller
		read, write bool
	}{
		{0o000, testOwner, true, true},
		{0o000, testRoot, true, true},
		{0o040, testGroup, true, false},
		{0o010, testGroup, true, false},
		{0o020, testGroup, false, true},
		{0o770, testOther, false, false},
	} {
		a := attrOf(Regular, tc.mode)
		if r, w := PermitsIO(a, tc.c, false), PermitsIO(a, tc.c, true); r != tc.read || w != tc.write {
			t.Errorf("PermitsIO(%#o, user %d): read %v, write %v", tc.mode, tc.c.UID, r, w)
		}
	}
}

func TestMayDelete(t *testing.T) {
	mine := Attr{Type: Regular, UID: 12}
	theirs := Attr{Type: Regular, UID: 99}
	for _, tc := range []struct {
		mode   uint32
		target Attr
		c      Caller
		want   error
	}{
		{0o777, theirs, testOther, nil},
		{0o775, mine, testOther, ErrAccess},
		{0o772, mine, testOther, ErrAccess},
		{0o1777, mine, testOther, nil},
		{0o1777, theirs, testOther, ErrPerm},
		{0o1777, theirs, testOwner, nil}, // owns the directory
		{0o1777, theirs, testRoot, nil},
	} {
		if got := MayDelete(attrOf(Directory, tc.mode), tc.target, tc.c); got != tc.want {
			t.Errorf("MayDelete(%#o, owner %d, user %d) = %v, want %v", tc.mode, tc.target.UID, tc.c.UID, got, tc.want)
		}
	}
}

func TestCheckNames(t *testing.T) {
	for _, tc := range []struct {
		name              string
		look, entry, attr error
	}{
		{"a", nil, nil, nil},
		{".", nil, ErrInvalid, nil},
		{"..", nil, ErrInvalid, nil},
		{"", ErrInvalid, ErrInvalid, ErrInvalid},
		{"a/b", ErrInvalid, ErrInvalid, nil},
		{"a\x00", ErrInvalid, ErrInvalid, ErrInvalid},
		{"\xff", nil, nil, nil},
		{strings.Repeat("x", 255), nil, nil, nil},
		{strings.Repeat("x", 256), ErrNameTooLong, ErrNameTooLong, ErrNameTooLong},
	} {
		if l, e, a := CheckName(tc.name), CheckEntryName(tc.name), CheckXattrName(tc.name); l != tc.look || e != tc.entry || a != tc.attr {
			t.Errorf("%.20q: CheckName %v, CheckEntryName %v, CheckXattrName %v", tc.name, l, e, a)
		}
	}
}

func TestCheckRename(t *testing.T) {
	dir := Attr{Handle: Handle{Ino: 2}, Type: Directory, Mode: 0o777}
	closed := Attr{Handle: Handle{Ino: 3}, Type: Directory, Mode: 0o755}
	file, sub := attrOf(Regular, 0o644), attrOf(Directory, 0o755)
	for _, tc := range []struct {
		name     string
		from     Attr
		src      Attr
		to       Attr
		dst      *Attr
		c        Caller
		want     error
		wantRoot error
	}{
		{"new name", dir, file, dir, nil, testOther, nil, nil},
		{"closed source", closed, file, dir, nil, testOther, ErrAccess, nil},
		{"closed target", dir, file, closed, nil, testOther, ErrAccess, nil},
		{"closed target with a file", dir, file, closed, &sub, testOther, ErrAccess, ErrIsDir},
		{"file over directory", dir, file, dir, &sub, testOther, ErrIsDir, ErrIsDir},
		{"directory over file", dir, sub, dir, &file, testOther, ErrNotDir, ErrNotDir},
		{"directory, same parent", dir, sub, dir, nil, testOther, nil, nil},
		{"directory, other parent", dir, sub, Attr{Handle: Handle{Ino: 4}, Type: Directory, Mode: 0o777}, nil, testOther, ErrAccess, nil},
	} {
		if got := CheckRename(tc.from, tc.src, tc.to, tc.dst, tc.c); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		if got := CheckRename(tc.from, tc.src, tc.to, tc.dst, testRoot); got != tc.wantRoot {
			t.Errorf("%s as root: %v, want %v", tc.name, got, tc.wantRoot)
		}
	}
}

func TestNewAttr(t *testing.T) {
	now := time.Unix(1000, 5)
	p := func(n uint32) *uint32 { return &n }
	plain, setgid := attrOf(Directory, 0o777), attrOf(Directory, 0o2777)
	for _, tc := range []struct {
		name string
		dir  Attr
		c    Caller
		args CreateArgs
		want Attr // type, mode, links, owner
		err  error
	}{
		{"file", plain, testOther, CreateArgs{Type: Regular, Attr: SetAttr{Mode: p(0o4755)}},
			Attr{Mode: 0o4755, Nlink: 1, UID: 12, GID: 12}, nil},
		{"set-gid inherited", setgid, testOther, CreateArgs{Type: Directory, Attr: SetAttr{Mode: p(0o755)}},
			Attr{Mode: 0o2755, Nlink: 2, UID: 12, GID: 20}, nil},
		{"set-gid of a foreign group", setgid, testOther, CreateArgs{Type: Regular, Attr: SetAttr{Mode: p(0o2755)}},
			Attr{Mode: 0o755, Nlink: 1, UID: 12, GID: 20}, nil},
		{"own set-gid", setgid, testGroup, CreateArgs{Type: Regular, Attr: SetAttr{Mode: p(0o2755)}},
			Attr{Mode: 0o2755, Nlink: 1, UID: 11, GID: 20}, nil},
		{"another owner", plain, testOther, CreateArgs{Type: Regular, Attr: SetAttr{UID: p(1)}}, Attr{}, ErrPerm},
		{"another group", plain, testOther, CreateArgs{Type: Regular, Attr: SetAttr{GID: p(1)}}, Attr{}, ErrPerm},
		{"device", plain, testOther, CreateArgs{Type: Block}, Attr{}, ErrPerm},
		{"root's device", plain, testRoot, CreateArgs{Type: Block, Rdev: 7}, Attr{Nlink: 1, Rdev: 7}, nil},
		{"link", plain, testOther, CreateArgs{Type: Symlink, Target: "abc"}, Attr{Mode: 0o777, Nlink: 1, UID: 12, GID: 12, Size: 3}, nil},
	} {
		got, err := NewAttr(tc.dir, tc.c, tc.args, now)
		if err != tc.err {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.err)
			continue
		}
		if err == nil {
			tc.want.Type = tc.args.Type
			tc.want.Atime, tc.want.Mtime, tc.want.Ctime, tc.want.Btime = now, now, now, now
		}
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestErrorsSayWhatAndWrap(t *testing.T) {
	err := error(&Error{Op: "lookup", Ino: 7, Name: "a b", Err: ErrNotExist})
	if got, want := err.Error(), `lookup inode 7 name "a b": no such file or directory`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	conflict := error(&LockConflict{Held: Lock{Owner: LockOwner{"g", "o"}}})
	if !errors.Is(err, ErrNotExist) || !errors.Is(conflict, ErrLocked) || errors.Is(err, ErrExist) {
		t.Error("errors do not wrap their outcome")
	}
	if got, want := (ID{0x12, 15: 0xff}).String(), "12000000-0000-0000-0000-0000000000ff"; got != want {
		t.Errorf("ID is %q, want %q", got, want)
	}
}
