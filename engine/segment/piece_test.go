// SPDX-License-Identifier: Apache-2.0

package segment_test

import (
	"strings"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
)

const pieceName = "aa010000-0000-4000-8000-000000000007/t/0000000000000009-0102030405060708-00000074-00000200-" +
	"00000000000000000000000000000000000000000000000000000000000000ff"

func TestPieceName(t *testing.T) {
	v := segment.VolumeID{0: 0xaa, 1: 1, 6: 0x40, 8: 0x80, 15: 7}
	p := segment.Piece{Seq: 9, Salt: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, From: 0x74, To: 0x200, Hash: segment.Hash{31: 0xff}}
	if got := segment.PieceName(v, p); got != pieceName {
		t.Error(got)
	}
	if gv, got, err := segment.ParsePieceName(pieceName); gv != v || got != p || err != nil {
		t.Errorf("%x %+v, %v", gv, got, err)
	}
	for _, bad := range []string{
		"", strings.ToUpper(pieceName), pieceName + "0", strings.Replace(pieceName, "/t/", "/p/", 1),
		strings.Replace(pieceName, "00000074", "00000200", 1), strings.Replace(pieceName, "00000200", "10000200", 1),
		strings.Replace(pieceName, "01020", "+1020", 1), strings.Replace(pieceName, "aa01", "ag01", 1),
	} {
		if _, p, err := segment.ParsePieceName(bad); err == nil {
			t.Errorf("%q is %+v", bad, p)
		}
	}
	salt := [32]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
	if p.Of(8, salt) || p.Of(9, [32]byte{1, 2, 3, 4, 5, 6, 7}) || !p.Of(9, salt) {
		t.Error("it is of another segment")
	}
}

// FuzzPieceName: a name that parses is the one that is made of what was parsed.
func FuzzPieceName(f *testing.F) {
	f.Add(pieceName)
	f.Fuzz(func(t *testing.T, name string) {
		v, p, err := segment.ParsePieceName(name)
		if err == nil && segment.PieceName(v, p) != name {
			t.Errorf("%q is %x %+v", name, v, p)
		}
	})
}
