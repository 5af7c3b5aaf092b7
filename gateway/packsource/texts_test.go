// SPDX-License-Identifier: Apache-2.0

package packsource

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/store"
)

// TestTexts: blocks that lie near each other are read at once, in reads of bounded length, and each
// has memory of its own, which has room for nothing of another.
func TestTexts(t *testing.T) {
	const block = 4 << 10
	objects := map[string][]byte{"one": make([]byte, 8<<20), "two": make([]byte, 1<<20)}
	rng := rand.NewChaCha8([32]byte{1})
	for _, b := range objects {
		_, _ = rng.Read(b)
	}
	reads, most := 0, 0
	of := func(name string) finds {
		return func(ref segment.BlockRef) (found, error) {
			read := func(p []byte, off uint64) error {
				reads, most = reads+1, max(most, len(p))
				copy(p, objects[name][off:])
				return nil
			}
			return found{name, read, ref.Off, ref.Len, func(b []byte, _ bool) ([]byte, error) { return b, nil }}, nil
		}
	}
	blocks := map[uint64]finds{1: of("one"), 2: of("two")}
	var refs []segment.BlockRef
	add := func(seq, off uint64) { refs = append(refs, segment.BlockRef{Seq: seq, Off: off, Len: block}) }
	for i := range uint64(512) { // 2 MiB without a gap
		add(1, i*block)
	}
	add(1, 4<<20) // far from all
	add(1, 4<<20+block+maxGap)
	add(1, 5<<20)
	add(2, block)
	add(2, 0)
	rand.New(rng).Shuffle(len(refs), func(i, j int) { refs[i], refs[j] = refs[j], refs[i] })
	got, err := texts(refs, blocks, true)
	if err != nil {
		t.Fatal(err)
	}
	if reads != 5 || most > maxRun {
		t.Errorf("%d reads, of %d bytes at most", reads, most)
	}
	for i, ref := range refs {
		_ = append(got[i], make([]byte, segment.TagSize)...) // as who seals it anew
		if want := objects[map[uint64]string{1: "one", 2: "two"}[ref.Seq]][ref.Off:][:block]; !bytes.Equal(got[i], want) {
			t.Fatalf("the block at %d/%d has other bytes", ref.Seq, ref.Off)
		}
	}
}

// TestTextsOfWhatIsDamaged: an error says which object it is about, and whether its bytes are
// wrong.
func TestTextsOfWhatIsDamaged(t *testing.T) {
	for what, x := range map[string]struct {
		read, open error
		corrupt    bool
	}{
		"a block is damaged": {nil, &segment.CorruptError{Field: "block tag"}, true},
		"it is not there":    {store.ErrNotExist, nil, false},
		"the store is away":  {store.ErrUnavailable, nil, false},
	} {
		blocks := map[uint64]finds{1: func(ref segment.BlockRef) (found, error) {
			return found{"object", func([]byte, uint64) error { return x.read }, ref.Off, ref.Len,
				func(b []byte, _ bool) ([]byte, error) { return b, x.open }}, nil
		}}
		_, err := texts([]segment.BlockRef{{Seq: 1, Len: 10}}, blocks, true)
		s := new(pack.ObjectError)
		if !errors.As(err, &s) || s.Name != "object" || errors.Is(err, pack.ErrCorrupt) != x.corrupt ||
			x.read != nil && !errors.Is(err, x.read) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
