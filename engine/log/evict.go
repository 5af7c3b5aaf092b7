// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/segment"
)

// closedSegment returns a copy of what is known of a closed segment. Takes mu.
func (l *Log) closedSegment(seq uint64) (seg, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return seg{}, err
	}
	s, ok := l.find(seq)
	if !ok || !s.closed {
		return seg{}, fmt.Errorf("segment %d in %s: %w", seq, l.cfg.Dir.Path(), ErrNotClosed)
	}
	return *s, nil
}

// MarkUploaded records durably that closed segments are in a store under their
// names. Give it many at once: each call rewrites the segment table.
func (l *Log) MarkUploaded(seqs ...uint64) error {
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	t, changed := l.table, false
	for _, seq := range seqs {
		s, err := l.closedSegment(seq)
		if err != nil {
			return fmt.Errorf("mark uploaded: %w", err)
		}
		if !s.uploaded {
			t, changed = t.with(entryOf(&s)), true
		}
	}
	if !changed {
		return nil
	}
	if err := l.setTable(t); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, seq := range seqs {
		if s, ok := l.find(seq); ok {
			s.uploaded = true
		}
	}
	return nil
}

// Evict removes the files of closed, uploaded segments from the pool and gives
// their room back. The segment table is durable before a file goes. Reads then come
// from the Sources. Errors: ErrNotClosed, ErrNotUploaded; then nothing is evicted.
func (l *Log) Evict(seqs ...uint64) error {
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	t := l.table
	var evict []seg
	for _, seq := range seqs {
		s, err := l.closedSegment(seq)
		if err != nil {
			return fmt.Errorf("evict: %w", err)
		}
		if !s.uploaded {
			return fmt.Errorf("evict: segment %d in %s: %w", seq, l.cfg.Dir.Path(), ErrNotUploaded)
		}
		if s.local {
			s.local = false
			t = t.with(entryOf(&s))
			evict = append(evict, s)
		}
	}
	if len(evict) == 0 {
		return nil
	}
	if err := l.setTable(t); err != nil {
		return err
	}
	l.mu.Lock()
	for i := range evict {
		if s, ok := l.find(evict[i].header.Seq); ok {
			s.local = false
		}
	}
	l.mu.Unlock()
	for i := range evict {
		name := fileName(evict[i].header.Seq)
		l.files.drop(evict[i].header.Seq)
		if err := l.cfg.Dir.Remove(name); err != nil {
			return l.fail("remove "+name, err)
		}
		l.cfg.Room.Release(int64(evict[i].len))
	}
	return nil
}

// Heal verifies a closed segment's file by its hash and, if it is damaged or was
// evicted, fetches it from the Sources. ErrUnreadable if none has it whole.
func (l *Log) Heal(ctx context.Context, seq uint64) error {
	l.healMu.Lock()
	defer l.healMu.Unlock()
	s, err := l.closedSegment(seq)
	if err != nil {
		return fmt.Errorf("heal: %w", err)
	}
	if s.local {
		err := l.verifyFile(&s)
		if err == nil {
			return nil
		}
		l.cfg.Logger.LogAttrs(ctx, slog.LevelError, "a segment's file is damaged; fetching another copy",
			slog.Uint64("segment", seq), slog.String("path", l.path(seq)), slog.Any("error", err))
	} else if err := l.reserve(int(s.len)); err != nil {
		return err
	}
	temp := fileName(seq) + ".tmp"
	err = l.fetch(ctx, &s, temp)
	if err == nil {
		err = l.install(&s, temp)
	}
	if err != nil {
		_ = l.cfg.Dir.Remove(temp) // or Open does
		if !s.local {
			l.cfg.Room.Release(int64(s.len))
		}
		return fmt.Errorf("heal %s: %w", l.path(seq), err)
	}
	return nil
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

// fetch puts a whole verified copy of s into the file temp and fsyncs it.
func (l *Log) fetch(ctx context.Context, s *seg, temp string) error {
	var errs []error
	for _, src := range l.cfg.Sources {
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
	hash := blake3.New()
	buf := make([]byte, min(maxRead, s.len))
	for off := uint64(0); off < s.len; {
		p := buf[:min(uint64(len(buf)), s.len-off)]
		if err := src.ReadSegment(ctx, s.name(), int64(off), p); err != nil {
			return err
		}
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

// install makes the file temp the segment's.
func (l *Log) install(s *seg, temp string) error {
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	now, err := l.closedSegment(s.header.Seq)
	if err != nil {
		return err
	}
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
	if s.uploaded {
		if err := l.setTable(l.table.with(entryOf(s))); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if here, ok := l.find(s.header.Seq); ok {
		here.local = true
	}
	return nil
}

// Adopt fills an empty log with segments that stores have: what a gateway that
// starts from a checkpoint has of the log before it. They must be consecutive, and
// count as uploaded and evicted. Durable when it returns.
func (l *Log) Adopt(infos []SegmentInfo) error {
	l.writer.Lock()
	defer l.writer.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if l.last() != nil || l.End() != (Position{}) {
		return fmt.Errorf("adopt segments in %s: the log is not empty: truncate it to 0/0 first", l.cfg.Dir.Path())
	}
	if len(infos) == 0 {
		return nil
	}
	t := table{base: infos[0].Prev}
	link := t.base
	var segs []seg
	for _, in := range infos {
		s := seg{
			header: segment.Header{Volume: l.cfg.Volume, Seq: in.Seq, Epoch: in.Epoch, Salt: in.Salt, Prev: in.Prev},
			len:    in.Len, hash: in.Hash, closed: true, uploaded: true,
		}
		if in.Seq != link.Seq+1 || in.Prev != link || in.Len < segment.HeaderSize || in.Len > segment.MaxOffset {
			return fmt.Errorf("adopt segments in %s: segment %d does not follow %d", l.cfg.Dir.Path(), in.Seq, link.Seq)
		}
		if len(segs) > 0 && in.Epoch < segs[len(segs)-1].header.Epoch {
			return fmt.Errorf("adopt segments in %s: segment %d: %w", l.cfg.Dir.Path(), in.Seq, ErrStaleEpoch)
		}
		link = s.link()
		segs = append(segs, s)
		t.entries = append(t.entries, entryOf(&s))
	}
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	if err := l.setTable(t); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base, l.segs = t.base, segs
	l.end = segs[len(segs)-1].end()
	l.durable, l.want = l.end, l.end
	l.announce()
	return nil
}

// SegmentFile reads a closed segment's file, for upload.
type SegmentFile struct {
	io.SectionReader
	Info SegmentInfo
	fs   *files
	h    *handle
}

// Close must be called once.
func (f *SegmentFile) Close() error {
	f.fs.release(f.h)
	return nil
}

// OpenSegment opens a closed segment's file. It stays readable if the segment is
// evicted meanwhile. The bytes are not verified: whoever stores them checks
// that they have the hash in Info. Errors: ErrNotClosed, ErrNotLocal.
func (l *Log) OpenSegment(seq uint64) (*SegmentFile, error) {
	s, err := l.closedSegment(seq)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	if !s.local {
		return nil, fmt.Errorf("open segment %d in %s: %w", seq, l.cfg.Dir.Path(), ErrNotLocal)
	}
	h, err := l.files.acquire(seq)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	return &SegmentFile{SectionReader: *io.NewSectionReader(h, 0, int64(s.len)), Info: s.info(), fs: l.files, h: h}, nil
}
