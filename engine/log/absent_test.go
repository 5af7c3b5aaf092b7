// SPDX-License-Identifier: Apache-2.0

package log

import "testing"

// TestAbsentOnItsWay: what is here already of a segment that is fetched counts as here, but never
// so that nothing seems to be absent.
func TestAbsentOnItsWay(t *testing.T) {
	s := newSetup(20)
	l, _, _, _, _ := stored(t, &s)
	segs := l.Segments()
	var all uint64
	for i := range segs {
		segs[i].Uploaded = false
		all += segs[i].Len
	}
	n := setup{disk: newDisk(21, 1<<30), size: 2000, sources: s.sources}
	a := n.mustOpen(t)
	must(t, a.Adopt(segs))
	second, _ := a.find(2)
	for _, n := range []uint64{5, segs[1].Len, all, 0} {
		a.fetchedNow(second, n)
		if got, want := a.AbsentBytes(), max(all-n, 1); got != want {
			t.Errorf("with %d bytes on their way %d are absent, want %d", n, got, want)
		}
	}
	must(t, a.Heal(t.Context(), 2))
	if got, want := a.AbsentBytes(), all-segs[1].Len; got != want {
		t.Errorf("after segment 2 came %d bytes are absent, want %d", got, want)
	}
}
