// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// sample is a value of one kind, with its decoding.
type sample struct {
	name       string
	key, value []byte
	want       any
	decode     func(key, value []byte) (any, error)
	loose      int // length of the end that has no checksum: a block reference
}

func samples() []sample {
	at := func(s int64) time.Time { return time.Unix(s, 5).UTC() }
	file := &Inode{Attr: volume.Attr{
		Handle: volume.Handle{Ino: 1<<40 | 7, Gen: 1}, Type: volume.Regular, Mode: 0o4755, Nlink: 3, UID: 1, GID: 2,
		Size: 1 << 50, Used: 1 << 30, Atime: at(-5), Mtime: at(1 << 40), Ctime: at(2), Btime: at(3), Change: 1<<40 | 9,
	}, Xattrs: 2, Exclusive: true, Verf: [8]byte{1, 2}}
	dir := &Inode{Attr: volume.Attr{Handle: volume.Root, Type: volume.Directory, Atime: at(1), Mtime: at(1), Ctime: at(1), Btime: at(1)},
		Parent: volume.Handle{Ino: 5, Gen: 6}, Entries: 9}
	x := Extent{Off: 3<<16 | 5, Len: 100, Skip: 7, Raw: 200, Ref: segment.BlockRef{Seq: 9, Off: 4096, Len: 150, Counter: 3}}
	named := Dirent{Name: "name \xff", Cookie: 77, Handle: file.Handle, Type: volume.Regular}
	byCookie := named
	byCookie.Type = 0
	var out []sample
	add := func(name string, key, value []byte, want any, decode func(k, v []byte) (any, error)) {
		out = append(out, sample{name: name, key: key, value: value, want: want, decode: decode})
	}
	pair := func(name string, want any, decode func(k, v []byte) (any, error), key, value []byte) {
		add(name, key, value, want, decode)
	}
	k, v := file.Encode()
	pair("inode", file, func(k, v []byte) (any, error) { return DecodeInode(k, v) }, k, v)
	k, v = dir.Encode()
	pair("directory", dir, func(k, v []byte) (any, error) { return DecodeInode(k, v) }, k, v)
	k, v = x.Encode(5)
	pair("extent", x, func(k, v []byte) (any, error) { return DecodeExtent(k, v) }, k, v)
	out[len(out)-1].loose = segment.BlockRefSize
	k, v = named.EncodeName(4)
	pair("name", named, func(k, v []byte) (any, error) { return DecodeName(k, v, named.Name) }, k, v)
	k, v = byCookie.EncodeCookie(4)
	pair("cookie", byCookie, func(k, v []byte) (any, error) { return DecodeCookie(k, v) }, k, v)
	k, v = Accounting{Bytes: 5, Inodes: 6}.Encode()
	pair("accounting", Accounting{Bytes: 5, Inodes: 6}, func(k, v []byte) (any, error) { return DecodeAccounting(k, v) }, k, v)
	state := State{Position: segment.Position{Seq: 1, Off: 2}, Epoch: 3}
	k, v = state.Encode()
	pair("state", state, func(k, v []byte) (any, error) { return DecodeState(k, v) }, k, v)
	k, v = EncodeOrphan(file.Handle)
	pair("orphan", file.Handle, func(k, v []byte) (any, error) { return DecodeOrphan(k, v) }, k, v)
	k = XattrKey(4, "user.a")
	pair("xattr", []byte("value"), func(k, v []byte) (any, error) { return DecodeBytes(k, v) }, k, EncodeBytes(k, []byte("value")))
	k = SlotKey("slot")
	pair("slot", uint32(8), func(k, v []byte) (any, error) { return DecodeSeq(k, v) }, k, EncodeSeq(k, 8))
	k = ResultKey("slot", 2)
	pair("result", []byte("told"), func(k, v []byte) (any, error) {
		seq, b, err := DecodeResult(k, v)
		if err == nil && seq != 8 {
			err = fmt.Errorf("sequence %d", seq)
		}
		return b, err
	}, k, EncodeResult(k, 8, []byte("told")))
	return out
}

func TestValues(t *testing.T) {
	for _, s := range samples() {
		got, err := s.decode(s.key, s.value)
		if err != nil || !reflect.DeepEqual(got, s.want) {
			t.Errorf("%s: decoded %+v, %v; want %+v", s.name, got, err, s.want)
		}
		if name := Table(s.key[0]).String(); name[:min(5, len(name))] == "table" {
			t.Errorf("%s: table %q has no name", s.name, s.key[0])
		}
	}
}

// TestDamagedValues flips each bit of each value, cuts it, and puts it under another key.
func TestDamagedValues(t *testing.T) {
	for _, s := range samples() {
		for bit := range (len(s.value) - s.loose) * 8 {
			v := bytes.Clone(s.value)
			v[bit/8] ^= 1 << (bit % 8)
			if got, err := s.decode(s.key, v); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s with bit %d flipped decodes as %+v, %v", s.name, bit, got, err)
			}
		}
		for n := range s.value {
			if got, err := s.decode(s.key, s.value[:n]); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s cut to %d bytes decodes as %+v, %v", s.name, n, got, err)
			}
		}
		k := bytes.Clone(s.key)
		k[len(k)-1] ^= 1
		if got, err := s.decode(k, s.value); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%s under another key decodes as %+v, %v", s.name, got, err)
		}
	}
}

// TestBadExtents checks values with a correct checksum and impossible content.
func TestBadExtents(t *testing.T) {
	ref := segment.BlockRef{Seq: 1, Off: 4096, Len: 100, Counter: 1}
	for name, x := range map[string]Extent{
		"empty":            {Off: 0, Len: 0, Raw: 10, Ref: ref},
		"beyond its block": {Off: 0, Len: 10, Skip: 1, Raw: 10, Ref: ref},
		"over a border":    {Off: 1<<16 - 5, Len: 10, Raw: 10, Ref: ref},
		"too big a block":  {Off: 0, Len: 10, Raw: 1<<16 + 1, Ref: ref},
		"overflow":         {Off: 0, Len: 1 << 31, Skip: 1 << 31, Raw: 10, Ref: ref},
		"no block":         {Off: 0, Len: 10, Raw: 10},
	} {
		k, v := x.Encode(1)
		if got, err := DecodeExtent(k, v); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: decodes as %+v, %v", name, got, err)
		}
	}
}

// TestKeyOrder checks that ranges contain exactly what belongs to them.
func TestKeyOrder(t *testing.T) {
	in := func(k []byte, lo, hi []byte) bool { return bytes.Compare(lo, k) <= 0 && bytes.Compare(k, hi) < 0 }
	slots := []string{"", "a", "a\x00", "a\x00\x00", "a\x00\x01", "ab", "a\xff", "\xff\xff", "b"}
	for _, prefix := range slots {
		for _, slot := range slots {
			want := len(slot) >= len(prefix) && slot[:len(prefix)] == prefix
			if lo, hi := SlotRange(prefix); in(SlotKey(slot), lo, hi) != want {
				t.Errorf("slot %q in the range of %q: %t", slot, prefix, !want)
			}
			if lo, hi := ResultRange(prefix); in(ResultKey(slot, 1<<31), lo, hi) != want {
				t.Errorf("result of slot %q in the range of %q: %t", slot, prefix, !want)
			}
		}
	}
	for _, ino := range []uint64{1, 2, 255, 256, 1<<64 - 2, 1<<64 - 1} {
		lo, hi := XattrRange(ino)
		if !in(XattrKey(ino, "a"), lo, hi) || in(XattrKey(ino-1, "\xff"), lo, hi) || in(XattrKey(ino+1, "a"), lo, hi) {
			t.Errorf("range of the attributes of inode %d is wrong", ino)
		}
		if lo, hi := ExtentRange(ino, 100, 200); !in(ExtentKey(ino, 100), lo, hi) || !in(ExtentKey(ino, 199), lo, hi) ||
			in(ExtentKey(ino, 99), lo, hi) || in(ExtentKey(ino, 200), lo, hi) {
			t.Errorf("range of extents of inode %d is wrong", ino)
		}
		if lo, hi := CookieRange(ino, 4); in(CookieKey(ino, 3), lo, hi) ||
			!in(CookieKey(ino, 4), lo, hi) || !in(CookieKey(ino, 1<<64-1), lo, hi) {
			t.Errorf("range of cookies of inode %d is wrong", ino)
		}
	}
	names := []string{"b", "a", "a\x01", "aa", "a\xff", "\x01"}
	slices.Sort(names)
	if !slices.IsSortedFunc(names, func(a, b string) int { return bytes.Compare(XattrKey(1, a), XattrKey(1, b)) }) {
		t.Error("attributes are not in the order of their names")
	}
	for _, n := range names {
		if got := XattrName(XattrKey(1, n)); got != n {
			t.Errorf("name in the key of %q is %q", n, got)
		}
	}
}

// TestKeysEndInAGeneration: each key ends in the generation of its snapshot, so that snapshots can
// come without a new format (protocol-12).
func TestKeysEndInAGeneration(t *testing.T) {
	for i, k := range [][]byte{AccountingKey(), AppliedKey(), InodeKey(1), TargetKey(1), OrphanKey(1), NameKey(1, "a"), XattrKey(1, "a"),
		CookieKey(1, 1<<64-1), ExtentKey(1, 1<<64-1), SlotKey("a"), ResultKey("a", 1<<32-1)} {
		if len(k) < 5 || binary.BigEndian.Uint32(k[len(k)-4:]) != generation {
			t.Errorf("key %d ends in %x", i, k)
		}
	}
}
