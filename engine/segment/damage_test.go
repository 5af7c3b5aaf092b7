// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"reflect"
	"slices"
	"testing"
)

// TestFlipEveryByte damages each byte of a segment in turn. Everything that can still be read must
// be right, and some check must report the damage (protocol-19).
func TestFlipEveryByte(t *testing.T) {
	recs := testRecords()
	_, seg, _ := build(t, recs)
	wantRecs, wantBlocks, err := readAll(seg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range seg {
		for _, mask := range []byte{0x01, 0x80, 0xff} {
			bad := slices.Clone(seg)
			bad[i] ^= mask
			gotRecs, gotBlocks, err := readAll(bad)
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrShort) {
				t.Fatalf("byte %d ^ %#x: not noticed: %v", i, mask, err)
			}
			if !isPrefix(gotRecs, wantRecs) || !isPrefix(gotBlocks, wantBlocks) {
				t.Fatalf("byte %d ^ %#x: wrong data", i, mask)
			}
		}
	}
}

// TestForgedChecksums: a host without the key flips any byte and then corrects all checksums. What
// opens with the key must still be right.
func TestForgedChecksums(t *testing.T) {
	recs := testRecords()
	_, seg, offs := build(t, recs)
	wantRecs, wantBlocks, err := readAll(seg)
	if err != nil {
		t.Fatal(err)
	}
	ends := append(offs[1:len(offs):len(offs)], uint64(len(seg)))
	for i := range seg {
		bad := slices.Clone(seg)
		bad[i] ^= 0x04
		binary.BigEndian.PutUint32(bad[124:], crc32.Checksum(bad[:124], castagnoli))
		for j, off := range offs {
			f := bad[off:ends[j]]
			binary.BigEndian.PutUint32(f[4:], frameCRC(f))
		}
		if i >= 124 && i < 128 || bytes.Equal(bad, seg) { // the checksum itself was corrected
			continue
		}
		gotRecs, gotBlocks, err := readAll(bad)
		if err == nil {
			t.Fatalf("byte %d: not noticed", i)
		}
		if !isPrefix(gotRecs, wantRecs) || !isPrefix(gotBlocks, wantBlocks) {
			t.Fatalf("byte %d: wrong data", i)
		}
	}
}

func TestCutEverywhere(t *testing.T) {
	_, seg, offs := build(t, testRecords())
	ends := append(slices.Clone(offs), uint64(len(seg)))
	for n := range len(seg) + 1 {
		var want uint64
		for _, e := range ends {
			if e <= uint64(n) {
				want = e
			}
		}
		sc, err := Scan(bytes.NewReader(seg[:n]), nil)
		if err != nil || sc.Valid != want {
			t.Fatalf("cut at %d: valid %d, want %d: %v", n, sc.Valid, want, err)
		}
		wantTail := Torn
		if want == uint64(n) && n > 0 {
			wantTail = Clean
		}
		if sc.Tail != wantTail {
			t.Fatalf("cut at %d: %v, want %v", n, sc.Tail, wantTail)
		}
	}
}

func TestScanTails(t *testing.T) {
	_, seg, offs := build(t, testRecords())
	_, other, _ := build(t, nil)
	flipped := slices.Clone(seg)
	flipped[len(flipped)-1] ^= 1
	for name, c := range map[string]struct {
		b     []byte
		valid uint64
		tail  Tail
	}{
		"zeros":           {append(slices.Clone(seg), make([]byte, 4096)...), uint64(len(seg)), Torn},
		"noise":           {append(slices.Clone(seg), noise(4096)...), uint64(len(seg)), Corrupt},
		"long length":     {append(slices.Clone(seg), 0, 0xff, 0, 0), uint64(len(seg)), Torn},
		"second header":   {append(slices.Clone(seg), other...), uint64(len(seg)), Corrupt},
		"no header":       {seg[HeaderSize:], 0, Corrupt},
		"last byte wrong": {flipped, offs[len(offs)-1], Corrupt},
		"nothing":         {nil, 0, Torn},
	} {
		sc, err := Scan(bytes.NewReader(c.b), nil)
		if err != nil || sc.Valid != c.valid || sc.Tail != c.tail {
			t.Errorf("%s: valid %d %v (%v), want %d %v: %v", name, sc.Valid, sc.Tail, sc.Why, c.valid, c.tail, err)
		}
	}
	if _, err := Scan(io.MultiReader(bytes.NewReader(seg), failing{}), nil); !errors.Is(err, errFailing) {
		t.Errorf("a read error must not look like a torn tail: %v", err)
	}
}

var errFailing = errors.New("disk on fire")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFailing }

func FuzzNext(f *testing.F) {
	_, seg, offs := build(f, testRecords())
	for _, off := range append([]uint64{0}, offs...) {
		f.Add(seg[off:])
	}
	h, err := DecodeHeader(seg)
	if err != nil {
		f.Fatal(err)
	}
	o, err := NewOpener(&testKey, h)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := Next(b)
		if err == nil && !fr.IsHeader {
			// A correct checksum is not enough.
			if r, err := o.DecodeRecord(fr.Bytes, HeaderSize); err == nil && !bytes.Contains(seg, fr.Bytes) {
				t.Fatalf("forged: %+v", r)
			}
		}
		if _, err := Scan(bytes.NewReader(b), nil); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzMeta(f *testing.F) {
	for _, r := range testRecords() {
		if _, err := Prepare(r); err != nil {
			f.Fatal(err)
		}
		f.Add(appendMeta(nil, r), len(r.Blocks))
	}
	f.Fuzz(func(t *testing.T, b []byte, blocks int) {
		if blocks < 0 || blocks > 100 {
			return
		}
		r := Record{Blocks: make([]Block, blocks)}
		if err := decodeMeta(b, &r); err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again := Record{Blocks: make([]Block, blocks)}
		if err := decodeMeta(appendMeta(nil, &r), &again); err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%v\n%+v\n%+v", err, r, again)
		}
	})
}

func FuzzUnpack(f *testing.F) {
	f.Add(Pack(text(100), Fast))
	f.Add(Pack(noise(100), Fast))
	f.Fuzz(func(t *testing.T, b []byte) {
		raw, err := Unpack(b, nil)
		if err == nil && len(raw) > MaxBlock {
			t.Fatal(len(raw))
		}
	})
}

func isPrefix[T any](got, want []T) bool {
	return len(got) == 0 || len(got) <= len(want) && reflect.DeepEqual(got, want[:len(got)])
}
