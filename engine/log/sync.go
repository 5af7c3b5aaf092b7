// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"fmt"
	"time"
)

// Sync asks that the log become durable up to a position, and returns. Requests that come while an
// fsync runs share the next one.
func (l *Log) Sync(upTo Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if upTo.Compare(l.end) > 0 {
		upTo = l.end
	}
	if l.want.Less(upTo) {
		l.want = upTo
	}
	l.kick()
}

// OnDurable registers fn. The log calls fn when it has become durable up to a position, and once
// with an error when it was poisoned. Calls come one at a time, in order, outside locks. They are
// only a wake-up. A call that began before a Truncate may still bring a position that was cut off.
// So a caller that truncates relies on Durable, under its own lock under which it truncates.
func (l *Log) OnDurable(fn func(Position, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.callbacks = append(l.callbacks, fn)
}

// Wait asks for durability up to a position and waits for it. Errors: ErrPoisoned, ErrClosed,
// ErrGap if the position lies after the end (it may have been truncated), or the error of ctx.
func (l *Log) Wait(ctx context.Context, upTo Position) error {
	l.Sync(upTo)
	for {
		l.mu.Lock()
		done, err, changed := upTo.Compare(l.durable) <= 0, l.usable(), l.changed
		if err == nil && l.end.Less(upTo) {
			err = fmt.Errorf("wait for %v: %w at %v", upTo, ErrGap, l.end)
		}
		l.mu.Unlock()
		if err != nil || done {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// announce wakes the waiters and schedules the callbacks. The caller holds mu.
func (l *Log) announce() {
	l.wake()
	l.tell = !l.told
	l.kick()
}

// wake wakes the waiters. The caller holds mu.
func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// kick starts the syncer if there is something for it to do. The caller holds mu.
func (l *Log) kick() {
	if l.syncing || !l.tell && !(l.durable.Less(l.want) && l.usable() == nil) {
		return
	}
	l.syncing = true
	l.syncers.Add(1)
	go l.syncer()
}

func (l *Log) syncer() {
	defer l.syncers.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.tell:
			l.tell = false
			pos, fns := l.durable, l.callbacks
			var err error
			if l.noticed {
				err, l.told = l.poison, true
			}
			l.mu.Unlock()
			for _, fn := range fns {
				fn(pos, err)
			}
			l.mu.Lock()
		case l.durable.Less(l.want) && l.usable() == nil:
			l.mu.Unlock()
			_ = l.syncNow() // kept as the poison, which is reported
			l.mu.Lock()
		default:
			l.syncing = false
			return
		}
	}
}

// syncNow makes everything up to the present end durable. It takes syncMu.
func (l *Log) syncNow() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	return l.syncLocked()
}

// syncLocked is syncNow for a caller that holds syncMu.
func (l *Log) syncLocked() error {
	l.mu.Lock()
	if l.poison != nil {
		defer l.mu.Unlock()
		return l.poison
	}
	target, cur, unsynced := l.end, l.cur, l.unsynced
	clean := target == l.durable && !l.trimmed
	l.mu.Unlock()
	if clean || cur == nil {
		return nil
	}
	l.steady.Store(unsynced <= l.ahead/2)
	// The watermark of the fsync before is carried by this one.
	carried := make(chan error, 1)
	if l.mark.dirty {
		go func() { carried <- l.mark.sync() }()
	} else {
		carried <- nil
	}
	began := l.now()
	err := cur.Sync()
	if mark := <-carried; mark != nil {
		return l.fail("keep the watermark", mark)
	}
	if err != nil {
		return l.fail("fsync "+fileName(cur.seq), err)
	}
	l.trimmed = false
	if l.cfg.Synced != nil {
		l.cfg.Synced(l.now().Sub(began))
	}
	if err := l.advance(target); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.poison != nil {
		return l.poison // the note already says how far the log is durable
	}
	l.durable = target
	l.unsynced -= unsynced
	if invariants && l.end.Less(l.durable) {
		panic("log: durable after the end")
	}
	l.announce()
	return nil
}

// now is the time, if somebody wants to know.
func (l *Log) now() (t time.Time) {
	if l.cfg.Synced != nil {
		t = l.cfg.Now()
	}
	return t
}

// advance notes in the watermark that the log is durable up to a position, before anybody is told.
// The caller holds syncMu.
func (l *Log) advance(durable Position) error {
	l.mu.Lock()
	m := mark{durable: durable, committed: l.committed, lost: l.mark.lost}
	l.mu.Unlock()
	if err := l.mark.set(m); err != nil {
		return l.fail("keep the watermark", err)
	}
	return nil
}

// NoteCommitted notes that the log is committed up to a position, as far as it is durable. The
// next fsync keeps that, so a later Open knows it (Recovered.Committed).
func (l *Log) NoteCommitted(pos Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.durable.Less(pos) {
		pos = l.durable
	}
	if l.committed.Less(pos) {
		l.committed = pos
	}
}

// SyncWatermark makes durable how far the log is durable and committed. The watermark of an fsync
// is made durable by the next one, so who has nothing more to sync calls it after a while. It does
// nothing if that is durable already. Errors: ErrPoisoned, ErrClosed, ErrDoubt.
func (l *Log) SyncWatermark() error {
	if err := l.writable(); err != nil {
		return err
	}
	return l.syncWatermark()
}

func (l *Log) syncWatermark() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	durable, committed, known := l.durable, l.committed, l.settled && l.doubt == nil && l.poison == nil
	l.mu.Unlock()
	if !known {
		return nil
	}
	if l.mark.committed != committed {
		if err := l.advance(durable); err != nil {
			return err
		}
	}
	if err := l.mark.sync(); err != nil {
		return l.fail("keep the watermark", err)
	}
	return nil
}

// Disown makes this log one that lost something, durably: another copy knows that something is
// committed which this one does not have (protocol-3). From now on it is in doubt, and so it is
// when it is opened again.
func (l *Log) Disown(why error) error {
	l.writer.Lock()
	defer l.writer.Unlock()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	err := l.usable()
	l.doubt = why
	m := mark{durable: l.durable, committed: l.committed, lost: true}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if err := l.mark.begin(l.cfg.Dir, m); err != nil {
		return l.fail("keep the watermark", err)
	}
	return nil
}
