// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/track"
)

// readFunc fills p from off of a segment.
type readFunc func(p []byte, off uint64) error

// fromCopies calls try with one copy of s after the other, nearest first, until it succeeds. It
// begins with the file, of which local says so. Then it tries each Source if the segment is closed,
// since only a closed segment has a name. It logs a copy that failed with segment and path
// (protocol-19). If all failed, it returns ErrUnreadable, which names them all. If the context
// ended, it returns the context's error. An outline asks other gateways all the time, and its owner
// asks the home for what it cannot read: that one copy is out of reach is only told with the rest.
func (l *Log) fromCopies(ctx context.Context, s *seg, off uint64, remote bool, try func(read readFunc, local bool) error) error {
	if s.dropped {
		return fmt.Errorf("read segment %d offset %d in %s: %w: %w", s.header.Seq, off, l.cfg.Dir.Path(), ErrUnreadable, ErrDropped)
	}
	var errs []error
	damaged := false // the file here, perhaps
	failed := func(path string, err error) {
		errs = append(errs, fmt.Errorf("%s: %w", path, err))
		level := slog.LevelError
		if l.outline != nil {
			level = slog.LevelDebug
		}
		l.cfg.Logger.LogAttrs(ctx, level, "a copy of a segment is bad or out of reach; trying the next",
			slog.Uint64("segment", s.header.Seq), slog.Uint64("offset", off), slog.String("path", path), slog.Any("error", err))
	}
	if s.local {
		err := l.tryFile(s.header.Seq, func(read readFunc) error { return try(read, true) })
		if err == nil {
			return nil
		}
		if now, ok := l.Segment(s.header.Seq); !ok || now.Local || !remote { // else it was evicted meanwhile
			failed(l.path(s.header.Seq), err)
			damaged = true
		}
	}
	if l.named(s) && remote {
		name := l.nameOf(s)
		for _, src := range l.Sources() {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := try(func(p []byte, off uint64) error {
				ctx, end := track.Begin(ctx, track.Fetch)
				defer end()
				return src.ReadSegment(ctx, name, int64(off), p)
			}, false)
			if err == nil {
				if damaged {
					l.repair(s.header.Seq)
				}
				return nil
			}
			if ctx.Err() != nil { // it says nothing of the copy
				return ctx.Err()
			}
			failed(src.String()+" "+name, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return fmt.Errorf("read segment %d offset %d in %s: %w: %w", s.header.Seq, off, l.cfg.Dir.Path(), ErrUnreadable, errors.Join(errs...))
}

// Sources returns the other places that may have closed segments, nearest first.
func (l *Log) Sources() []Source {
	if l.cfg.Sources == nil {
		return nil
	}
	return l.cfg.Sources()
}

func (l *Log) tryFile(seq uint64, try func(readFunc) error) error {
	h, err := l.files.acquire(seq)
	if err != nil {
		return err
	}
	defer l.files.release(h)
	return try(func(p []byte, off uint64) error { return readFull(h, p, int64(off)) })
}

// openers caches the keys of segments that are being read. The zero value is ready.
type openers struct {
	mu   sync.Mutex
	keys map[segment.Header]*segment.Opener
}

// maxOpeners bounds the cache. One opener takes about 1 KiB.
const maxOpeners = 256

// reads reports whether a segment can be opened here.
func (l *Log) reads(h segment.Header) bool {
	_, ok := l.cfg.Keys.Get(h.Key)
	return ok
}

// opener returns what opens a segment. ErrNoKey.
func (l *Log) opener(h segment.Header) (*segment.Opener, error) {
	key, ok := l.cfg.Keys.Get(h.Key)
	if !ok {
		return nil, fmt.Errorf("segment %d is sealed with data key %d: %w", h.Seq, h.Key, ErrNoKey)
	}
	return l.openers.get(&key, h)
}

func (os *openers) get(key *segment.DataKey, h segment.Header) (*segment.Opener, error) {
	os.mu.Lock()
	defer os.mu.Unlock()
	if o := os.keys[h]; o != nil {
		return o, nil
	}
	o, err := segment.NewOpener(key, h)
	if err != nil {
		return nil, err
	}
	if os.keys == nil {
		os.keys = map[segment.Header]*segment.Opener{}
	}
	for k := range os.keys {
		if len(os.keys) < maxOpeners {
			break
		}
		delete(os.keys, k) // any will do, since deriving a key again takes microseconds
	}
	os.keys[h] = o
	return o, nil
}
