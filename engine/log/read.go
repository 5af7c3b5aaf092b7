// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weir-storage/weir/engine/segment"
)

// readFull fills p from off, or fails.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Read returns whole frames from a position on: at least one, and more up to max bytes, across
// segments. next is where they end. The caller may read frames, but must not change them. io.EOF
// means that from is the end of the log. Segments that were evicted, or whose file is damaged, come
// from the Sources. Frames are verified by checksum, and headers against the segment table. Errors:
// ErrGap, ErrUnreadable, and segment.ErrCorrupt if from is not the start of a frame.
func (l *Log) Read(ctx context.Context, from Position, max int) (frames []byte, next Position, err error) {
	next = from
	for {
		b, after, err := l.read(ctx, next, max-len(frames), true)
		switch {
		case err != nil && len(frames) > 0:
			return frames, next, nil // the next call meets the error again
		case err != nil:
			return nil, from, err
		case len(frames) == 0:
			frames = b
		case len(frames)+len(b) > max:
			return frames, next, nil
		default:
			frames = append(frames, b...)
		}
		next = after
		if len(frames) >= max {
			return frames, next, nil
		}
	}
}

// read returns whole frames of one segment, at least one.
func (l *Log) read(ctx context.Context, from Position, max int, remote bool) ([]byte, Position, error) {
	for {
		l.mu.Lock()
		b, s, off, err := l.locate(from, max)
		gen := l.gen
		l.mu.Unlock()
		if err != nil {
			return nil, from, err
		}
		if b == nil {
			b, err = l.readFrames(ctx, s, off, max, remote)
			l.mu.Lock()
			again := l.gen != gen
			l.mu.Unlock()
			if again {
				continue // a Truncate may have changed the file during the read
			}
			if err != nil {
				return nil, from, err
			}
		}
		return b, Position{Seq: s.header.Seq, Off: off + uint64(len(b))}, nil
	}
}

// locate finds the segment and offset of the frame after from, and its bytes if they are in memory.
// The caller holds mu.
func (l *Log) locate(from Position, max int) (b []byte, s seg, off uint64, err error) {
	if err := l.usable(); err != nil {
		return nil, s, 0, err
	}
	p, err := l.normal(from)
	if err != nil {
		return nil, s, 0, fmt.Errorf("read log from %v: %w", from, err)
	}
	if p == l.end {
		return nil, s, 0, io.EOF
	}
	if sp, ok := l.find(p.Seq); ok && p.Off < sp.len {
		s, off = *sp, p.Off
	} else if sp, ok := l.find(p.Seq + 1); ok && (p.Seq != l.base.Seq || p.Off == l.base.Len) {
		s = *sp
	} else {
		return nil, s, 0, fmt.Errorf("read log from %v: %w: the log begins with segment %d", from, ErrNotLocal, l.base.Seq+1)
	}
	return l.tail.get(Position{Seq: s.header.Seq, Off: off}, max), s, off, nil
}

// normal turns the start of a segment into the end of the one before, and checks that the position
// lies in the log. The caller holds mu or writer.
func (l *Log) normal(p Position) (Position, error) {
	if p.Off == 0 && p.Seq > 0 {
		if s, ok := l.find(p.Seq - 1); ok {
			p = s.end()
		} else if b := l.base; p.Seq == b.Seq+1 && len(l.segs) > 0 && l.segs[0].header.Prev == b {
			p = Position{Seq: b.Seq, Off: b.Len}
		}
	}
	if s, ok := l.find(p.Seq); l.end.Less(p) || ok && s.len < p.Off {
		return p, fmt.Errorf("%w at %v", ErrGap, l.end)
	}
	return p, nil
}

// maxRead is the most bytes that one read fetches.
const maxRead = 4 << 20

// readFrames reads whole frames of s from off, from the first copy that has them right.
func (l *Log) readFrames(ctx context.Context, s seg, off uint64, limit int, remote bool) ([]byte, error) {
	n := uint64(min(maxRead, max(limit, 4<<10)))
	n = min(n, s.len-off)
	var out []byte
	err := l.fromCopies(ctx, &s, off, remote, func(read readFunc, _ bool) error {
		b := make([]byte, n)
		if err := read(b, off); err != nil {
			return err
		}
		size, _, err := segment.FrameSize(b)
		if err != nil {
			return err
		}
		if uint64(size) > s.len-off {
			return &segment.CorruptError{Seq: s.header.Seq, Off: off, Field: "frame length"}
		}
		if size > len(b) {
			b = make([]byte, size)
			if err := read(b, off); err != nil {
				return err
			}
		}
		out, err = wholeFrames(&s, b, off, limit)
		return err
	})
	return out, err
}

// wholeFrames returns the verified whole frames at the start of b, which is at off of s: at least
// one, and more up to limit bytes.
func wholeFrames(s *seg, b []byte, off uint64, limit int) ([]byte, error) {
	n := 0
	for n < len(b) {
		f, err := segment.Next(b[n:])
		if errors.Is(err, segment.ErrShort) && n > 0 {
			break
		}
		if err == nil && f.IsHeader {
			if h, herr := segment.DecodeHeader(f.Bytes); herr != nil || off+uint64(n) != 0 || h != s.header {
				err = &segment.CorruptError{Field: "header", Why: "is not this segment's"}
			}
		} else if err == nil && (off+uint64(n) == 0 || segment.FrameEpoch(f.Bytes) != s.header.Epoch) {
			err = &segment.CorruptError{Field: "record epoch"}
		}
		if err != nil {
			return nil, fmt.Errorf("segment %d offset %d: %w", s.header.Seq, off+uint64(n), err)
		}
		if n > 0 && n+len(f.Bytes) > limit {
			break
		}
		n += len(f.Bytes)
	}
	return b[:n:n], nil
}

func (l *Log) truncatedSince(gen uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gen != gen
}

// decode turns a verified frame at off of segment seq into an Entry.
func (l *Log) decode(seq uint64, frame []byte, off uint64, header bool) (Entry, error) {
	e := Entry{End: Position{Seq: seq, Off: off + uint64(len(frame))}}
	if header {
		h, err := segment.DecodeHeader(frame)
		e.Header = &h
		return e, err
	}
	l.mu.Lock()
	s, ok := l.find(seq)
	var h segment.Header
	if ok {
		h = s.header
	}
	l.mu.Unlock()
	if !ok {
		return e, fmt.Errorf("decode record at %v: %w", e.End, ErrGap) // truncated meanwhile
	}
	o, err := l.opener(h)
	if err != nil {
		return e, err
	}
	e.Record, err = o.DecodeRecord(frame, off)
	return e, err
}
