// SPDX-License-Identifier: Apache-2.0

package log

import (
	"fmt"

	"github.com/weir-storage/weir/engine/segment"
)

// closedSegment returns a copy of what is known of a closed segment. It takes mu.
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

// MarkStored records durably that closed segments are in a store under these names. It returns
// ErrNotClosed if this log has no closed segment of that name: a Truncate during the upload may
// have put another one in its place. Each call fsyncs the segment table.
func (l *Log) MarkStored(names ...string) error {
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	seqs := make([]uint64, len(names))
	for i, name := range names {
		_, seq, _, err := segment.ParseName(name)
		if err != nil {
			return fmt.Errorf("mark stored: %w", err)
		}
		s, err := l.closedSegment(seq)
		if err != nil {
			return fmt.Errorf("mark stored: %w", err)
		}
		if s.name() != name {
			return fmt.Errorf("mark stored: %w: %s is not the log's segment %d any more", ErrNotClosed, name, seq)
		}
		seqs[i] = seq
	}
	var entries []tableEntry
	for _, seq := range seqs {
		s, err := l.closedSegment(seq)
		if err != nil {
			return fmt.Errorf("mark stored: %w", err)
		}
		if !s.uploaded && !s.dropped {
			s.uploaded = true
			entries = append(entries, entryOf(&s))
		}
	}
	if len(entries) == 0 {
		return nil
	}
	if err := l.note(entries...); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setNoted(entries)
	for i := range entries {
		if s, ok := l.find(entries[i].seq); ok {
			l.update(s, func(s *seg) { s.uploaded = true })
		}
	}
	return nil
}

// Evict removes the files of closed, uploaded segments from the pool and releases their room. The
// segment table is durable before a file is removed. Reads then come from the Sources. Errors:
// ErrNotClosed and ErrNotUploaded, in which case nothing is evicted.
func (l *Log) Evict(seqs ...uint64) error {
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	var entries []tableEntry
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
			entries = append(entries, entryOf(&s))
			evict = append(evict, s)
		}
	}
	if len(evict) == 0 {
		return nil
	}
	if err := l.note(entries...); err != nil {
		return err
	}
	l.mu.Lock()
	for i := range evict {
		if s, ok := l.find(evict[i].header.Seq); ok {
			l.update(s, func(s *seg) { s.local = false })
		}
	}
	l.mu.Unlock()
	for i := range evict {
		name := fileName(evict[i].header.Seq)
		l.files.drop(evict[i].header.Seq)
		if err := l.cfg.Dir.Remove(name); err != nil {
			return l.fail("remove "+name, err)
		}
		// Drop again. A reader may have opened the file meanwhile, and an open file still takes
		// room.
		l.files.drop(evict[i].header.Seq)
		l.cfg.Room.Release(int64(evict[i].len))
	}
	return nil
}
