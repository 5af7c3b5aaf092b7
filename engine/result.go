// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/weir-storage/weir/volume"
)

// codec is the encoding of one kind of result in records. It is a byte for the kind, then the
// fields, big endian, in the order of the struct. Times are seconds u64 and nanoseconds u32. Kinds
// and layouts are part of the format.
type codec[T any] struct {
	kind byte
	put  func(b []byte, v T) []byte
	get  func(d *decoder) T
}

// errResult is a recorded result that does not parse.
var errResult = errors.New("recorded result does not parse")

func (c codec[T]) encode(v T) []byte { return c.put(append(make([]byte, 0, 192), c.kind), v) }

// decode parses a result. A result of another kind is ErrInvalid: the client used one name for two
// changes.
func (c codec[T]) decode(b []byte) (v T, err error) {
	if len(b) == 0 {
		return v, errResult
	}
	if b[0] != c.kind {
		return v, volume.ErrInvalid
	}
	d := &decoder{left: b[1:]}
	if v = c.get(d); d.short || len(d.left) > 0 {
		return v, errResult
	}
	return v, nil
}

// The kinds of results. DirChange is that of Remove and of extended attributes.
var (
	noResult = codec[struct{}]{1,
		func(b []byte, _ struct{}) []byte { return b },
		func(*decoder) struct{} { return struct{}{} }}
	attrResult    = codec[volume.Attr]{2, putAttr, getAttr}
	dirResult     = codec[volume.DirChange]{3, putDir, getDir}
	createdResult = codec[volume.Created]{4, putCreated, getCreated}
	writtenResult = codec[volume.Written]{6, putWritten, getWritten}
	renamedResult = codec[renamed]{5,
		func(b []byte, r renamed) []byte { return putDir(putDir(b, r.src), r.dst) },
		func(d *decoder) renamed { return renamed{src: getDir(d), dst: getDir(d)} }}
)

var countResult = codec[int]{8,
	func(b []byte, n int) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) },
	func(d *decoder) int { return int(d.u64()) }}

var snapshotResult = codec[volume.Snapshot]{7,
	func(b []byte, s volume.Snapshot) []byte {
		b = binary.BigEndian.AppendUint32(b, s.Snap)
		b = binary.BigEndian.AppendUint64(b, uint64(s.Time.Unix()))
		b = binary.BigEndian.AppendUint32(b, uint32(s.Time.Nanosecond()))
		b = binary.BigEndian.AppendUint64(b, s.Bytes)
		return append(binary.BigEndian.AppendUint64(b, s.Inodes), s.Name...)
	},
	func(d *decoder) volume.Snapshot {
		s := volume.Snapshot{Snap: d.u32()}
		sec := d.u64()
		s.Time = time.Unix(int64(sec), int64(d.u32())).UTC()
		s.Bytes, s.Inodes = d.u64(), d.u64()
		s.Name = string(d.take(len(d.left)))
		return s
	}}

// renamed is the result of Rename.
type renamed struct{ src, dst volume.DirChange }

func putDir(b []byte, c volume.DirChange) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, c.Before), c.After)
}

func getDir(d *decoder) volume.DirChange { return volume.DirChange{Before: d.u64(), After: d.u64()} }

func putCreated(b []byte, c volume.Created) []byte {
	var isNew byte
	if c.New {
		isNew = 1
	}
	return putDir(append(putAttr(b, c.Attr), isNew), c.Dir)
}

func getCreated(d *decoder) volume.Created {
	return volume.Created{Attr: getAttr(d), New: d.take(1)[0] == 1, Dir: getDir(d)}
}

func putWritten(b []byte, w volume.Written) []byte {
	return append(putAttr(b, w.Attr), w.Verifier[:]...)
}

func getWritten(d *decoder) volume.Written {
	w := volume.Written{Attr: getAttr(d)}
	copy(w.Verifier[:], d.take(len(w.Verifier)))
	return w
}

func putAttr(b []byte, a volume.Attr) []byte {
	b = binary.BigEndian.AppendUint64(b, a.Ino)
	b = binary.BigEndian.AppendUint64(b, a.Gen)
	b = append(b, byte(a.Type))
	for _, v := range []uint32{a.Mode, a.Nlink, a.UID, a.GID} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	for _, v := range []uint64{a.Rdev, a.Size, a.Used} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	for _, t := range []time.Time{a.Atime, a.Mtime, a.Ctime, a.Btime} {
		b = binary.BigEndian.AppendUint64(b, uint64(t.Unix()))
		b = binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond()))
	}
	return binary.BigEndian.AppendUint64(b, a.Change)
}

func getAttr(d *decoder) volume.Attr {
	var a volume.Attr
	a.Ino, a.Gen = d.u64(), d.u64()
	a.Type = volume.Type(d.take(1)[0])
	for _, v := range []*uint32{&a.Mode, &a.Nlink, &a.UID, &a.GID} {
		*v = d.u32()
	}
	for _, v := range []*uint64{&a.Rdev, &a.Size, &a.Used} {
		*v = d.u64()
	}
	for _, t := range []*time.Time{&a.Atime, &a.Mtime, &a.Ctime, &a.Btime} {
		sec := d.u64()
		*t = time.Unix(int64(sec), int64(d.u32())).UTC()
	}
	a.Change = d.u64()
	return a
}

// decoder takes fields from a result. short is set when there were too few bytes.
type decoder struct {
	left  []byte
	short bool
}

func (d *decoder) take(n int) []byte {
	if len(d.left) < n {
		d.short, d.left = true, nil
		return make([]byte, n)
	}
	b := d.left[:n]
	d.left = d.left[n:]
	return b
}

func (d *decoder) u32() uint32 { return binary.BigEndian.Uint32(d.take(4)) }
func (d *decoder) u64() uint64 { return binary.BigEndian.Uint64(d.take(8)) }
