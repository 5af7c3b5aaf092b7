// SPDX-License-Identifier: Apache-2.0

package log

import (
	"fmt"
	"io"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/segment"
)

// BeginEpoch makes this process the one that appends: it closes the current
// segment (which fsyncs it) and begins the next one, of the new epoch, under a new
// salt. It returns where the log ended, which is what the control record's history
// says of the epoch. The new segment's header is part of the log; all of the log
// is durable then. Errors: ErrStaleEpoch if epoch is not after the last one,
// ErrDoubt, cachepool.ErrFull.
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

// Roll closes the current segment, so that it can be uploaded, and begins the
// next one of the same epoch. It does nothing if the current one has no records.
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

// Viewer shows records at the home. It is the part of journal.Leader that a log needs.
type Viewer interface {
	Show(rec *segment.Record, end Position)
}

// ShowTo has v show every record that Append adds from now on (journal-1). Append calls v.Show once
// the record is written, in the moment in which Read, End and all else begin to tell of it: nobody
// can have the record, let alone commit it, before Show has returned. Without that call the record
// is not in the log, unless Append returned ErrPoisoned. Show must not wait, nor call the log.
func (l *Log) ShowTo(v Viewer) {
	l.writer.Lock()
	defer l.writer.Unlock()
	l.viewer = v
}

// Append seals rec and adds it to the log. It sets rec's Epoch and its blocks'
// Ref, and compresses blocks that have no Pack yet (before it takes a lock). The
// record is not durable: Sync(end) asks for that. Errors leave the log as it was
// unless they are ErrPoisoned: ErrNoEpoch, cachepool.ErrFull, segment.ErrTooLarge, ErrDoubt.
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
	if err := l.reserve(p.Size(), removes(rec)); err != nil {
		return Position{}, err
	}
	last := l.last()
	if last.len > segment.HeaderSize && int64(last.len)+int64(p.Size()) > l.cfg.SegmentSize {
		if err := l.next(last.header.Epoch); err != nil {
			l.cfg.Room.Release(int64(p.Size()))
			return Position{}, err
		}
		last = l.last()
	}
	c := l.tail.space(last.end(), p.Size())
	buf, err := l.sealer.Seal(c.buf, p, last.len)
	if err != nil {
		l.cfg.Room.Release(int64(p.Size()))
		return Position{}, err
	}
	if err := l.write(buf[len(c.buf):]); err != nil {
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

// write puts bytes at the end of the current segment, for which room is reserved.
// grown must follow.
func (l *Log) write(b []byte) error {
	if _, err := l.cur.WriteAt(b, int64(l.last().len)); err != nil {
		return l.fail("write "+fileName(l.cur.seq), err)
	}
	_, _ = l.hash.Write(b) // never fails
	return nil
}

// grown publishes n bytes that were written. Under writer and mu.
func (l *Log) grown(n int) {
	last := l.last()
	last.len += uint64(n)
	l.end = last.end()
	l.unsynced += int64(n)
	if l.unsynced >= l.cfg.SyncBytes {
		l.want = l.end
		l.kick()
	}
}

// next begins a segment of our own.
func (l *Log) next(epoch uint64) error {
	h := segment.Header{Volume: l.cfg.Volume, Seq: l.End().Seq + 1, Epoch: epoch, Prev: l.nextLink()}
	s, err := segment.NewSealer(&l.cfg.DataKey, h, l.cfg.Rand)
	if err != nil {
		return err
	}
	if err := l.begin(s.Header()); err != nil {
		return err
	}
	l.sealer = s
	return nil
}

// nextLink is how the next segment's header must name its predecessor. Under writer.
func (l *Log) nextLink() segment.Link {
	last := l.last()
	if last == nil {
		return l.base
	}
	link := last.link()
	if !last.closed {
		link.Hash = sum(l.hash)
	}
	return link
}

// begin closes the current segment and starts the file of the next one with its
// header h. Under writer.
func (l *Log) begin(h segment.Header) error {
	for i := range l.segs {
		if l.segs[i].header.Salt == h.Salt {
			return fmt.Errorf("begin segment %d: its salt is that of segment %d (rule 16): the source of randomness repeats itself",
				h.Seq, l.segs[i].header.Seq)
		}
	}
	if err := l.reserve(segment.HeaderSize, true); err != nil { // without it nobody leads, and nothing is sealed for upload
		return err
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.syncLocked(); err != nil {
		return err
	}
	if invariants {
		l.checkClosing()
	}
	cur, err := l.files.create(h.Seq)
	if err != nil {
		l.cfg.Room.Release(segment.HeaderSize)
		return fmt.Errorf("begin segment %d: %w", h.Seq, err)
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
	l.hash = blake3.New()
	_, _ = l.hash.Write(frame) // never fails

	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.last(); last != nil {
		last.closed, last.hash = true, h.Prev.Hash
	}
	if l.cur != nil {
		l.files.release(l.cur)
	}
	l.cur = cur
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

// checkClosing compares the running hash with the file. Under writer.
func (l *Log) checkClosing() {
	last := l.last()
	if last == nil || last.closed {
		return
	}
	h := blake3.New()
	if n, err := io.Copy(h, io.NewSectionReader(l.cur, 0, int64(last.len))); err != nil || uint64(n) != last.len {
		return // a read error is not a broken invariant
	}
	if sum(h) != sum(l.hash) {
		panic(fmt.Sprintf("log: file and hash of segment %d differ (rule 9)", last.header.Seq))
	}
}
