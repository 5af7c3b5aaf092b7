// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"fmt"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// Drop gives up closed segments that a committed record condemned: their files are removed, and
// nobody is asked for them any more. What the segment table says is durable before a file is
// removed. Those that are dropped already are passed over. The caller knows that the condemning
// record is durable here (protocol-14). ErrNotClosed: nothing is dropped.
func (l *Log) Drop(seqs ...uint64) error {
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	var entries []tableEntry
	var were []seg
	for _, seq := range seqs {
		s, err := l.closedSegment(seq)
		if err != nil {
			return fmt.Errorf("drop: %w", err)
		}
		if s.dropped {
			continue
		}
		were = append(were, s)
		s.dropped, s.local, s.uploaded = true, false, false
		entries = append(entries, entryOf(&s))
	}
	if len(entries) == 0 {
		return nil
	}
	if err := l.note(entries...); err != nil {
		return err
	}
	l.mu.Lock()
	for i := range were {
		if s, ok := l.find(were[i].header.Seq); ok {
			l.update(s, func(s *seg) { s.dropped, s.local, s.uploaded, s.noted = true, false, false, true })
		}
	}
	l.mu.Unlock()
	for i := range were {
		if !were[i].local {
			continue
		}
		name := fileName(were[i].header.Seq)
		l.files.drop(were[i].header.Seq)
		if err := l.cfg.Dir.Remove(name); err != nil {
			return l.fail("remove "+name, err)
		}
		l.files.drop(were[i].header.Seq) // a reader may have opened it meanwhile
		l.cfg.Room.Release(int64(were[i].len))
	}
	return nil
}

// Rebase makes a log that nobody has open one that begins with the given segments, which a
// checkpoint lists, and ends where they end. They are consecutive, from the first one on. It keeps
// its identity: it lost nothing that the checkpoint does not have. Those that are Local have their
// file here. Other files of segments count no more, and the next Open removes them. It is for a
// copy whose log ends before what others still have in order. It is durable when Rebase returns.
func Rebase(dir cachepool.Dir, segments []SegmentInfo) error {
	var t table
	var end Position
	for _, in := range segments {
		if in.Seq != end.Seq+1 {
			return fmt.Errorf("rebase log in %s: segment %d does not follow %d", dir.Path(), in.Seq, end.Seq)
		}
		end = Position{Seq: in.Seq, Off: in.Len}
		t.entries = append(t.entries, entryOf(&seg{
			header: segment.Header{Seq: in.Seq, Epoch: in.Epoch, Key: in.Key, Salt: in.Salt}, len: in.Len, hash: in.Hash,
			local: in.Local, uploaded: in.Uploaded, dropped: in.Dropped,
		}))
	}
	if err := writeTable(dir, t); err != nil {
		return fmt.Errorf("rebase log in %s: %w", dir.Path(), err)
	}
	w, err := openWatermark(dir)
	if err == nil {
		err = errors.Join(w.begin(dir, mark{durable: end, committed: end}), w.close())
	}
	if err != nil {
		return fmt.Errorf("rebase log in %s: %w", dir.Path(), err)
	}
	return nil
}
