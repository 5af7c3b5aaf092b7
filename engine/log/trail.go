// SPDX-License-Identifier: Apache-2.0

package log

import (
	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// While the current segment's file has zeros behind its last frame (zeros.go), their end has the
// trail: two more slots of the watermark, each in a page of its own. Before an fsync of the file,
// what the fsync is to carry of the watermark is written to one of them, and to the other one the
// next time. So the fsync carries it, and the watermark's own file needs no fsync beside.
//
// Only the trail may have what was told, then. So the watermark's own file is fsynced before a
// record comes where the trail is, and before the zeros are cut off.

// trailAt returns where the trail of a file lies that has a frame up to end, and zeros up to size.
// 0: they have no room for it. No page and no sector has parts of two of frames and slots, and the
// beginning of a frame lies between, all zeros.
func trailAt(end, size int64) int64 {
	if at := (size-slotSize)/watermarkGap*watermarkGap - watermarkGap; at >= end+8+watermarkGap {
		return at
	}
	return 0
}

// leave writes to the trail what the next fsync of the file is to carry. It reports whether there
// is a trail. The caller holds syncMu, and fsyncs the file before it gives that up.
func (l *Log) leave(cur *handle, at int64) (left bool, err error) {
	if at == 0 {
		return false, nil
	}
	l.trails++
	if _, err := cur.WriteAt(l.mark.encode(l.mark.mark, l.trails), at+int64(l.trails%2)*watermarkGap); err != nil {
		return false, l.fail("write "+fileName(cur.seq), err)
	}
	return true, nil
}

// trailed returns where the trail is. The caller holds writer.
func (l *Log) trailed() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trail
}

// endTrail gives up the trail, of which nothing is relied on from now on. The caller holds writer
// and syncMu.
func (l *Log) endTrail() error {
	l.mu.Lock()
	none := l.trail == 0
	l.trail = 0
	l.mu.Unlock()
	if none {
		return nil
	}
	if err := l.mark.sync(); err != nil {
		return l.fail("keep the watermark", err)
	}
	return nil
}

// keepBehind writes to the watermark what only the trail says, as Open found it, durably.
func (l *Log) keepBehind() error {
	if !l.mark.durable.Less(l.behind.durable) {
		return nil
	}
	return l.mark.begin(l.cfg.Dir, mark{durable: l.behind.durable, committed: segment.Later(l.mark.committed, l.behind.committed),
		lost: l.mark.lost})
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
