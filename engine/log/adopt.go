// SPDX-License-Identifier: Apache-2.0

package log

import (
	"fmt"

	"github.com/weir-storage/weir/engine/segment"
)

// Adopt fills an empty log with segments whose files are not here. A copy that starts from a
// checkpoint has no other log before it. The segments must be consecutive. Those that are Uploaded
// count as evicted, those that are Dropped stay so, the others are Absent. They are durable when
// Adopt returns.
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
			header: segment.Header{Volume: l.cfg.Volume, Seq: in.Seq, Epoch: in.Epoch, Key: in.Key, Salt: in.Salt, Prev: in.Prev},
			len:    in.Len, hash: in.Hash, closed: true, uploaded: in.Uploaded && !in.Dropped, dropped: in.Dropped, noted: true,
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
	if err := l.rewriteTable(t); err != nil {
		return err
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.advance(segs[len(segs)-1].end()); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.poison != nil {
		return l.poison
	}
	l.base = t.base
	l.setSegs(segs)
	l.end = segs[len(segs)-1].end()
	l.durable, l.want = l.end, l.end
	l.announce()
	return nil
}
