// SPDX-License-Identifier: Apache-2.0

package log

import "testing"

// TestShed: of a log that nobody has open, what is in a store leaves the pool. It is the same log
// when it is opened again.
func TestShed(t *testing.T) {
	s := newSetup(1)
	l, refs, raws, _, _ := stored(t, &s)
	more := rec(900)
	_, err := l.Append(more) // in a segment that is not closed
	must(t, err)
	for _, b := range more.Blocks {
		refs, raws = append(refs, b.Ref), append(raws, b.Raw)
	}
	end := l.End()
	there := map[string]int64{}
	for _, i := range l.Segments() {
		there[i.Name] = int64(i.Len)
	}
	must(t, l.Close())
	s.disk.Kill()
	pool, err := s.disk.Open()
	must(t, err)
	dir, err := pool.Volume(testDir)
	must(t, err)
	before, err := Size(dir)
	must(t, err)
	if freed, err := Shed(dir, testVolume, nil); freed != 0 || err != nil {
		t.Fatalf("%d bytes are freed that no store has: %v", freed, err)
	}
	freed, err := Shed(dir, testVolume, there)
	must(t, err)
	after, err := Size(dir)
	must(t, err)
	if freed <= 0 || before-after != freed || after <= 0 {
		t.Fatalf("%d bytes of %d are freed, %d are left", freed, before, after)
	}
	if again, err := Shed(dir, testVolume, there); again != 0 || err != nil {
		t.Fatal(again, err)
	}
	l = s.restart(t)
	if l.End() != end {
		t.Fatalf("the log ends at %v, not at %v", l.End(), end)
	}
	wantBlocks(t, l, refs, raws)
	must(t, l.Close())
}
