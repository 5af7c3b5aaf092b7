// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"encoding/binary"

	"github.com/weir-storage/weir/engine/segment"
)

// Segment is a segment of the log that ended. Nothing of it ever changes.
type Segment struct {
	Seq, Epoch uint64
	Key        uint32 // number of the data key
	Salt       [32]byte
	Len        uint64 // bytes
	Hash       segment.Hash
}

// SegmentKey is the key of a segment.
func SegmentKey(seq uint64) []byte { return finish(number(key(Segments, 8), seq)) }

// SegmentRange is the range of the segments from seq on.
func SegmentRange(seq uint64) (lo, hi []byte) {
	return number(key(Segments, 8), seq), []byte{byte(Segments) + 1}
}

// Encode returns the key and the value of s.
func (s *Segment) Encode() (key, value []byte) {
	key = SegmentKey(s.Seq)
	b := binary.BigEndian.AppendUint64(begin(84), s.Epoch)
	b = binary.BigEndian.AppendUint32(b, s.Key)
	b = append(b, s.Salt[:]...)
	b = binary.BigEndian.AppendUint64(b, s.Len)
	return key, seal(key, append(b, s.Hash[:]...))
}

// DecodeSegment parses the value of a SegmentKey.
func DecodeSegment(key, value []byte) (Segment, error) {
	r, err := open(key, value)
	if err != nil {
		return Segment{}, err
	}
	s := Segment{Seq: first(key), Epoch: r.u64(), Key: r.u32()}
	copy(s.Salt[:], r.take(32))
	s.Len = r.u64()
	copy(s.Hash[:], r.take(32))
	return s, r.done()
}

// The keys of checkpoints end in what they have. Each has one writer.
const (
	askedFor = 1 // by a record of the home
	placed   = 2 // by who applies records
	made     = 3 // by a record of the home
)

func checkpointKey(what byte) []byte { return finish(append(key(Checkpoints, 1), what)) }

// Asked is the newest checkpoint that a home asked for. It is to be made of the state at the end of
// the segment in which its record is.
type Asked struct {
	Number uint64 // of the checkpoint, from 1
	Key    uint32 // number of the data key that seals it
	Whole  bool   // it is not made as a change of an earlier one; since format level 5
}

// AskedKey is the key of a volume's Asked.
func AskedKey() []byte { return checkpointKey(askedFor) }

// Encode returns the key and the value of a.
func (a Asked) Encode() (key, value []byte) {
	key = AskedKey()
	b := binary.BigEndian.AppendUint64(begin(13), a.Number)
	if b = binary.BigEndian.AppendUint32(b, a.Key); a.Whole {
		b = append(b, 1)
	}
	return key, seal(key, b)
}

// DecodeAsked parses the value of the AskedKey.
func DecodeAsked(key, value []byte) (Asked, error) {
	r, err := open(key, value)
	if err != nil {
		return Asked{}, err
	}
	a := Asked{Number: r.u64(), Key: r.u32()}
	if len(r.left) > 0 {
		if a.Whole = r.u8() == 1; !a.Whole {
			return Asked{}, corrupt(key, "a checkpoint is asked for in a way that is not known")
		}
	}
	return a, r.done()
}

// Placed says where the newest checkpoint is, and which segments are in the table.
type Placed struct {
	Number uint64           // of the checkpoint; 0: none was placed
	At     segment.Position // the end of a segment
	Epoch  uint64           // the greatest epoch of a record before At
	Last   uint64           // sequence of the last segment in the table; 0: it has none
	// Next is the segment at whose end the next checkpoint is placed; 0: none was asked for.
	Next uint64
}

// PlacedKey is the key of a volume's Placed.
func PlacedKey() []byte { return checkpointKey(placed) }

// Encode returns the key and the value of p.
func (p Placed) Encode() (key, value []byte) {
	key = PlacedKey()
	b := binary.BigEndian.AppendUint64(begin(48), p.Number)
	b = binary.BigEndian.AppendUint64(b, p.At.Seq)
	b = binary.BigEndian.AppendUint64(b, p.At.Off)
	b = binary.BigEndian.AppendUint64(b, p.Epoch)
	b = binary.BigEndian.AppendUint64(b, p.Last)
	return key, seal(key, binary.BigEndian.AppendUint64(b, p.Next))
}

// DecodePlaced parses the value of the PlacedKey.
func DecodePlaced(key, value []byte) (Placed, error) {
	r, err := open(key, value)
	if err != nil {
		return Placed{}, err
	}
	p := Placed{Number: r.u64(), At: segment.Position{Seq: r.u64(), Off: r.u64()}, Epoch: r.u64(), Last: r.u64(),
		Next: r.u64()}
	return p, r.done()
}

// Made is the newest checkpoint that a home committed: a copy may begin there.
type Made struct {
	Number uint64
	At     segment.Position
	Epoch  uint64
	Key    uint32       // number of the data key that seals it
	Hash   segment.Hash // of its manifest
	Used   uint64       // bytes that the volume used then
}

// MadeKey is the key of a volume's Made.
func MadeKey() []byte { return checkpointKey(made) }

// Encode returns the key and the value of m.
func (m Made) Encode() (key, value []byte) {
	key = MadeKey()
	b := binary.BigEndian.AppendUint64(begin(76), m.Number)
	b = binary.BigEndian.AppendUint64(b, m.At.Seq)
	b = binary.BigEndian.AppendUint64(b, m.At.Off)
	b = binary.BigEndian.AppendUint64(b, m.Epoch)
	b = binary.BigEndian.AppendUint32(b, m.Key)
	b = append(b, m.Hash[:]...)
	return key, seal(key, binary.BigEndian.AppendUint64(b, m.Used))
}

// DecodeMade parses the value of the MadeKey.
func DecodeMade(key, value []byte) (Made, error) {
	r, err := open(key, value)
	if err != nil {
		return Made{}, err
	}
	m := Made{Number: r.u64(), At: segment.Position{Seq: r.u64(), Off: r.u64()}, Epoch: r.u64(), Key: r.u32()}
	copy(m.Hash[:], r.take(32))
	m.Used = r.u64()
	return m, r.done()
}

// CondemnedKey is the key of a segment that was condemned.
func CondemnedKey(seq uint64) []byte { return finish(number(key(Condemned, 8), seq)) }

// AllCondemned is the range of all segments that were condemned.
func AllCondemned() (lo, hi []byte) { return []byte{byte(Condemned)}, []byte{byte(Condemned) + 1} }

// EncodeCondemned returns the key and the value of a segment that was condemned, at the checkpoint
// of that number.
func EncodeCondemned(seq, checkpoint uint64) (key, value []byte) {
	key = CondemnedKey(seq)
	return key, seal(key, binary.BigEndian.AppendUint64(begin(8), checkpoint))
}

// DecodeCondemned parses the value of a CondemnedKey.
func DecodeCondemned(key, value []byte) (seq, checkpoint uint64, err error) {
	r, err := open(key, value)
	if err != nil {
		return 0, 0, err
	}
	seq, checkpoint = first(key), r.u64()
	return seq, checkpoint, r.done()
}
