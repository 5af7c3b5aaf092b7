// SPDX-License-Identifier: Apache-2.0

package readcache

import (
	"encoding/binary"
	"errors"
	"testing"
)

// FuzzIndex decodes arbitrary bytes as the index of a file. What it says lies within the file.
func FuzzIndex(f *testing.F) {
	b := binary.BigEndian.AppendUint32(nil, 1)
	b = append(b, make([]byte, segmentSize)...)
	for _, n := range []uint32{0, 128, 100, 0} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	f.Add(b, int64(4096))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, int64(4096))
	f.Fuzz(func(t *testing.T, b []byte, end int64) {
		if len(b) < 4 || end < 0 {
			return // whoever reads an index checks that
		}
		x := &file{v: &Volume{index: map[Segment]*index{}}}
		if err := x.decode(b, end); err != nil {
			if !errors.Is(err, errIndex) {
				t.Fatal(err)
			}
			return
		}
		for _, e := range x.entries {
			if int64(e.pos)+int64(e.len) > end || e.segment == nil {
				t.Fatalf("%+v", e)
			}
		}
	})
}

func FuzzName(f *testing.F) {
	f.Add((&file{id: 7, queue: pinned}).name())
	f.Add("7-main.cache")
	f.Fuzz(func(t *testing.T, name string) {
		if id, q, ok := parseName(name); ok && (&file{id: id, queue: q}).name() != name {
			t.Fatal(name)
		}
	})
}
