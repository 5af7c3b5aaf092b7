// SPDX-License-Identifier: Apache-2.0

package log

import "testing"

// TestUnstore: a segment whose object is being replaced is not evicted, not even after a crash, and
// is offered for an upload when that is over, or after the crash.
func TestUnstore(t *testing.T) {
	s := newSetup(7)
	l, _, _, _, _ := stored(t, &s)
	first, other := l.Segments()[0], l.Segments()[1]
	must(t, l.MarkStored(first.Name, other.Name))
	stored := l.StoredBytes()
	done, err := l.Unstore(first.Name)
	must(t, err)
	if now, _ := l.Segment(first.Seq); now.Uploaded || l.StoredBytes() != stored-first.Len {
		t.Fatalf("%+v, %d bytes are stored", now, l.StoredBytes())
	}
	wantErr(t, l.Evict(first.Seq), ErrNotUploaded)
	if _, err := l.Unstore(first.Name); err == nil {
		t.Error("it is unstored twice")
	}
	for _, w := range l.Unstored(0, l.End(), 10) {
		if w.Seq == first.Seq {
			t.Error("it is uploaded while its object is being replaced")
		}
	}
	// A crash in between.
	l = s.restart(t)
	wantErr(t, l.Evict(first.Seq), ErrNotUploaded)
	must(t, l.Evict(other.Seq))
	if w := l.Unstored(0, l.End(), 1); len(w) != 1 || w[0].Seq != first.Seq {
		t.Errorf("after a crash %+v waits", w)
	}
	// It comes to its end.
	must(t, l.MarkStored(first.Name))
	done2, err := l.Unstore(first.Name)
	must(t, err)
	done2()
	if w := l.Unstored(0, l.End(), 1); len(w) != 1 || w[0].Seq != first.Seq {
		t.Errorf("afterwards %+v waits", w)
	}
	must(t, l.MarkStored(first.Name))
	must(t, l.Evict(first.Seq))
	_, err = l.Unstore(first.Name)
	wantErr(t, err, ErrNotLocal)
	_, err = l.Unstore("none")
	wantErr(t, err, ErrNotClosed)
	done() // of the log before the crash: nothing happens
	must(t, l.Close())
}
