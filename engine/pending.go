// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/track"
	"github.com/weir-storage/weir/volume"
)

// pendingRecord is a record that is in the log and not in the store.
type pendingRecord struct {
	end      segment.Position
	epoch    uint64
	ops      []segment.Op // resolved
	touched  []uint64
	size     int  // bytes of keys and values
	unstable bool // its data is shown before it is committed
	record   bool // else it is the beginning of a segment
}

const (
	// persistAfter is how many segments may be applied and not durable. Then the metadata are
	// flushed, so that little is replayed after a crash.
	persistAfter = 4
	// persistMost is when the applier waits for that flush.
	persistMost = 8

	applyBytes = 1 << 20  // about the most bytes of keys and values in one batch
	lagBytes   = 32 << 20 // changes wait while this much is committed and not applied
)

// Applied returns the position up to which records are in the store. After Open it is the state
// that a crash left, and a replay begins there.
func (e *Engine) Applied() segment.Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.applied
}

// Persist implements journal.Follower.
func (e *Engine) Persist(pos segment.Position) (segment.Position, error) {
	e.mu.Lock()
	kept, applied := e.kept, e.applied
	e.mu.Unlock()
	if pos.Compare(kept) <= 0 {
		return kept, nil
	}
	if err := e.store.Flush(); err != nil {
		return kept, fmt.Errorf("write metadata up to %s to the disk: %w", applied, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.kept.Less(applied) {
		e.kept = applied
	}
	return e.kept, nil
}

// Ingest queues records that a follower or a replay received, in log order. They become visible
// when Committed reports them as committed. After an error the rest of entries is not queued.
func (e *Engine) Ingest(entries []journal.Entry) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, en := range entries {
		if e.leading {
			return fmt.Errorf("ingest record at %s: this gateway is the home, records begin here", en.End)
		}
		if !e.end.Less(en.End) {
			return fmt.Errorf("ingest record at %s: the log is known up to %s, drop that first", en.End, e.end)
		}
		p := pendingRecord{end: en.End}
		if en.Record != nil {
			p.record = true
			p.epoch, p.ops, p.touched = en.Record.Epoch, meta.Operations(en.Record), en.Record.Touched
		}
		e.queue(p)
	}
	e.kick()
	return nil
}

// queue adds a record to what is pending. The caller holds mu.
func (e *Engine) queue(p pendingRecord) {
	p.size = 0
	for _, op := range p.ops {
		p.size += len(op.Key) + len(op.Value) + len(op.End)
	}
	e.lag += p.size
	e.pending = append(e.pending, p)
	e.end = p.end
	e.epoch = max(e.epoch, p.epoch)
	touched := e.names
	if p.unstable {
		touched = e.data
	}
	for _, ino := range p.touched {
		touched[ino] = p.end
	}
}

// Records is a log that a gateway has on its pool.
type Records interface {
	// Replay calls f with what comes after a position, in order, until f fails.
	Replay(ctx context.Context, after segment.Position, f func(journal.Entry) error) error
}

// Replay queues what the log has after Applied, of which everything up to committed is certainly
// committed. It applies that meanwhile. So it needs no more memory than changes do, however long
// the log is. The caller calls it before Attach.
func (e *Engine) Replay(ctx context.Context, log Records, committed segment.Position) error {
	e.Committed(committed)
	return log.Replay(ctx, e.Applied(), func(en journal.Entry) error {
		if err := e.throttle(ctx); err != nil {
			return err
		}
		return e.Ingest([]journal.Entry{en})
	})
}

// Committed implements journal.Follower: all records up to pos are committed. It does not wait
// until they are applied.
func (e *Engine) Committed(pos segment.Position) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.commit.Less(pos) {
		e.commit = pos
		e.kick()
	}
}

// kick starts the applier if there is something to apply. The caller holds mu.
func (e *Engine) kick() {
	if e.applying || e.failed != nil || e.closed || e.committed(applyBytes) == 0 {
		return
	}
	e.applying = true
	go e.apply()
}

// committed returns how many pending records can be applied in one batch of about limit bytes,
// which are all in one segment. The caller holds mu.
func (e *Engine) committed(limit int) int {
	n, size := 0, 0
	for n < len(e.pending) && size < limit && e.pending[n].end.Compare(e.commit) <= 0 &&
		e.pending[n].end.Seq == e.pending[0].end.Seq {
		size += e.pending[n].size
		n++
	}
	return n
}

// apply moves committed records to the store until there are none.
func (e *Engine) apply() {
	runtime.Gosched() // those who wait for the commit go first: nobody waits for this
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		n := e.committed(applyBytes)
		if n > 0 && e.persisting && e.failed == nil && e.applied.Seq >= e.kept.Seq+persistMost {
			ch := e.moved
			e.mu.Unlock()
			<-ch
			e.mu.Lock()
			continue
		}
		if n == 0 || e.failed != nil {
			e.applying = false
			e.notify()
			return
		}
		// Nothing else takes records from the front while applying is set.
		batch := e.pending[:n:n]
		after := e.store.State()
		after.Position = batch[n-1].end
		ops := make([][]segment.Op, n)
		records := false // else there are only beginnings of segments
		for i, p := range batch {
			ops[i] = p.ops
			records = records || p.record
			after.Epoch = max(after.Epoch, p.epoch)
		}
		versions, err := versionsIn(ops)
		if versions != nil && versions.Rolling != 0 && !e.leading { // before anybody sees half of it
			e.rolling.Store(versions.Rolling)
		}
		e.mixing = true
		e.mu.Unlock()
		if err == nil && records {
			err = e.listSegments(after.Position.Seq)
		}
		if err == nil {
			var more []segment.Op
			more, err = e.askedIn(ops, after.Position.Seq)
			ops = append(ops, more)
		}
		if err == nil {
			err = e.store.Apply(ops, after)
		}
		e.rows.applied(ops, err == nil, e.cache.namespace)
		e.countSpace(ops)
		if err != nil {
			e.fail(fmt.Errorf("apply records up to %s: %w", after.Position, err))
		}
		e.mu.Lock()
		e.mixing = false
		if perr := e.pass(); perr != nil {
			e.log.Error("metadata of before a batch are still held", "error", perr)
		}
		if err != nil {
			continue
		}
		e.applied = after.Position
		if versions != nil && !e.leading { // a home knew it when it showed the record
			e.rolling.Store(versions.Rolling)
		}
		for _, p := range batch {
			e.lag -= p.size
			if e.overlay != nil {
				e.overlay.Drop(p.ops, e.applied)
			}
			for _, ino := range p.touched {
				forget(e.names, ino, e.applied)
				forget(e.data, ino, e.applied)
			}
		}
		e.pending = append([]pendingRecord(nil), e.pending[n:]...)
		if !e.persisting && e.unkept() {
			e.persisting = true
			go e.persist()
		}
		e.notify()
	}
}

// unkept reports that much is applied and not durable. The caller holds mu.
func (e *Engine) unkept() bool { return e.applied.Seq >= e.kept.Seq+persistAfter }

// persist makes durable what is applied, while the applier goes on, until little is not.
func (e *Engine) persist() {
	var err error
	e.mu.Lock()
	defer e.mu.Unlock()
	for err == nil && e.failed == nil && e.unkept() {
		pos := e.applied
		e.mu.Unlock()
		_, err = e.Persist(pos)
		e.mu.Lock()
		e.notify()
	}
	if err != nil {
		e.log.Warn("more than usual is replayed after a crash", "error", err)
	}
	e.persisting = false
	e.notify()
}

// fail ends the work of the engine, once. The caller does not hold mu: whoever hears of it may hold
// locks under which others wait for mu.
func (e *Engine) fail(why error) {
	e.mu.Lock()
	if e.failed != nil {
		e.mu.Unlock()
		return
	}
	e.failed = why
	told := !e.closed && e.store != nil // else Open returns it
	e.notify()
	e.mu.Unlock()
	if told {
		e.log.Error("the copy stops here", "error", why)
		e.cfg.Failed(why)
	}
}

func forget(m map[uint64]segment.Position, ino uint64, applied segment.Position) {
	if pos, ok := m[ino]; ok && pos.Compare(applied) <= 0 {
		delete(m, ino)
	}
}

// notify wakes everyone who waits for applied or pending to change. The caller holds mu.
func (e *Engine) notify() {
	close(e.moved)
	e.moved = make(chan struct{})
}

// WaitApplied waits until all records up to pos are in the store. It returns the error of ctx if
// that ends first.
func (e *Engine) WaitApplied(ctx context.Context, pos segment.Position) error {
	return e.wait(ctx, func() bool { return pos.Compare(e.applied) <= 0 })
}

// wait returns when ready is true. It calls ready with mu held.
func (e *Engine) wait(ctx context.Context, ready func() bool) error {
	e.mu.Lock()
	for {
		ok, failed, ch := ready(), e.failed, e.moved
		e.mu.Unlock()
		switch {
		case ok:
			return nil
		case failed != nil:
			return failed
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
		e.mu.Lock()
	}
}

// Drop forgets the pending records that end after the given position, where a takeover cut the log.
// It fails if one of them was applied. Then the metadata must be rebuilt from a checkpoint
// (protocol-6).
func (e *Engine) Drop(after segment.Position) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.leading:
		return errors.New("drop records: this gateway is the home, call Unlead first")
	case after.Less(e.applied):
		return fmt.Errorf("drop records after %s: metadata has them up to %s, rebuild it from a checkpoint", after, e.applied)
	case after.Less(e.commit) && after.Less(e.end):
		return fmt.Errorf("drop records after %s: they are committed up to %s", after, e.commit)
	}
	keep := len(e.pending)
	for keep > 0 && after.Less(e.pending[keep-1].end) {
		keep--
	}
	rest := e.pending[:keep]
	e.pending, e.end, e.lag = nil, e.applied, 0
	clear(e.names)
	clear(e.data)
	for _, p := range rest {
		e.queue(p)
	}
	// A forced takeover may cut off what was committed. Positions after the cut will be used again.
	e.commit = segment.Earlier(e.commit, after)
	e.cacheGen = e.cache.namespace()
	e.notify()
	return nil
}

// Lead makes this gateway the home in a new epoch. From now on it executes changes. Lead waits
// until all pending records are applied, so they must be committed, or be so soon. The Journal must
// accept records already. The first Lead of an empty volume makes its root. After an error, Lead
// may be called again with the same epoch.
func (e *Engine) Lead(ctx context.Context, epoch uint64) error {
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.unlock()
	if err := e.wait(ctx, func() bool { return e.applied == e.end }); err != nil {
		return fmt.Errorf("lead in epoch %d: %w", epoch, err)
	}
	e.mu.Lock()
	if epoch <= e.epoch || epoch >= 1<<24 || e.leading {
		defer e.mu.Unlock()
		return fmt.Errorf("lead in epoch %d: the volume is in epoch %d (home here: %t); an epoch must be greater and below 2^24",
			epoch, e.epoch, e.leading)
	}
	before := e.epoch
	e.leading, e.epoch = true, epoch
	if e.numbered != epoch {
		e.numbered, e.counter = epoch, 0
	}
	e.overlay = meta.NewOverlay()
	e.transient = make(map[string]*transientSlot)
	e.mu.Unlock()
	if err := e.makeRoot(ctx); err != nil {
		e.mu.Lock()
		e.epoch = before // nothing was appended in this one
		e.mu.Unlock()
		e.follow()
		return fmt.Errorf("lead in epoch %d: %w", epoch, err)
	}
	return nil
}

// Unlead ends the role of home. The Journal must refuse records already, so that an Append that is
// under way ends; Unlead waits for it. A change whose commit is unknown ends when
// Journal.WaitCommitted returns. Records that were appended stay pending until Committed or Drop.
func (e *Engine) Unlead() {
	e.turn <- struct{}{}
	e.follow()
	e.unlock()
}

func (e *Engine) follow() {
	e.holding.open(e.cfg.Clock.Now(), "")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leading = false
	e.overlay = nil
	e.transient = nil
	if v, err := (&tree{engine: e, view: e.store.Live(nil)}).versionsOf(); err == nil {
		e.rolling.Store(v.Rolling) // what was not applied may be dropped
	}
	// A follower shows nothing before it is applied, stable or not. That also holds after Drop,
	// which queues the records again.
	for i := range e.pending {
		e.pending[i].unstable = false
	}
	for ino, pos := range e.data {
		if e.names[ino].Less(pos) {
			e.names[ino] = pos
		}
	}
	clear(e.data)
	e.notify()
}

// Behind implements journal.Follower.
func (e *Engine) Behind() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.behind()
}

// behind reports that the applier is too far behind. The caller holds mu.
func (e *Engine) behind() bool {
	return e.lag >= lagBytes && e.pending[0].end.Compare(e.commit) <= 0
}

// throttle waits while the applier is too far behind.
func (e *Engine) throttle(ctx context.Context) error {
	e.mu.Lock()
	ready := !e.behind() && e.failed == nil
	e.mu.Unlock()
	if ready {
		return nil
	}
	ctx, end := track.Begin(ctx, track.Turn)
	defer end()
	return e.wait(ctx, func() bool { return !e.behind() })
}

// lock begins a critical section.
func (e *Engine) lock(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case e.turn <- struct{}{}:
		return nil
	default:
	}
	ctx, end := track.Begin(ctx, track.Turn)
	defer end()
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *Engine) unlock() { <-e.turn }

// makeRoot makes the root directory if there is none. The caller holds turn.
func (e *Engine) makeRoot(ctx context.Context) error {
	t, err := e.begin()
	if err != nil {
		return err
	}
	if _, err := t.inode(volume.Root); !errors.Is(err, volume.ErrDelay) {
		return err
	}
	number, err := t.number()
	if err != nil {
		return err
	}
	root := &meta.Inode{Parent: volume.Root, Attr: volume.Attr{
		Handle: volume.Root, Type: volume.Directory, Mode: e.cfg.RootMode, Nlink: 2, Change: number,
		Atime: t.now, Mtime: t.now, Ctime: t.now, Btime: t.now,
	}}
	t.versions = &meta.VersionsOf{Level: 1} // there is nothing before it that a moment could have
	t.add(root)
	t.used = &meta.Accounting{Inodes: 1}
	rec, err := t.record(volume.OpID{}, nil)
	if err == nil {
		_, _, err = e.appendRecord(ctx, rec, false)
	}
	return err
}
