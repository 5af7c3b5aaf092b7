// SPDX-License-Identifier: Apache-2.0

package log

import (
	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// While the current segment's file has zeros behind its last frame (zeros.go), a copy of the
// watermark lies among them, in a page of its own: the trail. It is written with each record, so
// the fsync that makes the record durable carries it too, and the watermark's own file needs no
// fsync beside. The next record overwrites it, or the same place gets the next one.
//
// A trail says what was durable and committed before its record was written. That is what the fsync
// carries elsewhere, unless records came while another fsync ran: those who wrote them knew less.
// Then the watermark's file is fsynced as well.

// trail is what the file has behind the log's end.
type trail struct {
	mark
	writes uint64 // Log.writes when it was written; 0: there is none
}

// trailAt returns where the trail of a file is whose last frame ends at end. No page and no sector
// has parts of both, and at least the beginning of a frame lies between, all zeros.
func trailAt(end int64) int64 { return (end + 8 + watermarkGap - 1) / watermarkGap * watermarkGap }

// leave writes the trail behind a record that was written up to end, if there are zeros and nobody
// else writes at the same time. The caller holds writer.
func (l *Log) leave(end int64) error {
	l.left = trail{}
	at := trailAt(end)
	if l.size < at+slotSize || !l.alone.Load() {
		return nil
	}
	l.mu.Lock()
	m := mark{durable: l.durable, committed: l.committed}
	l.mu.Unlock()
	if _, err := l.cur.WriteAt(encodeMark(l.identity, m, 1), at); err != nil {
		return l.fail("write "+fileName(l.cur.seq), err)
	}
	l.left = trail{mark: m, writes: l.writes.Load()}
	return nil
}

// carries reports whether the trail says all that m does, and nobody has begun to overwrite it. It
// is asked before and after an fsync, which has carried the trail if both answers are yes.
func (l *Log) carries(t trail, m mark) bool {
	return t.writes != 0 && t.writes == l.writes.Load() && !m.lost &&
		m.durable.Compare(t.durable) <= 0 && m.committed.Compare(t.committed) <= 0
}

// readTrail reads what a segment's file has in [off, size), which is no frame. It returns the
// greatest trail of this log, zero if there is none. zeros: else there is nothing but zeros.
func readTrail(h *handle, identity cachepool.ID, off, size int64) (m mark, zeros bool, err error) {
	const most = 64 << 10
	zeros = true
	b := make([]byte, most)
	for off < size {
		b = b[:min(most-off%watermarkGap, size-off)] // it ends where a page does
		if err := readFull(h, b, off); err != nil {
			return mark{}, false, err
		}
		for page := b; len(page) > 0; {
			n := min(watermarkGap-off%watermarkGap, int64(len(page)))
			this := page[:n]
			if w := decodeMark(this); w != nil && off%watermarkGap == 0 && w.identity == identity {
				m.durable = segment.Later(m.durable, w.durable)
				m.committed = segment.Later(m.committed, w.committed)
				this = this[slotSize:]
			}
			for _, c := range this {
				zeros = zeros && c == 0
			}
			page, off = page[n:], off+n
		}
	}
	return m, zeros, nil
}
