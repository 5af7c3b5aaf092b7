// SPDX-License-Identifier: Apache-2.0

package log

import (
	"testing"

	"github.com/weir-storage/weir/engine/segment"
)

// TestReadHeals: a file that a read finds damaged is whole again afterwards. One that no source has
// is tried once, and left as it is.
func TestReadHeals(t *testing.T) {
	s := newSetup(7)
	l, refs, raws, near, far := stored(t, &s)
	l.cfg.HealsReads = true
	damage := func(seq uint64) {
		s.disk.Damage(testDir, fileName(seq), func(b []byte) []byte {
			for i := segment.HeaderSize; i < len(b); i += 10 {
				b[i] ^= 1
			}
			return b
		})
	}
	for _, seg := range l.Segments() {
		damage(seg.Seq)
	}
	l.trim()
	wantBlocks(t, l, refs, raws)
	l.repairs.work.Wait()
	reads := near.reads
	wantBlocks(t, l, refs, raws)
	if near.reads != reads {
		t.Error("a source was asked for what is here again")
	}
	last := l.Segments()[1].Seq
	near.objects, far.objects = nil, nil
	for _, seg := range l.Segments() {
		must(t, l.Heal(t.Context(), seg.Seq)) // the files verify, so no source is needed
	}
	if n := len(l.repairs.tried); n != len(l.Segments()) {
		t.Errorf("%d segments were tried, there are %d", n, len(l.Segments()))
	}
	damage(last)
	wantErr(t, l.Heal(t.Context(), last), ErrUnreadable)
	must(t, l.Close())
	l.repair(last) // a read that was under way: nothing begins after Close
	if l.repairs.end != nil {
		t.Error("a repair began after Close")
	}
}
