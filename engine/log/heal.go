// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/segment"
)

// Heal verifies a closed segment's file by its hash. If the file is damaged or was evicted, it
// fetches it from the Sources. It returns ErrUnreadable if none has the whole segment.
func (l *Log) Heal(ctx context.Context, seq uint64) error {
	_, err := l.heal(ctx, seq, true)
	return err
}

// Scrub is Heal for a segment whose file is here; others it leaves where they are. It needs no key.
// healed reports that the file was damaged and is whole again.
func (l *Log) Scrub(ctx context.Context, seq uint64) (healed bool, err error) {
	return l.heal(ctx, seq, false)
}

func (l *Log) heal(ctx context.Context, seq uint64, evicted bool) (healed bool, err error) {
	l.healMu.Lock()
	defer l.healMu.Unlock()
	s, err := l.closedSegment(seq)
	if err != nil {
		return false, fmt.Errorf("heal: %w", err)
	}
	if !s.local && !evicted {
		return false, nil
	}
	if s.dropped {
		return false, fmt.Errorf("heal segment %d in %s: %w", seq, l.cfg.Dir.Path(), ErrDropped)
	}
	if s.local {
		err := l.verifyFile(&s)
		if err == nil {
			return false, nil
		}
		if now, _ := l.Segment(seq); !evicted && !now.Local { // it was evicted meanwhile
			return false, nil
		}
		l.cfg.Logger.LogAttrs(ctx, slog.LevelError, "a segment's file is damaged; fetching another copy",
			slog.Uint64("segment", seq), slog.String("path", l.path(seq)), slog.Any("error", err))
	} else if err := l.reserve(int(s.len), false); err != nil {
		return false, err
	}
	temp := fileName(seq) + ".tmp"
	err = l.fetch(ctx, &s, temp)
	if err == nil {
		err = l.install(&s, temp)
	}
	if err != nil {
		_ = l.cfg.Dir.Remove(temp) // otherwise Open removes it
		if !s.local {
			l.cfg.Room.Release(int64(s.len))
		}
		return false, fmt.Errorf("heal %s: %w", l.path(seq), err)
	}
	return true, nil
}

func (l *Log) verifyFile(s *seg) error {
	h, err := l.files.acquire(s.header.Seq)
	if err != nil {
		return err
	}
	defer l.files.release(h)
	size, err := h.Size()
	if err != nil {
		return err
	}
	if uint64(size) != s.len {
		return &segment.CorruptError{Seq: s.header.Seq, Field: "file size", Why: fmt.Sprintf("%d, want %d", size, s.len)}
	}
	hash, err := rehash(h, s.len)
	if err != nil {
		return err
	}
	if hash != s.hash {
		return &segment.CorruptError{Seq: s.header.Seq, Field: "segment hash"}
	}
	return nil
}

// fetch writes a whole, verified copy of s into the file temp and fsyncs it.
func (l *Log) fetch(ctx context.Context, s *seg, temp string) error {
	var errs []error
	for _, src := range l.Sources() {
		err := l.fetchFrom(ctx, s, src, temp)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", src, err))
	}
	return fmt.Errorf("%w: %w", ErrUnreadable, errors.Join(errs...))
}

func (l *Log) fetchFrom(ctx context.Context, s *seg, src Source, temp string) (err error) {
	f, err := createFresh(l.cfg.Dir, temp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	defer l.fetchedNow(s, 0)
	hash := blake3.New()
	buf := make([]byte, min(maxRead, s.len))
	for off := uint64(0); off < s.len; {
		p := buf[:min(uint64(len(buf)), s.len-off)]
		if err := src.ReadSegment(ctx, s.name(), int64(off), p); err != nil {
			return err
		}
		l.fetchedNow(s, off+uint64(len(p)))
		_, _ = hash.Write(p) // never fails
		if _, err := f.WriteAt(p, int64(off)); err != nil {
			return err
		}
		off += uint64(len(p))
	}
	if sum(hash) != s.hash {
		return &segment.CorruptError{Seq: s.header.Seq, Field: "segment hash"}
	}
	return f.Sync()
}

// fetchedNow notes how many bytes of s are here on their way, for AbsentBytes.
func (l *Log) fetchedNow(s *seg, n uint64) {
	if s.absent() {
		l.mu.Lock()
		l.fetched = n
		l.mu.Unlock()
	}
}

// install makes the file temp the segment's file.
func (l *Log) install(s *seg, temp string) error {
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	now, err := l.closedSegment(s.header.Seq)
	if err != nil {
		return err
	}
	now.noted = s.noted // noteClosed may have come between
	if now != *s {
		return fmt.Errorf("segment %d changed meanwhile; try again", s.header.Seq)
	}
	if err := l.cfg.Dir.Rename(temp, fileName(s.header.Seq)); err != nil {
		return err
	}
	if err := l.cfg.Dir.Sync(); err != nil {
		return l.fail("fsync directory", err)
	}
	l.files.drop(s.header.Seq)
	s.local = true
	if !now.local { // else it was only damaged
		if err := l.note(entryOf(s)); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if here, ok := l.find(s.header.Seq); ok {
		l.update(here, func(s *seg) { s.local = true })
	}
	return nil
}
