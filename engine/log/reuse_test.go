// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/segment"
)

// large returns a record of a megabyte that looks random, with its blocks sealed ahead.
func large(l *Log, rng *rand.Rand) (r *segment.Record, release func()) {
	raw := make([]byte, 1<<20)
	for i := 0; i < len(raw); i += 8 {
		binary.LittleEndian.PutUint64(raw[i:], rng.Uint64())
	}
	r = &segment.Record{Time: rng.Int64()}
	for some := range slices.Chunk(raw, segment.MaxBlock) {
		r.Blocks = append(r.Blocks, segment.Block{Raw: some})
	}
	release = segment.PackAll(r.Blocks, segment.Fast)
	l.SealAhead(r.Blocks)
	return r, release
}

// TestFramesAreUsedAgain appends large records, whose frames take memory that was used before, and
// small ones after each, while somebody reads some frames from the tail and keeps them. What was
// read stays as it is in the file, the hash of the segment is that of its file, and every block
// opens.
func TestFramesAreUsedAgain(t *testing.T) {
	for _, small := range []int{0, 3} {
		t.Run(fmt.Sprint(small, " small ones"), func(t *testing.T) { framesAreUsedAgain(t, small) })
	}
}

func framesAreUsedAgain(t *testing.T, small int) {
	s := newSetup(1)
	s.size = 64 << 20
	l := s.mustOpen(t)
	l.tail.max = 3 << 20
	_, err := l.BeginEpoch(1)
	must(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	type kept struct {
		frames []byte
		off    uint64
	}
	var read []kept
	raws, refs := [][]byte{}, []segment.BlockRef{}
	var before Position
	for i := range 40 {
		from := l.End()
		r, release := large(l, rng)
		_, err := l.Append(r)
		must(t, err)
		release()
		for _, b := range r.Blocks {
			raws, refs = append(raws, b.Raw), append(refs, b.Ref)
		}
		for range small { // which would fit into the memory of that one
			_, err := l.Append(&segment.Record{Time: rng.Int64()})
			must(t, err)
		}
		if i%5 == 0 || i%5 == 3 {
			of := from
			if i%5 == 3 { // what another large one came after
				of = before
			}
			frames, _, err := l.Read(t.Context(), of, 4<<20)
			must(t, err)
			read = append(read, kept{frames, of.Off})
		}
		before = from
	}
	must(t, l.Roll())
	info, ok := l.Segment(1)
	if !ok {
		t.Fatal("the segment is not closed")
	}
	h, err := l.files.acquire(1)
	must(t, err)
	defer l.files.release(h)
	all := make([]byte, info.Len)
	if _, err := h.ReadAt(all, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	for _, k := range read {
		if !bytes.Equal(k.frames, all[k.off:k.off+uint64(len(k.frames))]) {
			t.Errorf("frames at %d that somebody has read are not those of the file", k.off)
		}
	}
	if blake3.Sum256(all) != info.Hash {
		t.Error("file and hash differ (protocol-9)")
	}
	got, err := l.ReadBlocks(t.Context(), refs)
	must(t, err)
	for i := range got {
		if !bytes.Equal(got[i], raws[i]) {
			t.Fatalf("block %d differs", i)
		}
	}
}
