// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"encoding/binary"

	"github.com/weir-storage/weir/engine/segment"
)

// Extent is a run of recorded bytes of a file. It starts at byte Off of the file and has Len bytes.
// These begin at byte Skip of a block of Raw bytes.
type Extent struct {
	Off            uint64
	Len, Skip, Raw uint32
	Ref            segment.BlockRef
}

// End returns the offset in the file at which the extent ends.
func (e *Extent) End() uint64 { return e.Off + uint64(e.Len) }

// EncodeHead returns the key of e in a content, and its value without the block reference, for
// segment.SetBlock.
func (e *Extent) EncodeHead(content uint64) (key, value []byte) {
	key = ExtentKey(content, e.Off)
	b := append(make([]byte, 0, 1+12+sumSize+segment.BlockRefSize), version)
	b = binary.BigEndian.AppendUint32(b, e.Len)
	b = binary.BigEndian.AppendUint32(b, e.Skip)
	b = binary.BigEndian.AppendUint32(b, e.Raw)
	return key, seal(key, b)
}

// Encode returns the key and the value of e, whose block reference is known.
func (e *Extent) Encode(content uint64) (key, value []byte) {
	key, b := e.EncodeHead(content)
	return key, segment.AppendBlockRef(b, e.Ref)
}

// ExtentAt returns the content and the first byte in the file of an ExtentKey.
func ExtentAt(key []byte) (content, off uint64) { return first(key), second(key) }

// ContentsIn returns the first and the last content of which keys in [lo, hi) may be extents;
// false: none of them is.
func ContentsIn(lo, hi []byte) (from, to uint64, ok bool) {
	if lo[0] > byte(Extents) || hi[0] < byte(Extents) || hi[0] == byte(Extents) && len(hi) == 1 {
		return 0, 0, false
	}
	if lo[0] == byte(Extents) && len(lo) >= 9 {
		from = first(lo)
	}
	to = ^uint64(0)
	if hi[0] == byte(Extents) && len(hi) >= 9 {
		if to = first(hi); len(hi) == 9 && to > 0 {
			to-- // keys are longer
		}
	}
	return from, to, true
}

// DecodeExtent parses the value of an ExtentKey.
func DecodeExtent(key, value []byte) (Extent, error) {
	head := len(value) - segment.BlockRefSize
	if head < 0 {
		return Extent{}, corrupt(key, "value has %d bytes", len(value))
	}
	r, err := open(key, value[:head])
	if err != nil {
		return Extent{}, err
	}
	e := Extent{Off: second(key), Len: r.u32(), Skip: r.u32(), Raw: r.u32()}
	if err := r.done(); err != nil {
		return Extent{}, err
	}
	if e.Ref, err = segment.DecodeBlockRef(value[head:]); err != nil {
		return Extent{}, corrupt(key, "%v", err)
	}
	inBlock := uint64(e.Skip)+uint64(e.Len) <= uint64(e.Raw) && e.Raw <= segment.MaxBlock
	inRun := e.Off%segment.MaxBlock+uint64(e.Len) <= segment.MaxBlock
	if e.Len == 0 || !inBlock || !inRun {
		return Extent{}, corrupt(key, "extent of %d bytes from byte %d of a block of %d", e.Len, e.Skip, e.Raw)
	}
	return e, nil
}
