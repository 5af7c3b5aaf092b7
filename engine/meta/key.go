// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"encoding/binary"
	"fmt"
)

// Table is the letter that a key begins with.
type Table byte

// The tables, as the package comment lists them.
const (
	Accountings Table = 'a'
	Packs       Table = 'b'
	Cookies     Table = 'c'
	Dead        Table = 'd'
	Extents     Table = 'e'
	PackIndexes Table = 'f'
	Segments    Table = 'g'
	Histories   Table = 'h'
	Inodes      Table = 'i'
	Checkpoints Table = 'k'
	Named       Table = 'l'
	Moved       Table = 'm'
	Names       Table = 'n'
	Results     Table = 'o'
	Applied     Table = 'p'
	Waste       Table = 'w'
	Slots       Table = 'q'
	Targets     Table = 's'
	Snapshots   Table = 't'
	Orphans     Table = 'u'
	Versions    Table = 'v'
	Xattrs      Table = 'x'
	Condemned   Table = 'z'
)

var tableNames = map[Table]string{
	Accountings: "accounting", Cookies: "entry by cookie", Checkpoints: "checkpoint", Condemned: "condemned segment",
	Dead: "dead content", Extents: "extent", PackIndexes: "index of a pack", Packs: "pack", Moved: "moved segment",
	Histories: "history", Inodes: "inode", Named: "snapshot by name", Names: "entry by name", Results: "result",
	Applied: "applied position", Slots: "slot", Targets: "link target", Snapshots: "snapshot", Orphans: "orphan",
	Segments: "segment", Versions: "versions", Waste: "entry of the trash", Xattrs: "extended attribute",
}

func (t Table) String() string {
	if s := tableNames[t]; s != "" {
		return s
	}
	return fmt.Sprintf("table %q", byte(t))
}

// generation ends every key but those of the history (protocol-12).
const generation = uint32(0)

const generationSize = 4

func key(t Table, size int) []byte {
	return append(make([]byte, 0, 1+size+generationSize), byte(t))
}

func finish(k []byte) []byte { return binary.BigEndian.AppendUint32(k, generation) }

func number(k []byte, n uint64) []byte { return binary.BigEndian.AppendUint64(k, n) }

// AccountingKey is the key of the volume's accounting.
func AccountingKey() []byte { return finish(key(Accountings, 0)) }

// AppliedKey is the key of the applied position.
func AppliedKey() []byte { return finish(key(Applied, 0)) }

// InodeKey is the key of an inode.
func InodeKey(ino uint64) []byte { return AppendInodeKey(key(Inodes, 8)[:0], ino) }

// AppendInodeKey appends an InodeKey to b.
func AppendInodeKey(b []byte, ino uint64) []byte { return finish(number(append(b, byte(Inodes)), ino)) }

// TargetKey is the key of a symbolic link's target.
func TargetKey(ino uint64) []byte { return finish(number(key(Targets, 8), ino)) }

// OrphanKey is the key of an orphan.
func OrphanKey(ino uint64) []byte { return finish(number(key(Orphans, 8), ino)) }

// OrphanRange is the range of all orphans from inode ino on.
func OrphanRange(ino uint64) (lo, hi []byte) {
	return number(key(Orphans, 8), ino), []byte{byte(Orphans) + 1}
}

// WasteKey is the key of what the record with a number put into the trash.
func WasteKey(n uint64) []byte { return finish(number(key(Waste, 8), n)) }

// WasteRange is the range of all that records from a number on put into the trash.
func WasteRange(from uint64) (lo, hi []byte) {
	return number(key(Waste, 8), from), []byte{byte(Waste) + 1}
}

// NameKey is the key of a directory entry by name.
func NameKey(dir uint64, name string) []byte { return named(Names, dir, name) }

// AppendNameKey appends a NameKey to b.
func AppendNameKey(b []byte, dir uint64, name string) []byte {
	return finish(append(append(number(append(b, byte(Names)), dir), name...), 0))
}

// XattrKey is the key of an extended attribute.
func XattrKey(ino uint64, name string) []byte { return named(Xattrs, ino, name) }

func named(t Table, ino uint64, name string) []byte {
	k := append(number(key(t, 9+len(name)), ino), name...)
	return finish(append(k, 0))
}

// NameRange is the range of a directory's entries by name.
func NameRange(dir uint64) (lo, hi []byte) { return inodeRange(Names, dir) }

// XattrRange is the range of an inode's extended attributes, sorted by name.
func XattrRange(ino uint64) (lo, hi []byte) { return inodeRange(Xattrs, ino) }

// XattrName returns the name in an XattrKey.
func XattrName(k []byte) string { return string(k[9 : len(k)-generationSize-1]) }

// CookieKey is the key of a directory entry by cookie.
func CookieKey(dir, cookie uint64) []byte {
	return finish(number(number(key(Cookies, 16), dir), cookie))
}

// CookieRange is the range of a directory's entries with cookies of at least from.
func CookieRange(dir, from uint64) (lo, hi []byte) {
	_, hi = inodeRange(Cookies, dir)
	return number(number(key(Cookies, 16), dir), from), hi
}

// ExtentKey is the key of an extent of a content that begins at byte off of the file.
func ExtentKey(content, off uint64) []byte {
	return finish(number(number(key(Extents, 16), content), off))
}

// ExtentRange is the range of a content's extents that begin in [off, end).
func ExtentRange(content, off, end uint64) (lo, hi []byte) {
	return number(number(key(Extents, 16), content), off), number(number(key(Extents, 16), content), end)
}

// AllExtents is the range of all extents of a content.
func AllExtents(content uint64) (lo, hi []byte) { return inodeRange(Extents, content) }

// fits reports whether a key has the form of its table's.
func fits(k []byte) bool {
	return formed(k) && (Table(k[0]) == Histories || binary.BigEndian.Uint32(k[len(k)-generationSize:]) == generation)
}

// formed reports whether a key has the form of its table's, up to its generation.
func formed(k []byte) bool {
	n := len(k) - 1 - generationSize
	if n < 0 {
		return false
	}
	switch Table(k[0]) {
	case Accountings, Applied, Versions:
		return n == 0
	case Snapshots:
		return n == 4
	case Checkpoints:
		return n == 1
	case Condemned, Dead, Inodes, Moved, Orphans, PackIndexes, Packs, Segments, Targets, Waste:
		return n == 8
	case Cookies, Extents:
		return n == 16
	case Names, Xattrs:
		return n >= 9 && k[n] == 0
	case Named:
		return n >= 1 && k[n] == 0
	case Slots:
		return n >= 2
	case Results:
		return n >= 6
	case Histories:
		return versioned(Table(k[1])) && formed(k[1:])
	}
	return false
}

// first returns the first number of a key.
func first(k []byte) uint64 { return binary.BigEndian.Uint64(k[1:9]) }

// Of returns the number of what a key is for, in the tables whose keys begin with one.
func Of(k []byte) uint64 { return first(k) }

// second returns the second number of a key that has two.
func second(k []byte) uint64 { return binary.BigEndian.Uint64(k[9:17]) }

// inodeRange is the range of everything in t that belongs to ino, which is the first number of its
// keys.
func inodeRange(t Table, ino uint64) (lo, hi []byte) {
	lo = number(key(t, 8), ino)
	if ino == ^uint64(0) {
		return lo, []byte{byte(t) + 1}
	}
	return lo, number(key(t, 8), ino+1)
}

// SlotKey is the key of a slot's newest sequence number.
func SlotKey(slot string) []byte { return finish(append(escaped(Slots, slot), 0, 1)) }

// ResultKey is the key of the result of the change with the given index in its request.
func ResultKey(slot string, index uint32) []byte {
	k := append(escaped(Results, slot), 0, 1)
	return finish(binary.BigEndian.AppendUint32(k, index))
}

// SlotRange is the range of all slots that begin with prefix.
func SlotRange(prefix string) (lo, hi []byte) { return prefixRange(escaped(Slots, prefix)) }

// ResultRange is the range of the results of all slots that begin with prefix.
func ResultRange(prefix string) (lo, hi []byte) { return prefixRange(escaped(Results, prefix)) }

func escaped(t Table, slot string) []byte {
	k := key(t, len(slot)+8)
	for i := range len(slot) {
		if k = append(k, slot[i]); slot[i] == 0 {
			k = append(k, 0xff)
		}
	}
	return k
}

// prefixRange returns the range of the keys that begin with p. p must not consist of 0xff only.
func prefixRange(p []byte) (lo, hi []byte) {
	hi = append([]byte(nil), p...)
	for hi[len(hi)-1] == 0xff {
		hi = hi[:len(hi)-1]
	}
	hi[len(hi)-1]++
	return p, hi
}
