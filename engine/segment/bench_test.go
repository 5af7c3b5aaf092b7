// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"slices"
	"testing"
)

// benchBlocks returns a block that does not compress and one that does.
func benchBlocks() map[string][]byte {
	return map[string][]byte{"random": noise(MaxBlock), "text": text(MaxBlock)}
}

func BenchmarkPack(b *testing.B) {
	for name, raw := range benchBlocks() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(MaxBlock)
			b.ReportAllocs()
			for b.Loop() {
				Pack(raw, Fast)
			}
		})
	}
}

// BenchmarkSeal seals records of sixteen packed blocks, 1 MiB of plaintext each.
func BenchmarkSeal(b *testing.B) {
	for name, raw := range benchBlocks() {
		b.Run(name, func(b *testing.B) {
			rec := &Record{Blocks: make([]Block, 16)}
			for i := range rec.Blocks {
				rec.Blocks[i] = Block{Pack: Pack(raw, Fast), Size: MaxBlock}
			}
			var s *Sealer
			var buf []byte
			b.SetBytes(16 * MaxBlock)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				var err error
				if i%64 == 0 { // as many as a segment takes
					s, err = NewSealer(&testKey, testHeader(), seeded(byte(i)))
				}
				if err == nil {
					buf, err = encodeRecord(s, buf[:0], rec, HeaderSize)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpenBlock opens and unpacks blocks of 64 KiB, as a read does.
func BenchmarkOpenBlock(b *testing.B) {
	for name, raw := range benchBlocks() {
		b.Run(name, func(b *testing.B) {
			rec := &Record{Blocks: []Block{{Raw: raw}}}
			s, seg, _ := build(b, []*Record{rec})
			ref := rec.Blocks[0].Ref
			sealed := seg[ref.Off : ref.Off+uint64(ref.Len)]
			buf := make([]byte, len(sealed))
			b.SetBytes(MaxBlock)
			b.ReportAllocs()
			for b.Loop() {
				copy(buf, sealed) // opening overwrites it
				if _, err := s.OpenBlock(ref, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDecodeRecord decodes the record of a new file, as a follower and a replay do.
func BenchmarkDecodeRecord(b *testing.B) {
	rec := &Record{Time: 1, Slot: "client and session", Seq: 1, Result: make([]byte, 170), Touched: []uint64{1 << 40, 2 << 40}}
	for range 5 {
		rec.Ops = append(rec.Ops, Op{Kind: Set, Key: make([]byte, 21), Value: make([]byte, 100)})
	}
	s, seg, offs := build(b, []*Record{rec})
	frame := slices.Clone(seg[offs[0]:])
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.DecodeRecord(frame, offs[0]); err != nil {
			b.Fatal(err)
		}
	}
}
