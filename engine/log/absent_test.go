// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"math/rand/v2"
	"testing"
)

// seen is a source that calls a function before each read.
type seen struct {
	*source
	read func()
}

func (s seen) ReadSegment(ctx context.Context, name string, off int64, p []byte) error {
	s.read()
	return s.source.ReadSegment(ctx, name, off, p)
}

// TestAbsentOnItsWay: what is here already of a segment that is fetched counts as here, until it is
// here as a whole, or is not fetched after all.
func TestAbsentOnItsWay(t *testing.T) {
	s := newSetup(30)
	s.size = 64 << 20
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	rng := rand.New(rand.NewPCG(30, 1))
	for range 6 { // more than one read fetches
		r, release := large(l, rng)
		_, err := l.Append(r)
		must(t, err)
		release()
	}
	must(t, l.Roll())
	near := newSource("near")
	must(t, near.upload(l, 1))
	segs := l.Segments()
	segs[0].Uploaded = false
	all := segs[0].Len

	var a *Log
	var absent []uint64
	n := setup{disk: newDisk(31, 1<<30), size: 64 << 20,
		sources: []Source{seen{near, func() { absent = append(absent, a.AbsentBytes()) }}}}
	a = n.mustOpen(t)
	must(t, a.Adopt(segs))
	if got := a.AbsentBytes(); got != all {
		t.Fatalf("%d bytes are absent, want %d", got, all)
	}
	near.damage(int(all) - 1)
	if err := a.Heal(t.Context(), 1); err == nil || a.AbsentBytes() != all {
		t.Fatalf("after a damaged copy was fetched %d bytes are absent, want %d: %v", a.AbsentBytes(), all, err)
	}
	near.damage(int(all) - 1) // as it was
	must(t, a.Heal(t.Context(), 1))
	if got := a.AbsentBytes(); got != 0 {
		t.Errorf("%d bytes are absent in the end", got)
	}
	if len(absent) != 4 || absent[0] != all || absent[1] != all-maxRead || absent[2] != all || absent[3] != all-maxRead {
		t.Errorf("while it was fetched %d bytes were absent, of %d", absent, all)
	}

	// However much is on its way: that something is absent stays to be seen.
	n.disk = newDisk(32, 1<<30)
	b := n.mustOpen(t)
	must(t, b.Adopt(segs))
	first, _ := b.find(1)
	b.fetchedNow(first, all)
	if got := b.AbsentBytes(); got != 1 {
		t.Errorf("%d bytes are absent of a segment that is not here yet, want 1", got)
	}
}
