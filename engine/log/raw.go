// SPDX-License-Identifier: Apache-2.0

package log

import (
	"fmt"

	"github.com/weir-storage/weir/cachepool"
)

// ErrFull is cachepool.ErrFull: the pool has no room. The log is unchanged; the caller evicts
// segments and tries again.
var ErrFull = cachepool.ErrFull

// ReadSegmentFile reads raw bytes of a segment's file on this pool, as io.ReaderAt does. It serves
// uploads and other gateways. It verifies nothing; the receiver does. It returns ErrNotLocal if the
// file is not here.
func (l *Log) ReadSegmentFile(seq uint64, p []byte, off int64) (int, error) {
	l.mu.Lock()
	s, ok := l.find(seq)
	local := ok && s.local
	l.mu.Unlock()
	if !local {
		return 0, fmt.Errorf("read segment %d: %w", seq, ErrNotLocal)
	}
	h, err := l.files.acquire(seq)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", l.path(seq), err)
	}
	defer l.files.release(h)
	return h.ReadAt(p, off)
}

// Distance returns how many bytes of the log lie between two positions. It is 0 if to is not after
// from.
func (l *Log) Distance(from, to Position) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var n int64
	if len(l.segs) == 0 {
		return 0
	}
	first := l.segs[0].header.Seq
	for seq := max(first, from.Seq); seq <= to.Seq && seq-first < uint64(len(l.segs)); seq++ {
		s := &l.segs[seq-first]
		a, b := uint64(0), s.len
		if seq == from.Seq {
			a = from.Off
		}
		if seq == to.Seq {
			b = min(b, to.Off)
		}
		if a < b {
			n += int64(b - a)
		}
	}
	return n
}
