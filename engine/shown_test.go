// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// TestShownBeforeItIsCommitted reads at the home while the goroutine of a change is stopped right
// after the change got into the log. By then other gateways may have acknowledged it and shown it.
// So the home must show it too.
func TestShownBeforeItIsCommitted(t *testing.T) {
	h := newHost(t, nil)
	ctx := t.Context()
	f := newFile(t, h, volume.Root, "f")
	looked := 0
	during := func(look func()) {
		h.journal.appended = func() { h.journal.appended = nil; looked++; look() }
	}
	during(func() {
		p := make([]byte, 9)
		if n, _, err := h.Read(ctx, asRoot, f, 0, p); err != nil || string(p[:n]) != "new" {
			t.Errorf("a write that is committed reads as %q, %v", p[:n], err)
		}
	})
	if _, err := h.Write(ctx, asRoot, f, 0, []byte("new"), true); err != nil {
		t.Fatal(err)
	}
	during(func() {
		_, err := h.Lookup(ctx, asRoot, volume.Root, "f")
		wantOutcome(t, "lookup of a name whose removal is committed", err, volume.ErrNotExist)
	})
	if _, err := h.Remove(ctx, asRoot, volume.Root, "f"); err != nil {
		t.Fatal(err)
	}
	if looked != 2 {
		t.Errorf("looked %d times", looked)
	}
}

// pair is a home and an engine that gets its log.
type pair struct {
	*host
	follower *Engine
	journal  *memJournal // of the follower; decides whether it may serve
	file     volume.Handle
}

// newPair returns a pair that has a file of the name "old" at both.
func newPair(t *testing.T) *pair {
	h := newHost(t, nil)
	p := &pair{host: h, journal: newMemJournal()}
	p.follower = openEngine(t, vfs.NewMem(), p.journal, nil)
	t.Cleanup(func() {
		if err := p.follower.Close(); err != nil {
			t.Error(err)
		}
	})
	p.journal.machine = p.follower
	p.file = newFile(t, h, volume.Root, "f")
	p.write("old")
	p.feed()
	p.follower.Committed(p.follower.lastEnd())
	if err := p.follower.WaitApplied(t.Context(), p.follower.lastEnd()); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pair) write(text string) {
	p.Helper()
	if _, err := p.Write(p.Context(), asRoot, p.file, 0, []byte(text), true); err != nil {
		p.Fatal(err)
	}
}

// feed has the follower ingest what the log has, committed or not.
func (p *pair) feed() segment.Position {
	p.Helper()
	entries, _ := p.host.journal.after(p.follower.lastEnd())
	if err := p.follower.Ingest(entries); err != nil {
		p.Fatal(err)
	}
	return p.follower.lastEnd()
}

// size reads the size of the file at the follower, as operations do.
func (p *pair) size(ctx context.Context, during func()) (uint64, error) {
	return read(ctx, p.follower, place{op: "test", ino: p.file.Ino}, func(t *tree) (uint64, error) {
		n, err := t.inode(p.file)
		during()
		if err != nil {
			return 0, err
		}
		return n.Size, nil
	})
}

// TestLeaseFromTheFirstLookOn begins a read at a follower that may not serve. By the end of the
// read it may. In between, the others went on without it. What they acknowledged is in its log, but
// not in what the read saw.
func TestLeaseFromTheFirstLookOn(t *testing.T) {
	p := newPair(t)
	p.write("newer") // without the follower
	p.journal.mayServe = volume.ErrDelay
	_, err := p.size(t.Context(), func() {
		p.feed()
		p.journal.mayServe = nil
	})
	wantOutcome(t, "read that began without a lease", err, volume.ErrDelay)
	p.feed()
	p.journal.mayServe = nil
	if size, err := p.size(t.Context(), func() { p.follower.Committed(p.follower.lastEnd()) }); err != nil || size != uint64(len("newer")) {
		t.Errorf("read with a lease: %d bytes, %v", size, err)
	}
}

// TestFollowerBecomesHomeWhileItReads: the second look of a read that began at a follower happens
// at a home. It waits for the commit of everything that it shows.
func TestFollowerBecomesHomeWhileItReads(t *testing.T) {
	p := newPair(t)
	p.host.journal.holdCommits()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = p.Write(ctx, asRoot, p.file, 0, []byte("newer"), true) }()
	waitFor(func() bool { e, _ := p.host.journal.after(p.follower.lastEnd()); return len(e) > 0 })
	p.journal.entries = []journal.Entry{{End: p.feed()}} // pending at the follower
	looks := 0
	size, err := p.size(ctx, func() {
		looks++
		if looks > 1 {
			cancel() // it waits for a commit that does not come
			return
		}
		p.follower.Committed(p.follower.lastEnd())
		p.journal.holdCommits()
		if err := p.follower.Lead(ctx, p.epoch+1); err != nil {
			t.Error(err)
		}
		go func() { _, _ = p.follower.Write(ctx, asRoot, p.file, 0, []byte("the newest"), true) }()
		waitFor(func() bool { return p.follower.Touched(p.file.Ino) != (segment.Position{}) })
	})
	wantOutcome(t, "read of what is not committed", err, volume.ErrDelay)
	if looks != 2 {
		t.Errorf("looked %d times, read %d bytes", looks, size)
	}
}

// TestFollowerMayServeWhatItSawAsHome: a read looks at a home. When it asks whether it may answer,
// that home has become a member with a lease, and others were home in between.
func TestFollowerMayServeWhatItSawAsHome(t *testing.T) {
	h := newHost(t, nil)
	f := newFile(t, h, volume.Root, "f")
	for _, again := range []bool{false, true} { // it is home again by then
		asked := 0
		h.rows.namespace.Store(h.cache.namespace()) // otherwise it is answered without a view, see TestQuicklyNeedsTheRole
		h.journal.asked = func() {
			if asked++; asked != 2 {
				return // before the first look, or caused by what is done below
			}
			h.journal.setHome(false)
			h.Unlead()
			if again {
				h.lead()
			}
		}
		_, err := h.GetAttr(t.Context(), asRoot, f)
		wantOutcome(t, "read of what was seen in another role", err, volume.ErrDelay)
		if asked < 2 {
			t.Errorf("asked %d times", asked)
		}
		h.journal.asked = nil
		if !again {
			h.lead()
		}
	}
}

// TestWriteTellsItsEnd: the position that a write returns shows which records are later.
func TestWriteTellsItsEnd(t *testing.T) {
	h := newHost(t, nil)
	f, g := newFile(t, h, volume.Root, "f"), newFile(t, h, volume.Root, "g")
	h.journal.holdCommits()
	defer h.journal.release()
	write := func(f volume.Handle, slot string, seq uint32) segment.Position {
		_, end, err := h.WriteAt(t.Context(), volume.Request{ID: volume.OpID{Slot: slot, Seq: seq}}, f, 0, []byte("x"), false)
		if err != nil {
			t.Error(err)
		}
		return end
	}
	for seq := range uint32(3) {
		end := write(f, "s", seq)
		if end != h.lastEnd() {
			t.Errorf("write %d ends at %v; the log at %v", seq, end, h.lastEnd())
		}
		if other := write(g, "t", seq); !end.Less(other) {
			t.Errorf("the next write ends at %v", other)
		}
	}
}
