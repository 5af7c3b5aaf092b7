// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"encoding/binary"
	"time"

	"github.com/weir-storage/weir/volume"
)

// Inode is the value of an inode. Its body is
//
//	generation u64, type u8, flags u8, mode u32, nlink u32, uid u32, gid u32,
//	rdev u64, size u64, used u64, change u64, xattrs u64,
//	atime, mtime, ctime, btime (each: seconds u64, nanoseconds u32),
//	parent inode u64, parent generation u64, entries u64 (directories only),
//	verifier 8 bytes (flag 1 only), content u64 (flag 2 only), trash u64 (flag 4 only);
//	flag 8: it was made for the trash
type Inode struct {
	volume.Attr

	Xattrs  uint64        // number of extended attributes
	Parent  volume.Handle // of a directory
	Entries uint64        // number of names in a directory

	Exclusive bool // made by an exclusive create, with Verf
	Verf      [8]byte

	Content uint64 // which extents are the file's; 0: those of the number Ino

	// Trash is the number of the directory that has what was removed from this one; 0: there is
	// none. No entry leads to it.
	Trash uint64
	// Wasted, of a directory: it was made for the trash, or moved there. It still is there if it,
	// or a directory above it, is the Trash of its parent, and all on the way there are Wasted.
	Wasted bool
}

const (
	flagExclusive = 1
	flagContent   = 2
	flagTrash     = 4
	flagWasted    = 8
	inodeSize     = 166
)

// ContentID returns the content that has n's extents.
func (n *Inode) ContentID() uint64 {
	if n.Content != 0 {
		return n.Content
	}
	return n.Ino
}

// Encode returns the key and the value of n.
func (n *Inode) Encode() (key, value []byte) {
	key = InodeKey(n.Ino)
	b := begin(inodeSize)
	b = binary.BigEndian.AppendUint64(b, n.Gen)
	var flags uint8
	if n.Exclusive {
		flags |= flagExclusive
	}
	if n.Content != 0 {
		flags |= flagContent
	}
	if n.Trash != 0 {
		flags |= flagTrash
	}
	if n.Wasted {
		flags |= flagWasted
	}
	b = append(b, uint8(n.Type), flags)
	for _, v := range []uint32{n.Mode, n.Nlink, n.UID, n.GID} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	for _, v := range []uint64{n.Rdev, n.Size, n.Used, n.Change, n.Xattrs} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	for _, t := range []time.Time{n.Atime, n.Mtime, n.Ctime, n.Btime} {
		b = appendTime(b, t)
	}
	if n.Type == volume.Directory {
		for _, v := range []uint64{n.Parent.Ino, n.Parent.Gen, n.Entries} {
			b = binary.BigEndian.AppendUint64(b, v)
		}
	}
	if n.Exclusive {
		b = append(b, n.Verf[:]...)
	}
	if n.Content != 0 {
		b = binary.BigEndian.AppendUint64(b, n.Content)
	}
	if n.Trash != 0 {
		b = binary.BigEndian.AppendUint64(b, n.Trash)
	}
	return key, seal(key, b)
}

// DecodeInode parses the value of an InodeKey.
func DecodeInode(key, value []byte) (*Inode, error) {
	r, err := open(key, value)
	if err != nil {
		return nil, err
	}
	n := new(Inode)
	n.Ino = binary.BigEndian.Uint64(key[1:9])
	n.Gen = r.u64()
	n.Type = volume.Type(r.u8())
	flags := r.u8()
	for _, v := range []*uint32{&n.Mode, &n.Nlink, &n.UID, &n.GID} {
		*v = r.u32()
	}
	for _, v := range []*uint64{&n.Rdev, &n.Size, &n.Used, &n.Change, &n.Xattrs} {
		*v = r.u64()
	}
	for _, t := range []*time.Time{&n.Atime, &n.Mtime, &n.Ctime, &n.Btime} {
		*t = r.time()
	}
	if n.Type == volume.Directory {
		for _, v := range []*uint64{&n.Parent.Ino, &n.Parent.Gen, &n.Entries} {
			*v = r.u64()
		}
	}
	if n.Exclusive = flags&flagExclusive != 0; n.Exclusive {
		copy(n.Verf[:], r.take(8))
	}
	if flags&flagContent != 0 {
		n.Content = r.u64()
	}
	if flags&flagTrash != 0 {
		n.Trash = r.u64()
	}
	n.Wasted = flags&flagWasted != 0
	known := flags&^(flagExclusive|flagContent|flagTrash|flagWasted) == 0 && (flags&flagContent != 0) == (n.Content != 0) &&
		(flags&flagTrash != 0) == (n.Trash != 0) && (n.Type == volume.Directory || n.Trash == 0 && !n.Wasted)
	if n.Type < volume.Regular || n.Type > volume.Socket || !known {
		return nil, corrupt(key, "type %d, flags %#x", n.Type, flags)
	}
	return n, r.done()
}
