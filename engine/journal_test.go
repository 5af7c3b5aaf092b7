// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
)

// memJournal is a Journal in memory. The test decides what is committed, what is lost, and who is
// home. An appended record is durable at once, and committed at once unless hold is set.
type memJournal struct {
	mu      sync.Mutex
	machine journal.Machine // nil: no machine is called
	entries []journal.Entry
	blocks  map[segment.BlockRef][]byte
	counter uint64
	commit  segment.Position
	term    int  // of the role, so that waits of an old one end
	home    bool // this gateway is home
	hold    bool // commits wait for release
	changed chan struct{}

	// Runs before Append returns, when the record is in the log and, unless hold is set, committed.
	appended   func()
	waits      int    // calls of WaitCommitted that got beyond beforeWait
	beforeWait func() // runs once, before the next wait for a commit
	mayServe   error
	known      func(context.Context, segment.Position) error // nil: nobody reads under a lease
	isBounded  bool                                          // readers may be shown what is up to recent
	recent     segment.Position
	asked      func() // runs before MayServe answers
}

func newMemJournal() *memJournal {
	return &memJournal{blocks: make(map[segment.BlockRef][]byte), home: true, changed: make(chan struct{})}
}

// end returns where the log ends. The caller holds mu.
func (j *memJournal) end() segment.Position {
	if n := len(j.entries); n > 0 {
		return j.entries[n-1].End
	}
	return segment.Position{}
}

func (j *memJournal) Append(ctx context.Context, rec *segment.Record) (segment.Position, error) {
	end, err := j.add(ctx, rec)
	if err == nil && j.appended != nil {
		j.appended()
	}
	return end, err
}

func (j *memJournal) add(ctx context.Context, rec *segment.Record) (segment.Position, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return segment.Position{}, err
	}
	if !j.home {
		return segment.Position{}, journal.ErrNotHome
	}
	if _, err := segment.Prepare(rec); err != nil {
		return segment.Position{}, err
	}
	end := j.end()
	end.Seq = 1
	end.Off += 1000
	kept := *rec
	kept.Blocks = nil
	for i := range rec.Blocks {
		b := &rec.Blocks[i]
		j.counter++
		pack := bytes.Clone(b.Pack)
		if pack == nil {
			pack = segment.Pack(b.Raw, segment.None) // PackAll left it as it is
		}
		b.Ref = segment.BlockRef{Seq: 1, Off: 128 + 100*j.counter, Len: uint32(len(pack)) + 16, Counter: j.counter}
		j.blocks[b.Ref] = pack
		kept.Blocks = append(kept.Blocks, segment.Block{Size: len(b.Raw), Ref: b.Ref})
	}
	// A follower gets decoded records, which share no memory with the home's.
	kept.Ops = cloneOps(rec.Ops)
	j.machine.Show(rec, end)
	j.entries = append(j.entries, journal.Entry{Record: &kept, End: end})
	if !j.hold {
		j.advance(end)
	}
	return end, nil
}

func cloneOps(ops []segment.Op) []segment.Op {
	out := make([]segment.Op, len(ops))
	for i, op := range ops {
		out[i] = segment.Op{Kind: op.Kind, Key: bytes.Clone(op.Key), Value: bytes.Clone(op.Value),
			End: bytes.Clone(op.End), Block: op.Block}
	}
	return out
}

// advance commits up to pos. The caller holds mu.
func (j *memJournal) advance(pos segment.Position) {
	if j.commit.Less(pos) {
		j.commit = pos
	}
	if j.machine != nil {
		j.machine.Committed(j.commit)
	}
	j.wake()
}

func (j *memJournal) wake() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// release commits everything and clears hold.
func (j *memJournal) release() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.hold = false
	j.advance(j.end())
}

func (j *memJournal) holdCommits() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.hold = true
}

// setHome begins or ends the role.
func (j *memJournal) setHome(home bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.home = home
	j.term++
	j.wake()
}

// truncate loses what is not committed, as a takeover does. It may lose more.
func (j *memJournal) truncate() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.entries) > 0 && j.commit.Less(j.end()) {
		j.entries = j.entries[:len(j.entries)-1]
	}
}

func (j *memJournal) Ready(ctx context.Context) error { return ctx.Err() }

func (j *memJournal) SealAhead([]segment.Block) {}

func (j *memJournal) WaitKnown(ctx context.Context, pos segment.Position) error {
	j.mu.Lock()
	known := j.known
	j.mu.Unlock()
	if known != nil {
		return known(ctx, pos)
	}
	return nil
}

func (j *memJournal) WaitCommitted(ctx context.Context, pos segment.Position) error {
	j.mu.Lock()
	if f := j.beforeWait; f != nil {
		j.beforeWait = nil
		j.mu.Unlock()
		f()
		j.mu.Lock()
	}
	j.waits++
	term := j.term
	for {
		done, lost, ch := pos.Compare(j.commit) <= 0, !j.home || j.term != term, j.changed
		j.mu.Unlock()
		switch {
		case done:
			return nil
		case lost:
			return journal.ErrNotHome
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
		j.mu.Lock()
	}
}

func (j *memJournal) Bounded() (segment.Position, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.recent, j.isBounded
}

func (j *memJournal) MayServe() error {
	if j.asked != nil {
		j.asked()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mayServe
}

func (j *memJournal) WaitRoom(context.Context) error { return journal.ErrFull }

func (j *memJournal) ReadBlocks(_ context.Context, refs []segment.BlockRef) ([][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out [][]byte
	for _, ref := range refs {
		pack, ok := j.blocks[ref]
		if !ok {
			return nil, fmt.Errorf("no block at %+v", ref)
		}
		raw, err := segment.Unpack(pack, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, raw)
	}
	return out, nil
}

// after returns the entries that end after pos, and the commit position.
func (j *memJournal) after(pos segment.Position) ([]journal.Entry, segment.Position) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []journal.Entry
	for _, en := range j.entries {
		if pos.Less(en.End) {
			out = append(out, en)
		}
	}
	return out, j.commit
}

// forgetBlocks frees the memory of blocks that nobody will read.
func (j *memJournal) forgetBlocks() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.blocks)
}
