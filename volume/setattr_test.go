// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"testing"
	"time"
)

func TestSetAttr(t *testing.T) {
	p := func(n uint32) *uint32 { return &n }
	size := func(n uint64) *uint64 { return &n }
	past, zero := time.Unix(5, 0), time.Time{}
	now := time.Unix(1000, 0)
	for _, tc := range []struct {
		name string
		a    Attr
		c    Caller
		set  SetAttr
		err  error
		mode uint32 // afterwards
	}{
		{"owner chmod", attrOf(Regular, 0), testOwner, SetAttr{Mode: p(0o640)}, nil, 0o640},
		{"member chmod", attrOf(Regular, 0o777), testGroup, SetAttr{Mode: p(0o640)}, ErrPerm, 0o777},
		{"set-gid outside the group", attrOf(Regular, 0), testOwner, SetAttr{Mode: p(0o2755)}, nil, 0o755},
		{"set-gid by root", attrOf(Regular, 0), testRoot, SetAttr{Mode: p(0o2755)}, nil, 0o2755},
		{"bad mode", attrOf(Regular, 0o1), testRoot, SetAttr{Mode: p(0o10000)}, ErrInvalid, 0o1},
		{"chown clears", attrOf(Regular, 0o6755), testRoot, SetAttr{UID: p(1)}, nil, 0o755},
		{"chown of a directory keeps", attrOf(Directory, 0o6755), testRoot, SetAttr{UID: p(1)}, nil, 0o6755},
		{"chown and chmod", attrOf(Regular, 0), testRoot, SetAttr{UID: p(1), Mode: p(0o4755)}, nil, 0o755},
		{"chown by its owner", attrOf(Regular, 0o644), testOwner, SetAttr{UID: p(1)}, ErrPerm, 0o644},
		{"chown to the same", attrOf(Regular, 0o644), testOwner, SetAttr{UID: p(10)}, nil, 0o644},
		{"chgrp to the same", attrOf(Regular, 0o644), testOwner, SetAttr{GID: p(20)}, nil, 0o644},
		{"chgrp to a foreign group", attrOf(Regular, 0o644), testOwner, SetAttr{GID: p(33)}, ErrPerm, 0o644},
		{"truncate clears", attrOf(Regular, 0o6777), testOther, SetAttr{Size: size(0)}, nil, 0o777},
		{"truncate by root keeps", attrOf(Regular, 0o6777), testRoot, SetAttr{Size: size(0)}, nil, 0o6777},
		{"truncate without permission", attrOf(Regular, 0o644), testOther, SetAttr{Size: size(0)}, ErrAccess, 0o644},
		{"size of a directory", attrOf(Directory, 0o644), testRoot, SetAttr{Size: size(0)}, ErrIsDir, 0o644},
		{"size of a socket", attrOf(Socket, 0o644), testRoot, SetAttr{Size: size(0)}, ErrInvalid, 0o644},
		{"too big", attrOf(Regular, 0o644), testRoot, SetAttr{Size: size(MaxSize + 1)}, ErrTooBig, 0o644},
		{"touch by a writer", attrOf(Regular, 0o666), testOther, SetAttr{Mtime: &zero}, nil, 0o666},
		{"touch by a reader", attrOf(Regular, 0o644), testOther, SetAttr{Mtime: &zero}, ErrAccess, 0o644},
		{"times by a writer", attrOf(Regular, 0o666), testOther, SetAttr{Mtime: &past}, ErrPerm, 0o666},
		{"now and then by a writer", attrOf(Regular, 0o666), testOther, SetAttr{Atime: &zero, Mtime: &past}, ErrPerm, 0o666},
	} {
		a := tc.a
		err := CheckSetAttr(a, tc.c, tc.set)
		if err == nil {
			ApplySetAttr(&a, tc.c, tc.set, now)
		}
		if err != tc.err || a.Mode != tc.mode {
			t.Errorf("%s: %v, mode %#o; want %v, mode %#o", tc.name, err, a.Mode, tc.err, tc.mode)
		}
		if err == nil && !a.Ctime.Equal(now) {
			t.Errorf("%s: ctime is %v", tc.name, a.Ctime)
		}
	}
}

func TestApplySetAttrTimes(t *testing.T) {
	old, now, given := time.Unix(1, 0), time.Unix(1000, 0), time.Unix(5, 6)
	size := uint64(3)
	for _, tc := range []struct {
		name                string
		set                 SetAttr
		atime, mtime, ctime time.Time
	}{
		{"nothing", SetAttr{}, old, old, old},
		{"size", SetAttr{Size: &size}, old, now, now},
		{"size and mtime", SetAttr{Size: &size, Mtime: &given}, old, given, now},
		{"atime now", SetAttr{Atime: &time.Time{}}, now, old, now},
	} {
		a := Attr{Type: Regular, Atime: old, Mtime: old, Ctime: old}
		ApplySetAttr(&a, Caller{}, tc.set, now)
		if !a.Atime.Equal(tc.atime) || !a.Mtime.Equal(tc.mtime) || !a.Ctime.Equal(tc.ctime) {
			t.Errorf("%s: atime %v, mtime %v, ctime %v", tc.name, a.Atime, a.Mtime, a.Ctime)
		}
	}
}
