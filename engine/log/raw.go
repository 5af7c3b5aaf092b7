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
	return max(0, int64(l.bytesBefore(to)-l.bytesBefore(from)))
}

// bytesBefore returns how many bytes of the known segments lie before a position. The caller holds
// mu.
func (l *Log) bytesBefore(p Position) uint64 {
	if s, ok := l.find(p.Seq); ok {
		return s.before + min(p.Off, s.len)
	}
	if last := l.last(); last != nil && last.header.Seq < p.Seq {
		return last.before + last.len
	}
	return 0
}
