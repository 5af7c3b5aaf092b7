// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// BeginEpoch makes this process the one that appends. It closes the current segment, which fsyncs
// it, and begins the next one, of the new epoch, under a new salt. It returns the position at which
// the log ended, which the control record's history notes as the start of the epoch. The new
// segment's header is part of the log. When BeginEpoch returns, the whole log is durable. Errors:
// ErrStaleEpoch if epoch is not after the last one, ErrDoubt, cachepool.ErrFull.
func (l *Log) BeginEpoch(epoch uint64) (start Position, err error) {
	l.writer.Lock()
	defer l.writer.Unlock()
	if err := l.writable(); err != nil {
		return Position{}, err
	}
	if last := l.last(); epoch == 0 || last != nil && epoch <= last.header.Epoch {
		var had uint64
		if last != nil {
			had = last.header.Epoch
		}
		return Position{}, fmt.Errorf("begin epoch %d after epoch %d: %w: the next must be greater", epoch, had, ErrStaleEpoch)
	}
	start = l.End()
	return start, l.next(epoch)
}

// Roll closes the current segment, so that it can be uploaded, and begins the next one of the same
// epoch. It does nothing if the current one has no records.
func (l *Log) Roll() error {
	l.writer.Lock()
	defer l.writer.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if l.sealer == nil {
		return fmt.Errorf("roll segment: %w: call BeginEpoch", ErrNoEpoch)
	}
	last := l.last()
	if last.len == segment.HeaderSize {
		return nil
	}
	return l.next(last.header.Epoch)
}

// NewSalt makes the next Append begin a segment, whether or not the last one has records: what a
// twin of this machine's memory seals under the present salt must not be sealed under it again
// (protocol-16). An Append that fails, or a Log that does not append yet, does not forget it.
func (l *Log) NewSalt() { l.saltDue.Store(true) }

// Viewer shows records at the home. It is the part of journal.Leader that a log needs.
type Viewer interface {
	Show(rec *segment.Record, end Position)
}

// ShowTo has v show every record that Append adds from now on (journal-1). Append calls v.Show
// after it wrote the record, under the lock under which Read, End and the other methods begin to
// include it. So nobody can have the record, let alone commit it, before Show has returned. A
// record that was not shown is not in the log, unless Append returned ErrPoisoned. Show must not
// wait, and must not call the log.
func (l *Log) ShowTo(v Viewer) {
	l.writer.Lock()
	defer l.writer.Unlock()
	l.viewer = v
}

// Append seals rec and adds it to the log. It sets rec's Epoch and its blocks' Ref. Before it takes
// a lock, it compresses blocks that have no Pack yet. The record is not durable until Sync(end) has
// made it so. A large one may still be on its way to the page cache: if the process dies, it is
// lost. Errors: ErrPoisoned, ErrNoEpoch, cachepool.ErrFull, segment.ErrTooLarge, ErrDoubt. All but
// ErrPoisoned leave the log unchanged.
func (l *Log) Append(rec *segment.Record) (end Position, err error) {
	p, err := segment.Prepare(rec)
	if err != nil {
		return Position{}, err
	}
	l.writer.Lock()
	defer l.writer.Unlock()
	if err := l.writable(); err != nil {
		return Position{}, err
	}
	if l.sealer == nil {
		return Position{}, fmt.Errorf("append: %w: call BeginEpoch", ErrNoEpoch)
	}
	if err := l.reserveRecord(p.Size(), removes(rec)); err != nil {
		return Position{}, err
	}
	last := l.last()
	large := last.len > segment.HeaderSize && int64(last.len)+int64(p.Size()) > l.cfg.SegmentSize
	if large || l.saltDue.Load() {
		if err := l.next(last.header.Epoch); err != nil {
			l.cfg.Room.Release(int64(p.Size()))
			return Position{}, err
		}
		last = l.last()
	}
	c := l.tail.place(last.end(), p.Size(), p.Ahead())
	buf, err := l.sealer.Seal(c.buf, p, last.len)
	if err != nil {
		l.cfg.Room.Release(int64(p.Size()))
		return Position{}, err
	}
	if err := l.write(buf[len(c.buf):], c); err != nil {
		return Position{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail.add(c, buf)
	l.grown(p.Size())
	if l.viewer != nil {
		l.viewer.Show(rec, l.end)
	}
	return l.end, nil
}

// SealAhead seals the blocks of one record, so that Append need not do it while others wait. It
// does nothing if Append would begin another segment, or not seal at all. See segment.Sealer.Ahead.
func (l *Log) SealAhead(blocks []segment.Block) {
	if s := l.newest.Load(); s != nil && !l.saltDue.Load() {
		s.Ahead(blocks)
	}
}

// write puts bytes at the end of the current segment. They must not change any more; if they are of
// a chunk of the tail, as long as that is used. The caller has reserved room for them, and calls
// grown afterwards.
func (l *Log) write(b []byte, of *chunk) error {
	off := int64(l.last().len)
	end := off + int64(len(b))
	var err error
	if later := of != nil && of.own || l.cur.busy(); later {
		err = l.cur.add(b, off, of)
	} else {
		_, err = l.cur.WriteAt(b, off)
	}
	if err != nil {
		return l.fail("write "+fileName(l.cur.seq), err)
	}
	l.used(off, end)
	l.hash.add(b, of)
	if l.cur.busy() { // much is written
		return nil
	}
	return l.zeroes(end)
}

// grown publishes n bytes that were written. The caller holds writer and mu.
func (l *Log) grown(n int) {
	last := l.last()
	l.update(last, func(s *seg) { s.len += uint64(n) })
	l.end = last.end()
	l.unsynced += int64(n)
	if l.unsynced >= l.cfg.SyncBytes {
		l.want = l.end
		l.kick()
	}
}

// next begins a segment that this process seals.
func (l *Log) next(epoch uint64) (err error) {
	if l.saltDue.Swap(false) { // before the salt is drawn: who asks from now on wants another one
		defer func() {
			if err != nil {
				l.saltDue.Store(true)
			}
		}()
	}
	number, key := l.cfg.Keys.Newest()
	h := segment.Header{Volume: l.cfg.Volume, Seq: l.End().Seq + 1, Epoch: epoch, Key: number, Prev: l.nextLink()}
	if l.cfg.Blind {
		return l.nextBlind(h)
	}
	s, err := segment.NewSealer(&key, h, l.cfg.Rand)
	if err != nil {
		return err
	}
	if err := l.begin(s.Header()); err != nil {
		return err
	}
	l.sealer = s
	l.newest.Store(s)
	return nil
}

// nextBlind begins a segment in which nothing will be sealed.
func (l *Log) nextBlind(h segment.Header) (err error) {
	if last := l.last(); last != nil {
		h.Key = last.header.Key
	}
	if h.Salt, err = segment.NewSalt(l.cfg.Rand); err != nil {
		return fmt.Errorf("begin segment %d: %w", h.Seq, err)
	}
	return l.begin(h)
}

// nextLink returns the link to the predecessor for the next segment's header. The caller holds
// writer.
func (l *Log) nextLink() segment.Link {
	last := l.last()
	if last == nil {
		return l.base
	}
	link := last.link()
	if !last.closed {
		link.Hash = l.hash.sum()
	}
	return link
}

// begin closes the current segment and starts the file of the next one with its header h. The
// caller holds writer.
func (l *Log) begin(h segment.Header) error {
	if err := l.start(h); err != nil {
		return err
	}
	return l.noteClosed()
}

// start is begin without the note of what was closed.
func (l *Log) start(h segment.Header) error {
	if other, ok := l.sealedUnder(h.Salt); ok {
		return fmt.Errorf("begin segment %d: its salt is that of segment %d (protocol-16): the source of randomness repeats itself",
			h.Seq, other)
	}
	// The header may use the reserve. Without it no gateway could lead, and no segment could be
	// closed for upload.
	if err := l.reserve(segment.HeaderSize, true); err != nil {
		return err
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.cutZeros(); err != nil {
		return err
	}
	if err := l.syncLocked(); err != nil {
		return err
	}
	if invariants {
		l.checkClosing()
	}
	cur, err := l.files.create(h.Seq)
	if err != nil {
		l.cfg.Room.Release(segment.HeaderSize)
		if errors.Is(err, cachepool.ErrFull) { // nothing is there, so it can be tried again
			return fmt.Errorf("begin segment %d: %w", h.Seq, err)
		}
		return l.fail("create "+fileName(h.Seq), err)
	}
	frame := segment.AppendHeader(nil, h)
	_, err = cur.WriteAt(frame, 0)
	if err == nil {
		err = cur.Sync()
	}
	if err == nil {
		err = l.cfg.Dir.Sync()
	}
	if err != nil {
		l.files.release(cur)
		return l.fail("begin "+fileName(h.Seq), err)
	}
	if l.sealer != nil {
		l.sealer.Stop()
		l.sealer = nil
	}
	l.hash = newHasher(blake3.New())
	l.hash.add(frame, nil)
	if err := l.advance(Position{Seq: h.Seq, Off: uint64(len(frame))}); err != nil {
		l.files.release(cur)
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.last(); last != nil {
		l.update(last, func(s *seg) { s.closed, s.hash = true, h.Prev.Hash })
		l.unnoted = append(l.unnoted, last.header.Seq)
	}
	if l.cur != nil {
		l.files.release(l.cur)
	}
	l.cur, l.size = cur, 0
	l.addSeg(seg{header: h, local: true})
	c := l.tail.space(Position{Seq: h.Seq}, len(frame))
	l.tail.add(c, append(c.buf, frame...))
	l.grown(len(frame))
	if l.poison != nil {
		return l.poison
	}
	l.durable, l.unsynced = l.end, 0
	l.announce()
	return nil
}

// checkClosing compares the running hash with the file. The caller holds writer.
func (l *Log) checkClosing() {
	last := l.last()
	if last == nil || last.closed {
		return
	}
	h := blake3.New()
	if n, err := io.Copy(h, io.NewSectionReader(l.cur, 0, int64(last.len))); err != nil || uint64(n) != last.len {
		return // a read error is not a broken invariant
	}
	if sum(h) != l.hash.sum() {
		panic(fmt.Sprintf("log: file and hash of segment %d differ (protocol-9)", last.header.Seq))
	}
}
