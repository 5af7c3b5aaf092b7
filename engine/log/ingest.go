// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"context"
	"fmt"

	"github.com/weir-storage/weir/engine/segment"
)

// Ingest adds whole frames, as Read returned them elsewhere, to a follower's log. from is their
// start, and must not lie after the end. Frames that the log already has are compared and skipped.
// New frames are verified, and decoded with the key if there is one. A header must name this log's
// last segment, hash included. Ingest returns the new entries. They are valid, and in the log, even
// with an error. Nothing is durable before a Sync. The caller keeps ownership of frames.
//
// Errors: ErrGap; ErrDiverged (find the common prefix and truncate); ErrStaleEpoch;
// segment.ErrCorrupt or segment.ErrShort when frames are damaged; cachepool.ErrFull; ErrDoubt.
func (l *Log) Ingest(from Position, frames []byte) ([]Entry, error) {
	l.writer.Lock()
	defer l.writer.Unlock()
	if err := l.writable(); err != nil {
		return nil, err
	}
	frames, err := l.skipKnown(from, frames)
	if err != nil || len(frames) == 0 {
		return nil, err
	}
	// From here on the segment contains what another process sealed (protocol-16).
	if l.sealer != nil {
		l.sealer.Stop()
		l.sealer = nil
	}
	l.mu.Lock()
	l.tail.reset()
	l.mu.Unlock()
	in := ingest{l: l}
	for len(frames) > 0 {
		f, err := segment.Next(frames)
		if err == nil {
			err = in.frame(f)
		}
		if err != nil {
			if ferr := in.flush(); ferr != nil {
				err = ferr
			}
			return in.entries, fmt.Errorf("ingest after %v: %w", l.End(), err)
		}
		frames = frames[len(f.Bytes):]
	}
	return in.entries, in.flush()
}

// skipKnown returns the part of frames that lies after the end. The caller holds writer.
func (l *Log) skipKnown(from Position, frames []byte) ([]byte, error) {
	pos, err := l.normal(from)
	if err != nil {
		return nil, fmt.Errorf("ingest from %v: %w", from, err)
	}
	for pos != l.End() && len(frames) > 0 {
		ours, next, err := l.read(context.Background(), pos, len(frames), false)
		if err != nil {
			return nil, fmt.Errorf("ingest from %v: compare with what is here: %w", from, err)
		}
		if !bytes.HasPrefix(frames, ours) {
			return nil, fmt.Errorf("ingest from %v: %w after %v", from, ErrDiverged, pos)
		}
		frames, pos = frames[len(ours):], next
	}
	return frames, nil
}

// ingest collects the records of one segment for one write.
type ingest struct {
	l       *Log
	entries []Entry // in the log
	pending []byte
	waiting []arrived // of pending
}

// arrived is a record that may use the room that is reserved for removals, if it is urgent.
type arrived struct {
	Entry
	urgent bool
}

func (in *ingest) frame(f segment.Frame) error {
	if f.IsHeader {
		if err := in.flush(); err != nil {
			return err
		}
		return in.header(f.Bytes)
	}
	l, last := in.l, in.l.last()
	if last == nil || last.closed {
		return fmt.Errorf("a record where a segment must begin: %w", ErrDiverged)
	}
	if e := segment.FrameEpoch(f.Bytes); e != last.header.Epoch {
		return fmt.Errorf("a record of epoch %d, segment %d here is of epoch %d: %w", e, last.header.Seq, last.header.Epoch, ErrDiverged)
	}
	off := last.len + uint64(len(in.pending))
	e := Entry{End: Position{Seq: last.header.Seq, Off: off + uint64(len(f.Bytes))}}
	if !l.cfg.Blind {
		var err error
		if e, err = l.decode(last.header.Seq, f.Bytes, off, false); err != nil {
			return err
		}
	}
	urgent := removes(e.Record) || l.cfg.Blind && segment.FrameBlocks(f.Bytes) == 0 // it may remove something
	in.pending = append(in.pending, f.Bytes...)
	in.waiting = append(in.waiting, arrived{e, urgent})
	return nil
}

// flush adds what was collected to the log: all of it, or what comes before the first record that
// finds no room. After an error nothing is left to flush.
func (in *ingest) flush() error {
	l := in.l
	n, waiting, full := in.admit()
	frames := in.pending[:n]
	in.pending, in.waiting = nil, nil // what is in the log must not change
	if n > 0 {
		if err := l.write(frames, nil); err != nil {
			return err
		}
		l.mu.Lock()
		l.grown(n)
		l.mu.Unlock()
		for _, w := range waiting {
			in.entries = append(in.entries, w.Entry)
		}
	}
	return full
}

// admit reserves room for what was collected. It returns what found room, and why the rest did not.
func (in *ingest) admit() (n int, found []arrived, full error) {
	l := in.l
	if len(in.pending) == 0 || l.reserveRecord(len(in.pending), false) == nil {
		return len(in.pending), in.waiting, nil
	}
	start := l.last().len
	for i, w := range in.waiting {
		size := int(w.End.Off-start) - n
		if err := l.reserveRecord(size, w.urgent); err != nil {
			return n, in.waiting[:i], err
		}
		n += size
	}
	return n, in.waiting, nil
}

// header begins a segment that another log began.
func (in *ingest) header(frame []byte) error {
	l := in.l
	h, err := segment.DecodeHeader(frame)
	if err != nil {
		return err
	}
	if h.Volume != l.cfg.Volume {
		return fmt.Errorf("segment %d is of volume %x, not %x", h.Seq, h.Volume, l.cfg.Volume)
	}
	want := l.nextLink()
	if h.Seq != want.Seq+1 || h.Prev != want {
		return fmt.Errorf("segment %d follows %d of %d bytes, hash %x; here that is %d of %d bytes, hash %x: %w",
			h.Seq, h.Prev.Seq, h.Prev.Len, h.Prev.Hash, want.Seq, want.Len, want.Hash, ErrDiverged)
	}
	if last := l.last(); last != nil && h.Epoch < last.header.Epoch || h.Epoch == 0 {
		return fmt.Errorf("segment %d is of epoch %d: %w", h.Seq, h.Epoch, ErrStaleEpoch)
	}
	if _, err := l.opener(h); err != nil && !l.cfg.Blind { // a copy that cannot read it does not count on it
		return err
	}
	if err := l.begin(h); err != nil {
		return err
	}
	in.entries = append(in.entries, Entry{End: l.End(), Header: &h})
	return nil
}
