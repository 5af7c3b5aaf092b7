// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// FuzzValue decodes arbitrary values under arbitrary keys, also with the right checksum. What
// decodes encodes as it was.
func FuzzValue(f *testing.F) {
	at := time.Unix(5, 7)
	attr := volume.Attr{Handle: volume.Handle{Ino: 5, Gen: 3}, Type: volume.Regular, Atime: at, Mtime: at, Ctime: at, Btime: at}
	dir := attr
	dir.Type = volume.Directory
	d := Dirent{Name: "name", Cookie: 4, Handle: attr.Handle, Type: volume.Regular}
	snap := Snapshot{Gen: 2, Number: 9, Time: at, Name: "snap"}
	x := Extent{Off: 0, Len: 10, Skip: 1, Raw: 20, Ref: segment.BlockRef{Seq: 1, Off: 200, Len: 40}}
	slot, result := SlotKey("a\x00b"), ResultKey("a\x00b", 3)
	target := TargetKey(5)
	history := HistoryKey(target, 1)
	add := func(key, value []byte) { f.Add(key, value) }
	add((&Inode{Attr: attr, Exclusive: true, Content: 8}).Encode())
	add((&Inode{Attr: dir}).Encode())
	add(d.EncodeName(1))
	add(d.EncodeCookie(1))
	add(Accounting{Bytes: 1, Inodes: 2}.Encode())
	add(State{Position: segment.Position{Seq: 1, Off: 128}, Epoch: 2}.Encode())
	add(EncodeOrphan(attr.Handle))
	add(target, EncodeBytes(target, []byte("target")))
	add(slot, EncodeSeq(slot, 7))
	add(result, EncodeResult(result, 7, []byte("result")))
	add(VersionsOf{Level: 2, Idle: true}.Encode())
	add(snap.Encode())
	add(EncodeNamed("snap", 2))
	add(DeadContent{Gen: 2}.Encode(5, SnapshotLevel))
	add(DeadContent{Gen: 2, Bytes: 7}.Encode(5, TrashLevel))
	add(Wasted{Dir: 5, Time: at}.Encode(9))
	add((&Segment{Seq: 3, Epoch: 2, Len: 200}).Encode())
	add(EncodeCondemned(3, 1))
	add((&Pack{Number: 2, Len: 9, Made: 1, Condemned: 2, Into: 3, From: []uint64{1}}).Encode())
	add(EncodeMoved(3, 2))
	add(PackIndexKey(2), EncodeBytes(PackIndexKey(2), []byte("index")))
	add(Asked{Number: 1, Key: 2}.Encode())
	add(Asked{Number: 3, Key: 2, Whole: true}.Encode())
	add(Placed{Number: 1, Last: 3}.Encode())
	add(Made{Number: 1, Used: 3}.Encode())
	add(x.Encode(5))
	add(history, EncodeHistory(history, EncodeBytes(target, []byte("value")), true))
	add(history, EncodeHistory(history, nil, false))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		sum := len(value) // of the part that the checksum covers
		if len(key) > 0 && Table(key[0]) == Extents {
			sum -= segment.BlockRefSize
		}
		if sum > sumSize {
			copy(value[sum-sumSize:], seal(key, bytes.Clone(value[:sum-sumSize]))[sum-sumSize:])
		}
		again, err := reencode(key, value)
		if err != nil {
			if newer := new(NewerError); !errors.Is(err, ErrCorrupt) && !errors.As(err, &newer) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(again, value) {
			t.Fatalf("under key %x, value %x encodes as %x", key, value, again)
		}
		Seen(key, 7)
	})
}

// reencode decodes a value as its table has it, and encodes the result.
func reencode(key, value []byte) (again []byte, err error) {
	if !fits(key) {
		_, err := open(key, value)
		if err == nil {
			return nil, errors.New("a key without its table's form has a value")
		}
		return nil, err
	}
	return recode(key, value)
}

// FuzzSlotKey: different slots have different keys, of which none is within the range of a slot
// that is no prefix of it.
func FuzzSlotKey(f *testing.F) {
	f.Add("a", "a\x00")
	f.Add("a\x00\xff", "a\x00\x01")
	f.Fuzz(func(t *testing.T, a, b string) {
		if (a == b) != bytes.Equal(SlotKey(a), SlotKey(b)) || (a == b) != bytes.Equal(ResultKey(a, 3), ResultKey(b, 3)) {
			t.Fatalf("%q and %q have one key", a, b)
		}
		lo, hi := SlotRange(a)
		k := SlotKey(b)
		in := bytes.Compare(k, lo) >= 0 && bytes.Compare(k, hi) < 0
		if want := len(b) >= len(a) && b[:len(a)] == a; in != want && want {
			t.Fatalf("%q is not in the range of %q", b, a)
		}
		if !fits(k) || !fits(ResultKey(b, 1)) {
			t.Fatalf("%q", b)
		}
	})
}
