// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"testing"

	"github.com/weir-storage/weir/volume"
)

func TestHistory(t *testing.T) {
	var g history
	h := volume.Handle{Ino: 7}
	at := func(gateway string, start, end uint64, exclusive bool) volume.Lock {
		return volume.Lock{Owner: volume.LockOwner{Gateway: gateway, Owner: "o"}, Start: start, End: end, Exclusive: exclusive}
	}
	g.add(h, at("c", 10, 19, false))
	before := g.serial
	g.add(h, at("c", 30, 39, true))
	for _, tc := range []struct {
		serial uint64
		lock   volume.Lock
		want   bool
	}{
		{0, at("b", 0, 9, true), false},
		{0, at("b", 0, 10, true), true},
		{0, at("b", 0, 10, false), false},
		{0, at("b", 39, 50, false), true},
		{0, at("c", 0, 100, true), false},
		{before, at("b", 10, 19, true), false},
		{before, at("b", 19, 30, false), true},
		{g.serial, at("b", 0, 100, true), false},
	} {
		if got := g.conflicts(tc.serial, h, tc.lock); got != tc.want {
			t.Errorf("since %d, %+v: %t", tc.serial, tc.lock, got)
		}
	}
	if g.conflicts(0, volume.Handle{Ino: 8}, at("b", 0, 100, true)) {
		t.Error("another file")
	}
	// One range again and again takes no more room; many take the whole file, for everybody.
	for range 2 * maxRanges {
		g.add(h, at("c", 10, 19, true))
	}
	if n := len(g.files[h]); n != 2 {
		t.Errorf("%d ranges", n)
	}
	for i := range uint64(maxRanges) {
		g.add(h, at("c", 1000+2*i, 1000+2*i, true))
	}
	if n := len(g.files[h]); n > maxRanges || !g.conflicts(0, h, at("b", 5000, 5000, false)) || !g.conflicts(0, h, at("c", 10, 10, false)) {
		t.Errorf("%d ranges, and not all are remembered", n)
	}
	// Too many files are all files, until then.
	for i := range uint64(maxFiles) {
		g.add(volume.Handle{Ino: 100 + i}, at("c", 0, 0, true))
	}
	now := g.serial
	if n := len(g.files); n > maxFiles || !g.conflicts(0, volume.Handle{Ino: 9}, at("b", 0, 0, false)) {
		t.Errorf("%d files, and not all are remembered", n)
	}
	g.add(h, at("c", 1, 1, true))
	if g.conflicts(now, volume.Handle{Ino: 100}, at("b", 0, 0, true)) || !g.conflicts(now, h, at("b", 1, 1, true)) {
		t.Error("what came after is not told from what came before")
	}
}
