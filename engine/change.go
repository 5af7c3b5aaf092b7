// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/track"
	"github.com/weir-storage/weir/volume"
)

// tx is a change while it is computed. It has no effect until its record is appended.
type tx struct {
	tree
	now    time.Time
	stamp  uint64           // the record's number; 0 until number is called
	used   *meta.Accounting // nil unless the accounting changes
	dirty  []*meta.Inode
	gone   []volume.Handle // inodes that the record deletes; they are marked for deletion
	ops    []segment.Op
	blocks []segment.Block
	size   int // bytes of keys and values in ops
	keeping
}

// begin returns a change on top of everything that was appended. The caller holds turn.
func (e *Engine) begin() (*tx, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, errClosed
	case e.failed != nil:
		return nil, e.failed
	case !e.leading:
		return nil, journal.ErrNotHome
	}
	// Round and UTC strip the monotonic reading and the zone, which the record does not carry. So a
	// repeat gets the same times as the first execution.
	t := &tx{now: e.cfg.Now().Round(0).UTC()}
	t.engine, t.home, t.changing, t.epoch, t.end, t.applied = e, true, true, e.epoch, e.end, e.applied
	var over *meta.Overlay
	if !e.overlay.Empty() {
		over = e.overlay.Copy()
	}
	// A live view suffices. The caller holds turn, so the store only gains what over already has.
	t.view = e.store.Live(over)
	t.view.Keep(e.rows.view(true))
	return t, nil
}

// number returns the number of the record that t will become. See the package comment.
func (t *tx) number() (uint64, error) {
	if t.stamp == 0 {
		e := t.engine
		if e.counter+1 >= 1<<40 {
			return 0, fmt.Errorf("epoch %d has no numbers left, let another gateway be home: %w", e.epoch, volume.ErrNoSpace)
		}
		e.counter++
		t.stamp = e.epoch<<40 | e.counter
	}
	return t.stamp, nil
}

func (t *tx) set(key, value []byte) {
	t.preserve(key)
	t.size += len(key) + len(value)
	t.ops = append(t.ops, segment.Op{Kind: segment.Set, Key: key, Value: value})
}

func (t *tx) setBlock(key, value []byte, block int) {
	t.preserve(key)
	t.ops = append(t.ops, segment.Op{Kind: segment.SetBlock, Key: key, Value: value, Block: block})
}

func (t *tx) delete(key []byte) {
	t.preserve(key)
	t.ops = append(t.ops, segment.Op{Kind: segment.Delete, Key: key})
}

// deleteRange deletes what no snapshot can show.
func (t *tx) deleteRange(lo, hi []byte) {
	t.ops = append(t.ops, segment.Op{Kind: segment.DeleteRange, Key: lo, End: hi})
}

// changed notes that n must be written. It is called once for each inode.
func (t *tx) changed(n *meta.Inode) {
	for _, d := range t.dirty {
		if d == n {
			return
		}
	}
	t.dirty = append(t.dirty, n)
}

// add notes a new inode.
func (t *tx) add(n *meta.Inode) {
	t.inodes.put(n)
	t.changed(n)
}

// account adds to what the volume uses. It returns ErrNoSpace if the sum exceeds the volume's room.
func (t *tx) account(bytes, inodes int64) error {
	if bytes == 0 && inodes == 0 {
		return nil
	}
	a, err := t.using()
	if err != nil {
		return err
	}
	if bytes < 0 && a.Bytes < uint64(-bytes) || inodes < 0 && a.Inodes < uint64(-inodes) {
		return fmt.Errorf("volume uses %d bytes and %d inodes, %d and %d are to go: %w", a.Bytes, a.Inodes, -bytes, -inodes, errDamaged)
	}
	a.Bytes += uint64(bytes)
	a.Inodes += uint64(inodes)
	if room := t.engine.room.bytes.Load(); bytes > 0 && a.Bytes > room {
		return fmt.Errorf("the volume would have more than the %d bytes that it may have: %w", room, volume.ErrNoSpace)
	}
	if room := t.engine.room.inodes.Load(); inodes > 0 && a.Inodes > room {
		return fmt.Errorf("the volume has the %d files that it may have: %w", room, volume.ErrNoSpace)
	}
	t.used = &a
	return nil
}

// countHeld adds what the change does to what only snapshots hold, if that is counted.
func (t *tx) countHeld() error {
	if t.held == 0 && !t.counts || t.broken != nil {
		return nil
	}
	a, err := t.using()
	if err != nil || !a.Counted && !t.counts {
		return err
	}
	if a.Counted = t.held >= 0 || a.Held >= uint64(-t.held); a.Counted {
		a.Held += uint64(t.held)
	} else { // it is a figure that people look at: nothing else depends on it
		t.engine.log.Error("snapshots hold less than nothing: what they hold is not counted any more", "held", a.Held, "gone", -t.held)
		a.Held = 0
	}
	t.used = &a
	return nil
}

// using is what the volume uses after the change so far.
func (t *tx) using() (meta.Accounting, error) {
	if t.used != nil {
		return *t.used, nil
	}
	return t.accounting()
}

// record returns t as a record, or nil if t changes nothing.
func (t *tx) record(id volume.OpID, result []byte) (*segment.Record, error) {
	rec := &segment.Record{Epoch: t.engine.epoch, Time: t.now.UnixNano(), Blocks: t.blocks, Touched: t.touched}
	for _, h := range t.gone {
		rec.Touched = append(rec.Touched, h.Ino)
	}
	for _, n := range t.dirty {
		rec.Touched = append(rec.Touched, n.Ino)
		t.set(n.Encode())
	}
	if err := t.countHeld(); err != nil {
		return nil, err
	}
	if t.used != nil {
		t.set(t.used.Encode())
	}
	if t.broken != nil || len(t.ops) == 0 {
		return nil, t.broken
	}
	rec.Ops = t.ops
	if id.Slot != "" {
		rec.Slot, rec.Seq, rec.Index, rec.Result = id.Slot, id.Seq, id.Index, result
	}
	return rec, nil
}

// appendRecord appends a record. The caller holds turn, so the log and the overlay have the same
// order. If the log does not know whether it has the record, the record is shown to nobody, and
// shown is false.
func (e *Engine) appendRecord(ctx context.Context, rec *segment.Record, unstable bool) (end segment.Position, shown bool, err error) {
	e.appending.unstable, e.appending.shown, e.appending.under = unstable, false, true
	end, err = e.journal.Append(ctx, rec)
	e.appending.under = false
	if err != nil {
		return segment.Position{}, false, err
	}
	return end, e.appending.shown, nil
}

// Show implements journal.Leader. From now on the next change sees the record. So does every read
// that begins after another gateway could have shown it. Show runs inside appendRecord's call of
// Append.
func (e *Engine) Show(rec *segment.Record, end segment.Position) {
	e.appending.shown = true
	p := pendingRecord{
		end: end, epoch: rec.Epoch, ops: meta.Operations(rec), touched: rec.Touched, unstable: e.appending.unstable, record: true,
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.overlay.Apply(p.ops, end)
	if v, err := versionsIn([][]segment.Op{p.ops}); err == nil && v != nil {
		e.rolling.Store(v.Rolling)
	}
	e.queue(p)
	e.kick()
}

// notRolling returns ErrDelay while the volume is being rolled back, but to who does that.
func (e *Engine) notRolling(ctx context.Context) error {
	if e.rolling.Load() != 0 && ctx.Value(rollingKey{}) == nil {
		return fmt.Errorf("the volume is being made what it was in a snapshot: %w", volume.ErrDelay)
	}
	return nil
}

type rollingKey struct{}

// change runs f in the critical section, once for each r.ID (protocol-22). It returns when the
// outcome is committed. An unstable change returns earlier, when the changes that its outcome
// reveals are committed.
func change[T any](ctx context.Context, e *Engine, r volume.Request, p place, c codec[T], unstable bool,
	f func(t *tx) (T, error)) (T, error) {
	value, _, err := changeAt(ctx, e, r, p, c, unstable, f)
	return value, err
}

// maxKept is how often a change is tried whose keys must be in the history before it.
const maxKept = 200

// changeAt is change that also returns the position at which the change's record ends. The position
// is zero if the change has no record, or one that is already in the store.
func changeAt[T any](ctx context.Context, e *Engine, r volume.Request, p place, c codec[T], unstable bool,
	f func(t *tx) (T, error)) (T, segment.Position, error) {
	var zero T
	fail := func(err error) (T, segment.Position, error) { return zero, segment.Position{}, e.wrap(p, err) }
	if len(r.ID.Slot) > maxSlot {
		return fail(volume.ErrInvalid)
	}
	free, end := patient(ctx, r)
	defer end()
	done, err := execute(free, e, r, c, unstable, f)
	for tries := 0; ; tries++ {
		var more *moreError
		var werr error
		switch {
		case errors.Is(err, journal.ErrFull):
			werr = e.waitRoom(free)
		case !errors.As(err, &more):
		case tries == maxKept:
			werr = fmt.Errorf("%w: %w while snapshots are taken all the time", volume.ErrDelay, err)
		default:
			werr = e.keepRange(free, p, more.lo, more.hi)
		}
		if werr != nil {
			err = werr
		}
		if werr != nil || more == nil && !errors.Is(err, journal.ErrFull) {
			break
		}
		done, err = execute(free, e, r, c, unstable, f)
	}
	wait := free
	if done.recorded {
		wait = ctx // the change has a record: only its commit tells the outcome
	}
	werr := e.waitCommitted(wait, done.shown)
	early := done.end // what is acknowledged before it is committed
	if early.Less(done.data) {
		early = done.data
	}
	if werr == nil && !done.proved && early != (segment.Position{}) {
		werr = e.journal.WaitKnown(wait, early)
	}
	// A committed record of this epoch proves that no other gateway became home in between. Any
	// other outcome needs the members' promises (protocol-4).
	if werr == nil && !done.proved {
		werr = e.mayServe()
		for werr != nil && done.recorded && e.leads(done.epoch) && e.moment(ctx) {
			// The change has a record, so it was executed. A client that repeated it would only
			// wait for that record's commit. So wait for the promises here.
			werr = e.mayServe()
		}
	}
	if werr == nil && done.epoch != 0 && !e.leads(done.epoch) {
		// The record may have been dropped, and another record may end at its position now.
		werr = journal.ErrNotHome
	}
	switch {
	case werr != nil && done.recorded:
		// The cause is not wrapped. It may be an ErrDelay, which would say that nothing was
		// changed.
		return fail(fmt.Errorf("%w: commit of record at %s: %s", volume.ErrUnknown, done.shown, werr.Error()))
	case werr != nil:
		return fail(werr)
	case err != nil:
		return fail(err)
	}
	return done.value, done.end, nil
}

// patient returns a context for what r waits for while it has changed nothing. It ends when ctx
// ends, when r is to yield, or when end is called. The caller must call end.
func patient(ctx context.Context, r volume.Request) (_ context.Context, end func()) {
	if r.Yield == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(r.Yield, cancel)
	return ctx, func() { stop(); cancel() }
}

// waitRoom waits until a change that found no room in the log may be tried again. It returns an
// error if waiting is of no use: that of ctx, if that has ended, else journal.ErrFull.
func (e *Engine) waitRoom(ctx context.Context) error {
	wait, end := track.Begin(ctx, track.Room)
	defer end()
	switch err := e.journal.WaitRoom(wait); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, journal.ErrFull):
		return err
	default:
		return fmt.Errorf("%w: %w", journal.ErrFull, err)
	}
}

// mayServe returns the journal's answer as an outcome of the volume contract.
func (e *Engine) mayServe() error {
	if err := e.journal.MayServe(); err != nil {
		return fmt.Errorf("%w: %v", volume.ErrDelay, err)
	}
	return nil
}

// moment waits 10 ms and returns true. It returns false when ctx ends first.
func (e *Engine) moment(ctx context.Context) bool {
	select {
	case <-e.cfg.Clock.After(10 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

// executed is the result of a change's critical section. It may be returned to the client when
// shown is committed, provided that this gateway led in the epoch all the time.
type executed[T any] struct {
	value    T
	epoch    uint64           // 0: this gateway did not lead
	shown    segment.Position // end of the last record that the result reveals
	end      segment.Position // end of the change's own record; zero if that is not pending
	data     segment.Position // end of the last record with data that a result without a record reveals
	recorded bool             // the change may have a record
	proved   bool             // the commit of shown proves that the result may be returned
}

// execute runs the critical section of change. If that panics while it appends, the engine has
// failed: others may have and commit a record that it would never apply (protocol-8).
func execute[T any](ctx context.Context, e *Engine, r volume.Request, c codec[T], unstable bool,
	f func(t *tx) (T, error)) (x executed[T], err error) {
	if err := e.throttle(ctx); err != nil {
		return x, err
	}
	if err := e.journal.Ready(ctx); err != nil {
		return x, err
	}
	if err := e.enterTurn(ctx); err != nil {
		return x, err
	}
	defer e.unlock()
	returned := false
	defer func() {
		if !returned && e.appending.under { // whoever recovers from the panic does not know what the log has
			e.fail(fmt.Errorf("%w: a mistake in the program ended a change, which may be in the log and not be shown", journal.ErrNotHome))
		}
	}()
	x, err = inTurn(ctx, e, r, c, unstable, f)
	returned = true
	return x, err
}

// inTurn is execute for a caller that holds turn.
func inTurn[T any](ctx context.Context, e *Engine, r volume.Request, c codec[T], unstable bool,
	f func(t *tx) (T, error)) (x executed[T], err error) {
	t, err := e.begin()
	if err != nil {
		return x, err
	}
	x.epoch = t.epoch
	if err := e.notRolling(ctx); err != nil {
		return x, err
	}
	defer func() { e.undoom(t.gone) }()
	if done, err := e.recorded(t, r.ID); err != nil {
		return x, err
	} else if done != nil {
		if done.err == nil {
			x.value, err = c.decode(done.result)
		}
		// A result from the log may have been returned to the client before.
		x.shown, x.recorded, x.proved = done.pos, done.logged, done.logged
		if done.logged {
			x.end = done.pos
		}
		return x, errors.Join(done.err, err)
	}
	x.value, err = f(t)
	var rec *segment.Record
	if err == nil {
		rec, err = t.record(r.ID, c.encode(x.value))
	}
	x.shown = e.waitFor(&t.tree)
	if rec == nil {
		x.data = e.dataFor(&t.tree)
		e.remember(r.ID, transientResult{err: err, pos: x.shown, result: c.encode(x.value)})
		return x, err
	}
	unstable = unstable && len(t.touched) == 0 // a moment that was shown stays
	end, shown, err := e.appendRecord(ctx, rec, unstable)
	if err != nil {
		return x, err
	}
	x.end, x.recorded = end, true
	// If the record was not shown, wait for its commit. That wait ends with the role.
	if !unstable || !shown {
		x.shown, x.proved = end, true
	}
	return x, nil
}
