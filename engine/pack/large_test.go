// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"errors"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
)

// TestLargeIndex: what layOut lays out, decodeHead accepts; else it is ErrTooLarge.
func TestLargeIndex(t *testing.T) {
	ranges := make([]Range, MaxRanges)
	for i := range ranges {
		ranges[i] = Range{Off: uint32(i) * 1000, Len: 300}
	}
	k := Kept{Seq: 1}
	for off := uint32(segment.HeaderSize); len(k.Blocks) < 16<<10; off += 4000 {
		b := Block{Off: off, Len: 3000} // 64 KiB that compress well
		k.Blocks = append(k.Blocks, b)
		k.Cuts = append(k.Cuts, Cut{Block: b, Counter: uint64(off), Raw: segment.MaxBlock, Ranges: ranges, Size: 1000})
	}
	h, index, err := layOut(segment.VolumeID{1}, []Kept{k}, &seals{})
	if errors.Is(err, ErrTooLarge) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("index %d, limit %d, whole pack %d", len(index), maxIndex, h.size)
	if _, err := decodeHead(h.append(nil)); err != nil {
		t.Error(err)
	}
}
