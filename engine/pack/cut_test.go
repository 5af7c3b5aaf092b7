// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
)

// TestSlice: what was kept of a block is read, and what was cut away is an error, never zeros.
func TestSlice(t *testing.T) {
	raw := make([]byte, 1000)
	for i := range raw {
		raw[i] = byte(i%251) + 1
	}
	for _, ranges := range [][]Range{{{0, 10}}, {{990, 10}}, {{5, 100}, {300, 1}, {500, 400}}, {{0, 976}}, {{0, 984}}} {
		var kept []byte
		for _, r := range ranges {
			kept = append(kept, raw[r.Off:r.end()]...)
		}
		b := form(uint32(len(raw)), ranges, kept)
		if len(b) == len(raw) {
			t.Fatalf("%v: what is cut is as long as the whole", ranges)
		}
		for skip := range uint32(1000) {
			for _, n := range []uint32{1, 9, 100, 1000 - skip} {
				if skip+n > 1000 {
					continue
				}
				in := slices.ContainsFunc(ranges, func(r Range) bool { return r.Off <= skip && skip+n <= r.end() })
				got, err := Slice(b, 1000, skip, n)
				if in && (err != nil || !bytes.Equal(got, raw[skip:skip+n])) {
					t.Fatalf("%v: %d bytes from byte %d on: %v", ranges, n, skip, err)
				}
				if !in && !errors.Is(err, ErrNoBlock) {
					t.Fatalf("%v: %d bytes from byte %d on, which were cut away: %v", ranges, n, skip, err)
				}
			}
		}
		for _, other := range []uint32{999, 1001, 65536} {
			if _, err := Slice(b, other, 0, 1); err == nil && uint32(len(b)) != other {
				t.Errorf("a block of %d bytes is read as one of 1000", other)
			}
		}
		for n := range len(b) {
			if n != len(raw) {
				first := ranges[0]
				if got, err := Slice(b[:n], 1000, first.Off, first.Len); err == nil && !bytes.Equal(got, raw[first.Off:first.end()]) {
					t.Errorf("the first %d bytes read as something else", n)
				}
			}
		}
	}
}

// TestSealsDiffer: another text, other ranges, another order or another key has another salt, and
// so another key. So no key and nonce is used for two texts.
func TestSealsDiffer(t *testing.T) {
	raw := make([]byte, 16000)
	_, _ = rand.NewChaCha8([32]byte{64}).Read(raw) // so that another text has the same length, compressed
	other := slices.Clone(raw)
	other[70] ^= 1
	seal := func(key byte, order []uint64, ranges []Range, raw []byte) ([32]byte, map[place][]byte) {
		t.Helper()
		var kept []Kept
		for _, seq := range order {
			c := Cut{Block: Block{Off: 500, Len: 9000}, Counter: 7, Raw: uint32(len(raw)), Ranges: slices.Clone(ranges)}
			kept = append(kept, Kept{Seq: seq, Blocks: []Block{c.Block}, Cuts: []Cut{c}})
		}
		s := Sealing{Key: 1, Data: &segment.DataKey{key}, Raw: func(refs []segment.BlockRef) ([][]byte, error) {
			return slices.Repeat([][]byte{raw}, len(refs)), nil
		}}
		is, out, err := s.seal(segment.VolumeID{1}, kept)
		if err != nil {
			t.Fatal(err)
		}
		return is.salt, out
	}
	ranges := []Range{{0, 100}, {4000, 2000}}
	salt, first := seal(1, []uint64{3, 4}, ranges, raw)
	if again, second := seal(1, []uint64{3, 4}, ranges, raw); again != salt || !bytes.Equal(first[place{3, 500}], second[place{3, 500}]) {
		t.Error("the same is not sealed alike")
	}
	seen := map[[32]byte]string{salt: "the first"}
	for name, f := range map[string]func() ([32]byte, map[place][]byte){
		"another text":  func() ([32]byte, map[place][]byte) { return seal(1, []uint64{3, 4}, ranges, other) },
		"other ranges":  func() ([32]byte, map[place][]byte) { return seal(1, []uint64{3, 4}, ranges[:1], raw) },
		"another order": func() ([32]byte, map[place][]byte) { return seal(1, []uint64{4, 3}, ranges, raw) },
		"another key":   func() ([32]byte, map[place][]byte) { return seal(2, []uint64{3, 4}, ranges, raw) },
	} {
		salt, _ := f()
		if was, ok := seen[salt]; ok {
			t.Errorf("%s has the salt of %s", name, was)
		}
		seen[salt] = name
	}
}
