// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weir-storage/weir/engine/segment"
)

// Replay calls fn for everything after from, up to the end that the log has when Replay is called.
// fn gets headers and decoded records. Replay stops at fn's first error, and with ErrGap if the log
// is truncated meanwhile.
//
// Of a record in a file on this pool, Replay reads what is not sealed and the sealed meta, whose
// tag vouches for both, and skips the blocks. Damage in those is found when they are read, and by
// Heal. What does not verify is read whole, from another copy if there is one.
func (l *Log) Replay(ctx context.Context, from Position, fn func(Entry) error) error {
	l.mu.Lock()
	end, gen := l.end, l.gen
	l.mu.Unlock()
	pos := from
	for pos.Less(end) {
		if next, err := l.replayFile(pos, end, gen, fn); err != nil {
			return err
		} else if next != pos {
			pos = next
			continue
		}
		b, next, err := l.read(ctx, pos, l.replayWhole(pos), true)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if l.truncatedSince(gen) {
			return fmt.Errorf("replay after %v: the log was truncated: %w", pos, ErrGap)
		}
		if err != nil {
			return err
		}
		off := next.Off - uint64(len(b))
		for len(b) > 0 {
			size, header, err := segment.FrameSize(b)
			if err != nil {
				return err
			}
			e, err := l.decode(next.Seq, b[:size], off, header)
			if err != nil && l.truncatedSince(gen) {
				err = fmt.Errorf("replay after %v: the log was truncated: %w", pos, ErrGap)
			}
			if err != nil {
				return err
			}
			if end.Less(e.End) {
				return nil
			}
			if err := fn(e); err != nil {
				return err
			}
			off += uint64(size)
			b = b[size:]
		}
		pos = next
	}
	return nil
}

// replayWhole returns how many bytes of whole frames are to be read next: only a header, if the
// rest of its segment can be replayed from its file.
func (l *Log) replayWhole(from Position) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.find(from.Seq); ok && from.Off < s.len {
		return maxRead / 4
	}
	if s, ok := l.find(from.Seq + 1); ok && s.local {
		return segment.HeaderSize
	}
	return maxRead / 4
}

// replayFile is Replay of the records of one segment, by their outlines. It returns where it
// stopped: at the end of the segment, at end, or before what is no record here that verifies.
// Errors are those of fn.
func (l *Log) replayFile(from, end Position, gen uint64, fn func(Entry) error) (next Position, err error) {
	l.mu.Lock()
	s, ok := seg{}, false
	if sp, here := l.find(from.Seq); here && l.usable() == nil {
		s, ok = *sp, sp.local && from.Off >= segment.HeaderSize && from.Off < sp.len
	}
	l.mu.Unlock()
	if !ok {
		return from, nil
	}
	o, err := l.opener(s.header)
	if err != nil {
		return from, nil
	}
	h, err := l.files.acquire(from.Seq)
	if err != nil {
		return from, nil
	}
	defer l.files.release(h)
	w := window{file: h, end: s.len}
	for from.Off < s.len {
		rec, size := w.outline(o, from.Off)
		if rec == nil || l.truncatedSince(gen) {
			return from, nil // whoever reads it whole says what is wrong
		}
		next := Position{Seq: from.Seq, Off: from.Off + uint64(size)}
		if end.Less(next) {
			return end, nil
		}
		if err := fn(Entry{End: next, Record: rec}); err != nil {
			return from, err
		}
		from = next
	}
	return from, nil
}

// window reads outlines from a file, one after the other.
type window struct {
	file io.ReaderAt
	end  uint64 // of what may be read
	off  uint64 // of buf in the file
	buf  []byte
	mem  []byte // of buf
	out  []byte // an outline; reused
}

const (
	// seekRead is how much is read behind a gap: a meta and the beginning of the next record. Over
	// a gap of at most this, reading on costs less than another read.
	seekRead = 8 << 10
	// longRead is how much is read if there is no gap.
	longRead = 128 << 10
)

// bytes returns n bytes from off, which are valid until the next call; nil: they cannot be read.
func (w *window) bytes(off uint64, n int) []byte {
	if off+uint64(n) > w.end || off+uint64(n) < off {
		return nil
	}
	if have := w.off + uint64(len(w.buf)); off < w.off || off+uint64(n) > have {
		size := uint64(longRead)
		if off < w.off || off > have+seekRead {
			size = seekRead
		}
		size = min(max(size, uint64(n)), w.end-off)
		if uint64(cap(w.mem)) < size {
			w.mem = make([]byte, size)
		}
		w.off, w.buf = off, w.mem[:size]
		if readFull(w.file, w.buf, int64(off)) != nil {
			w.buf = nil
			return nil
		}
	}
	return w.buf[off-w.off : off-w.off+uint64(n)]
}

// outline returns the record whose frame begins at off, and the frame's length; nil: there is none
// that verifies.
func (w *window) outline(o *segment.Opener, off uint64) (rec *segment.Record, size int) {
	b := w.bytes(off, segment.OutlinePrefix)
	if b == nil {
		return nil, 0
	}
	size, plain, meta, ok := segment.OutlineParts(b)
	if !ok {
		return nil, 0
	}
	if b = w.bytes(off, plain); b == nil {
		return nil, 0
	}
	w.out = append(w.out[:0], b...)
	if b = w.bytes(off+uint64(size-meta), meta); b == nil {
		return nil, 0
	}
	w.out = append(w.out, b...)
	rec, n, err := o.DecodeOutline(w.out, off)
	if err != nil || n != size {
		return nil, 0
	}
	return rec, size
}
