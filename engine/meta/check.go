// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/weir-storage/weir/volume"
)

// CheckPair returns an error that wraps ErrCorrupt unless k and value are exactly what this release
// writes: the key has its table's form, and the value parses and would be encoded to the same
// bytes. A VersionsOf of a newer level is a *NewerError.
func CheckPair(k, value []byte) error {
	if err := checkKey(k); err != nil {
		return err
	}
	again, err := recode(k, value)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, value) {
		return corrupt(k, "value parses, and would be written otherwise")
	}
	return nil
}

// sizes are the lengths of keys of a fixed length, without letter and generation.
var sizes = map[Table]int{
	Accountings: 0, Applied: 0, Versions: 0, Checkpoints: 1, Snapshots: 4, Dead: 8, Inodes: 8, Orphans: 8, Targets: 8,
	Condemned: 8, Segments: 8, Waste: 8, Packs: 8, PackIndexes: 8, Moved: 8, Cookies: 16, Extents: 16,
}

// checkKey returns an error unless k has the form of its table's keys.
func checkKey(k []byte) error {
	if len(k) < 1+generationSize {
		return corrupt(k, "key has %d bytes", len(k))
	}
	t, fields := Table(k[0]), k[1:len(k)-generationSize]
	if t == Histories {
		return checkHistoryKey(k, fields)
	}
	if binary.BigEndian.Uint32(k[len(k)-generationSize:]) != generation {
		return corrupt(k, "key of the present has a generation")
	}
	if size, ok := sizes[t]; ok {
		if len(fields) != size {
			return corrupt(k, "key has %d bytes", len(k))
		}
		return nil
	}
	var whole bool
	switch t {
	case Names, Xattrs:
		whole = len(fields) > 9 && bytes.IndexByte(fields[8:], 0) == len(fields)-9
	case Named:
		whole = bytes.IndexByte(fields, 0) == len(fields)-1
	case Slots:
		_, rest, ok := unescape(fields)
		whole = ok && len(rest) == 0
	case Results:
		_, rest, ok := unescape(fields)
		whole = ok && len(rest) == 4
	default:
		return corrupt(k, "no table has this letter")
	}
	if !whole {
		return corrupt(k, "fields of the key are missing or too many")
	}
	return nil
}

func checkHistoryKey(h, fields []byte) error {
	if len(fields) == 0 || !versioned(Table(fields[0])) {
		return corrupt(h, "history of a table that has none")
	}
	if err := checkKey(finish(bytes.Clone(fields))); err != nil {
		return corrupt(h, "%v", err)
	}
	if _, gen, err := SplitHistory(h); err != nil || gen == 0 {
		return corrupt(h, "history of no snapshot")
	}
	return nil
}

// unescape takes a slot from the start of a key's fields.
func unescape(b []byte) (slot string, rest []byte, ok bool) {
	var out strings.Builder
	for i := 0; i+1 < len(b); i++ {
		switch {
		case b[i] != 0:
			out.WriteByte(b[i])
		case b[i+1] == 1:
			return out.String(), b[i+2:], true
		case b[i+1] == 0xff:
			out.WriteByte(0)
			i++
		default:
			return "", nil, false
		}
	}
	return "", nil, false
}

// SlotOf returns the slot of a well-formed key of Slots or Results.
func SlotOf(k []byte) string {
	slot, _, _ := unescape(k[1 : len(k)-generationSize])
	return slot
}

// recode parses value and returns what this release would write in its place. The key has its form.
func recode(k, value []byte) ([]byte, error) {
	var again []byte
	var err error
	switch Table(k[0]) {
	case Accountings:
		var a Accounting
		a, err = DecodeAccounting(k, value)
		_, again = a.Encode()
	case Applied:
		var s State
		s, err = DecodeState(k, value)
		_, again = s.Encode()
	case Versions:
		var v VersionsOf
		v, err = DecodeVersions(k, value)
		_, again = v.Encode()
	case Snapshots:
		var s Snapshot
		s, err = DecodeSnapshot(k, value)
		_, again = s.Encode()
	case Named:
		var gen uint32
		gen, err = DecodeNamed(k, value)
		_, again = EncodeNamed(string(k[1:len(k)-generationSize-1]), gen)
	case Dead:
		var content uint64
		var d DeadContent
		content, d, err = DecodeDead(k, value)
		level := uint32(TrashLevel)
		if len(value) < 1+12+sumSize { // it is older
			level = SnapshotLevel
		}
		_, again = d.Encode(content, level)
	case Orphans:
		var h volume.Handle
		h, err = DecodeOrphan(k, value)
		_, again = EncodeOrphan(h)
	case Inodes:
		var n *Inode
		if n, err = DecodeInode(k, value); err == nil {
			_, again = n.Encode()
		}
	case Extents:
		var x Extent
		x, err = DecodeExtent(k, value)
		_, again = x.Encode(Of(k))
	case Histories:
		return recodeHistory(k, value)
	case Segments, Checkpoints, Condemned:
		return recodeLog(k, value)
	case Packs, PackIndexes, Moved:
		return recodePack(k, value)
	default:
		return recodeNamed(k, value)
	}
	return again, err
}

// recodeNamed is recode for tables whose keys have names or slots, and of bytes.
func recodeNamed(k, value []byte) ([]byte, error) {
	var again []byte
	var err error
	switch Table(k[0]) {
	case Names:
		var d Dirent
		d, err = DecodeName(k, value, XattrName(k))
		_, again = d.EncodeName(Of(k))
	case Cookies:
		var d Dirent
		d, err = DecodeCookie(k, value)
		_, again = d.EncodeCookie(Of(k))
	case Waste:
		var w Wasted
		var n uint64
		n, w, err = DecodeWasted(k, value)
		_, again = w.Encode(n)
	case Targets, Xattrs:
		var b []byte
		b, err = DecodeBytes(k, value)
		again = EncodeBytes(k, b)
	case Slots:
		var seq uint32
		seq, err = DecodeSeq(k, value)
		again = EncodeSeq(k, seq)
	case Results:
		var seq uint32
		var result []byte
		seq, result, err = DecodeResult(k, value)
		again = EncodeResult(k, seq, result)
	default:
		err = fmt.Errorf("%s: %w", Table(k[0]), ErrCorrupt)
	}
	return again, err
}

// recodeLog is recode for what is about the log.
func recodeLog(k, value []byte) ([]byte, error) {
	var again []byte
	var err error
	switch t := Table(k[0]); {
	case t == Segments:
		var s Segment
		s, err = DecodeSegment(k, value)
		_, again = s.Encode()
	case t == Condemned:
		var seq, checkpoint uint64
		seq, checkpoint, err = DecodeCondemned(k, value)
		_, again = EncodeCondemned(seq, checkpoint)
	case k[1] == askedFor:
		var a Asked
		a, err = DecodeAsked(k, value)
		_, again = a.Encode()
	case k[1] == placed:
		var p Placed
		p, err = DecodePlaced(k, value)
		_, again = p.Encode()
	case k[1] == made:
		var m Made
		m, err = DecodeMade(k, value)
		_, again = m.Encode()
	default:
		err = corrupt(k, "a checkpoint has no part %d", k[1])
	}
	return again, err
}

// recodeHistory also checks what the table had, which is under the table's key.
func recodeHistory(h, value []byte) ([]byte, error) {
	was, exists, err := DecodeHistory(h, value)
	if err != nil {
		return nil, err
	}
	if exists {
		k, _, err := SplitHistory(h)
		if err == nil {
			err = CheckPair(k, was)
		}
		if err != nil {
			return nil, err
		}
	}
	return EncodeHistory(h, was, exists), nil
}

// AllOf is the range of a table.
func AllOf(t Table) (lo, hi []byte) { return []byte{byte(t)}, []byte{byte(t) + 1} }
