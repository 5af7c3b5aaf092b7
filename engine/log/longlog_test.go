// SPDX-License-Identifier: Apache-2.0

package log

import (
	"testing"

	"github.com/weir-storage/weir/engine/segment"
)

// BenchmarkLongLog measures what a replica asks of its log for each record, in a log of 1 TiB.
func BenchmarkLongLog(b *testing.B) {
	l := setup{disk: newDisk(1, 1<<40), size: 1 << 24}.mustOpen(b)
	var infos []SegmentInfo
	var link segment.Link
	for seq := uint64(1); seq <= 1<<14; seq++ {
		in := SegmentInfo{Seq: seq, Epoch: 1 + seq/1000, Prev: link, Len: segment.MaxSize, Hash: segment.Hash{byte(seq)}}
		link = segment.Link{Seq: in.Seq, Len: in.Len, Hash: in.Hash}
		infos = append(infos, in)
	}
	must(b, l.Adopt(infos))
	for name, ask := range map[string]func(){
		"epochs":   func() { _ = l.Epochs() },
		"distance": func() { _ = l.Distance(Position{Seq: 1<<14 - 2, Off: 5}, l.End()) },
		"segments": func() { _ = l.Segments() },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
	}
}
