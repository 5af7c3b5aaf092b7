// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"reflect"
	"testing"
)

// An outline tells what its frame tells, in fewer bytes, and nothing once any of it is changed.
func TestOutline(t *testing.T) {
	s, seg, offs := build(t, testRecords())
	o, err := NewOpener(&testKey, s.Header())
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range offs {
		f, err := Next(seg[off:])
		if err != nil {
			t.Fatal(err)
		}
		want, err := o.DecodeRecord(f.Bytes, off)
		if err != nil {
			t.Fatal(err)
		}
		out, err := Outline(f.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		got, size, err := o.DecodeOutline(out, off)
		if err != nil || size != len(f.Bytes) || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v of %d bytes, %v; want %+v of %d", got, size, err, want, len(f.Bytes))
		}
		blocks := 0
		for _, b := range want.Blocks {
			blocks += int(b.Ref.Len)
		}
		if len(out) != len(f.Bytes)-blocks {
			t.Errorf("outline of %d bytes, of a frame of %d with blocks of %d", len(out), len(f.Bytes), blocks)
		}
		if _, _, err := o.DecodeOutline(out, off+1); !errors.Is(err, ErrCorrupt) {
			t.Errorf("at another place: %v", err)
		}
		for i := range out {
			if i >= 4 && i < 8 {
				continue // the checksum, which counts the blocks
			}
			bad := append([]byte(nil), out...)
			bad[i] ^= 1
			if _, _, err := o.DecodeOutline(bad, off); !errors.Is(err, ErrCorrupt) {
				t.Errorf("with byte %d changed: %v", i, err)
			}
		}
		for n := range out {
			if _, _, err := o.DecodeOutline(out[:n], off); !errors.Is(err, ErrCorrupt) {
				t.Errorf("cut to %d bytes: %v", n, err)
			}
		}
		if len(want.Blocks) > 0 {
			if _, _, err := o.DecodeOutline(f.Bytes, off); !errors.Is(err, ErrCorrupt) {
				t.Errorf("a whole frame: %v", err)
			}
			if _, err := Outline(out); !errors.Is(err, ErrCorrupt) {
				t.Errorf("outline of an outline: %v", err)
			}
		}
	}
}
