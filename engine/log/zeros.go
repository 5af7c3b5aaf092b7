// SPDX-License-Identifier: Apache-2.0

package log

// On some file systems an fsync of a file that did not grow is faster by far: it writes the bytes,
// and no metadata of the file system (cachepool.Dir.Ahead). So while little is written between two
// fsyncs, the current segment's file has zeros behind its last frame, which the next records
// overwrite. They are not part of the log. A segment that is closed has none: its file is cut, and
// the fsync that closes it makes that durable.

// zeroes writes zeros behind the end of the current segment, if the record that was written last
// made the file grow and few bytes are synced at a time. The caller holds writer, and has written
// the file up to end. It fails only if the file cannot be cut back to end: without zeros the log
// goes on as before.
func (l *Log) zeroes(end int64) error {
	n := min(l.ahead, l.cfg.SegmentSize-end)
	if n <= 0 || l.noZeros || end < l.size || !l.steady.Load() || l.cfg.Room.Reserve(leftBeside*n) != nil {
		return nil
	}
	l.cfg.Room.Release((leftBeside - 1) * n)
	if _, err := l.cur.WriteAt(make([]byte, n), end); err != nil {
		l.noZeros = true
		if err := l.cur.Truncate(end); err != nil {
			return l.fail("cut "+fileName(l.cur.seq), err)
		}
		l.cfg.Room.Release(n)
		return nil
	}
	l.size = end + n
	return nil
}

// leftBeside is how many times the room of zeros must be left for them to be written: they are not
// worth that a record waits for room.
const leftBeside = 16

// reserveRecord is reserve for records that are to be appended. If there is no room, it gives up
// the zeros. The caller holds writer.
func (l *Log) reserveRecord(n int, urgent bool) error {
	err := l.reserve(n, urgent)
	if last := l.last(); err == nil || last == nil || l.size <= int64(last.len) {
		return err
	}
	l.syncMu.Lock()
	cut := l.cutZeros()
	l.syncMu.Unlock()
	if cut != nil {
		return cut
	}
	return l.reserve(n, urgent)
}

// used gives back the room of zeros that a record of [off, end) overwrote: it has room of its own.
// The caller holds writer.
func (l *Log) used(off, end int64) {
	if n := min(l.size, end) - off; n > 0 {
		l.cfg.Room.Release(n)
	}
}

// cutZeros cuts the zeros off the current segment's file. The next fsync of it makes that durable.
// The caller holds writer and syncMu.
func (l *Log) cutZeros() error {
	if l.cur == nil || l.size <= int64(l.last().len) {
		return nil
	}
	end := int64(l.last().len)
	if err := l.cur.Truncate(end); err != nil {
		return l.fail("cut "+fileName(l.cur.seq), err)
	}
	l.cfg.Room.Release(l.size - end)
	l.size, l.trimmed = 0, true
	return nil
}

// onlyZeros reports whether a file has nothing but zeros in [off, size).
func onlyZeros(h *handle, off, size int64) (bool, error) {
	b := make([]byte, 64<<10)
	for off < size {
		b = b[:min(int64(len(b)), size-off)]
		if err := readFull(h, b, off); err != nil {
			return false, err
		}
		for _, c := range b {
			if c != 0 {
				return false, nil
			}
		}
		off += int64(len(b))
	}
	return true, nil
}
