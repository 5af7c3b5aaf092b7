// SPDX-License-Identifier: Apache-2.0

package log

import (
	"testing"

	"github.com/weir-storage/weir/engine/segment"
)

// TestLaterKey: from NewSalt on, what is appended is sealed with the newest data key, and the log
// says so after a restart, also of what is evicted. Who has only the first reads what came before.
func TestLaterKey(t *testing.T) {
	s := newSetup(1)
	s.keys = segment.NewKeys(testKey)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	appendSync(t, l, 1)
	s.keys.Add(map[uint32]segment.DataKey{1: {9}})
	appendSync(t, l, 2)
	if !s.keys.Use(1) || s.keys.Use(1) || s.keys.Use(2) {
		t.Error("the second key is not the newest")
	}
	before := appendSync(t, l, 3)
	l.NewSalt()
	end := appendSync(t, l, 4, 5)
	for range 2 {
		first, _ := l.HeaderOf(1)
		second, ok := l.HeaderOf(2)
		if first.Key != 0 || second.Key != 1 || !ok {
			t.Fatalf("segments are sealed with data keys %d, %d", first.Key, second.Key)
		}
		if got := lines(t, l, Position{}); len(got) != 7 { // two headers, five records
			t.Fatalf("it has %v", got)
		}
		l = s.restart(t)
	}
	frames, next, err := l.Read(t.Context(), Position{}, 1<<20)
	must(t, err)
	for next != end {
		var more []byte
		more, next, err = l.Read(t.Context(), next, 1<<20)
		must(t, err)
		frames = append(frames, more...)
	}
	// Another that has the first key only takes what that opens, and not the header of the next.
	other := newSetup(2)
	other.keys = segment.NewKeys(testKey)
	o := other.mustOpen(t)
	_, err = o.Ingest(Position{}, frames)
	wantErr(t, err, ErrNoKey)
	if o.End() != before {
		t.Errorf("it ends at %v, not %v", o.End(), before)
	}
	other.keys.Add(map[uint32]segment.DataKey{1: {9}})
	_, err = o.Ingest(Position{}, frames)
	must(t, err)
	if o.End() != end {
		t.Errorf("with the key it ends at %v, not %v", o.End(), end)
	}
}
