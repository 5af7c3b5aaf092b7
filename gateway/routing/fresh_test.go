// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"testing"

	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// TestAttributesOfALostWrite: after a takeover, nobody waits for a write that may never come.
func TestAttributesOfALostWrite(t *testing.T) {
	h, at := volume.Handle{Ino: 7}, func(off uint64) journal.Position { return journal.Position{Seq: 1, Off: off} }
	for _, c := range []struct {
		name    string
		applied journal.Position
		epoch   uint64
		dropped bool
	}{
		{"on its way", at(500), 3, false},
		{"applied", at(1000), 3, true},
		{"something later is applied", at(2000), 3, true},
		{"another home began", at(500), 4, true},
		{"of a home that is heard of late", at(500), 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := freshAttrs{}
			f.add(h, freshAttr{attr: volume.Attr{Size: 999}, pos: at(1000), epoch: 3})
			if got := f.drop(h, c.applied, c.epoch); got != c.dropped || len(f) == 0 != c.dropped {
				t.Errorf("dropped: %t, %d left", got, len(f))
			}
		})
	}
}

// TestNewestWriteIsRemembered: replies may come in another order than the writes.
func TestNewestWriteIsRemembered(t *testing.T) {
	h, f := volume.Handle{Ino: 7}, freshAttrs{}
	for _, w := range []freshAttr{
		{attr: volume.Attr{Size: 1}, pos: journal.Position{Seq: 1, Off: 200}, epoch: 1},
		{attr: volume.Attr{Size: 2}, pos: journal.Position{Seq: 1, Off: 100}, epoch: 1},
		{attr: volume.Attr{Size: 3}, pos: journal.Position{Seq: 1, Off: 50}, epoch: 2},
		{attr: volume.Attr{Size: 4}, pos: journal.Position{Seq: 9, Off: 900}, epoch: 1},
	} {
		f.add(h, w)
	}
	if got := f[h].attr.Size; got != 3 {
		t.Errorf("the write number %d is remembered", got)
	}
}

// TestWritesAreForgottenWithoutACopy: a gateway without a copy remembers only some of its writes.
func TestWritesAreForgottenWithoutACopy(t *testing.T) {
	r := newRouter(&Config{}, volume.ID{})
	for ino := range uint64(10 * maxFresh) {
		r.wrote(volume.Handle{Ino: ino}, freshAttr{epoch: 1, pos: journal.Position{Seq: 1}})
	}
	if n := len(r.fresh); n > maxFresh {
		t.Errorf("it remembers %d writes", n)
	}
}
