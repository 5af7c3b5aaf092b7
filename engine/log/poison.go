// SPDX-License-Identifier: Apache-2.0

package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// After a failed fsync the kernel may go on to show what never reached the disk, and a later fsync
// of the file, opened again, may succeed. So a poisoned log leaves a note of how far it was
// durable, and Open cuts it there. What lies after it was never reported durable, just as after a
// loss of power.
const (
	poisonName = "poisoned"
	poisonTemp = "poisoned.tmp"
	poisonSize = 8 + 8 + 8 + 4
)

var poisonMagic = []byte("WEIRPSN\x01")

// fail poisons the log (protocol-3) and returns the error for the caller. The note is on disk
// before the callbacks are called. It takes mu.
func (l *Log) fail(what string, err error) error {
	l.mu.Lock()
	first := l.poison == nil
	if first {
		l.poison = fmt.Errorf("%w: %s in %s: %w", ErrPoisoned, what, l.cfg.Dir.Path(), err)
	}
	poison, durable, known := l.poison, l.durable, l.settled && l.doubt == nil
	l.mu.Unlock()
	if !first {
		return poison
	}
	if known { // durable does not change any more
		if err := writePoison(l.cfg.Dir, durable); err != nil {
			l.cfg.Logger.Error("how far the log was durable is not noted; it must not be used again before the machine restarts",
				slog.String("path", l.cfg.Dir.Path()), slog.String("durable", durable.String()), slog.Any("error", err))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noticed = true
	l.announce()
	return poison
}

// newFiles returns the log's files. What cannot be written to one while whoever appended it goes
// on poisons the log.
func (l *Log) newFiles() *files {
	return newFiles(l.cfg.Dir, func(seq uint64, err error) { _ = l.fail("write "+fileName(seq), err) })
}

func writePoison(dir cachepool.Dir, durable Position) error {
	b := append(make([]byte, 0, poisonSize), poisonMagic...)
	b = binary.BigEndian.AppendUint64(b, durable.Seq)
	b = binary.BigEndian.AppendUint64(b, durable.Off)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return cachepool.Replace(dir, poisonTemp, poisonName, b)
}

// errNote reports a note that cannot be believed.
var errNote = errors.New("the note of how far the log was durable when it was poisoned")

// readPoison returns how far the log was durable when it was poisoned. ok is false if it was not
// poisoned. The error is errNote if the note does not verify.
func readPoison(dir cachepool.Dir) (durable Position, ok bool, err error) {
	f, err := dir.Open(poisonName)
	if errors.Is(err, fs.ErrNotExist) {
		return Position{}, false, nil
	}
	if err != nil {
		return Position{}, false, err
	}
	defer func() { _ = f.Close() }() // only read
	b := make([]byte, poisonSize)
	err = readFull(f, b, 0)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Position{}, true, fmt.Errorf("%w is cut short", errNote)
	case err != nil:
		return Position{}, false, err
	case string(b[:8]) != string(poisonMagic), crc32.Checksum(b[:24], castagnoli) != binary.BigEndian.Uint32(b[24:]):
		return Position{}, true, fmt.Errorf("%w does not verify", errNote)
	}
	return Position{Seq: binary.BigEndian.Uint64(b[8:]), Off: binary.BigEndian.Uint64(b[16:])}, true, nil
}

// cutPoisoned removes, from what Open found, what an earlier process could not make durable.
// errNote is a doubt. An fsync that ran while something else failed may have succeeded after the
// note. Then the watermark says more, which is on the disk too.
func (l *Log) cutPoisoned(sizes map[uint64]int64) error {
	durable, ok, err := readPoison(l.cfg.Dir)
	l.noted = ok
	if err != nil || !ok {
		return err
	}
	for _, pos := range []Position{durable, l.mark.durable} {
		if err := l.checkNote(pos); err != nil {
			return err
		}
		if durable.Less(pos) {
			durable = pos
		}
	}
	if !durable.Less(l.end) {
		return nil
	}
	keep := 0
	for keep < len(l.segs) && l.segs[keep].header.Seq <= durable.Seq {
		keep++
	}
	if keep > 0 {
		last := &l.segs[keep-1]
		if durable.Less(last.end()) {
			last.len = durable.Off
		}
		if last.local {
			l.recovered.CutBytes = sizes[last.header.Seq] - int64(last.len)
		}
		durable = last.end()
	} else {
		durable = Position{Seq: l.base.Seq, Off: l.base.Len}
	}
	l.setSegs(l.segs[:keep])
	l.hash, l.end = nil, durable
	l.cfg.Logger.Warn("cutting what was not durable when a write or fsync failed",
		slog.String("path", l.cfg.Dir.Path()), slog.String("end", l.end.String()))
	return nil
}

// checkNote checks that a frame ends at a position before the log's end.
func (l *Log) checkNote(durable Position) error {
	i := slices.IndexFunc(l.segs, func(s seg) bool { return s.header.Seq >= durable.Seq })
	if i < 0 || !durable.Less(l.end) || durable == l.segs[i].end() || durable.Seq < l.segs[0].header.Seq {
		return nil
	}
	s := &l.segs[i]
	if !s.local || durable.Seq != s.header.Seq || durable.Off > s.len {
		return fmt.Errorf("%w says %v, which is not in the log", errNote, durable)
	}
	h, err := l.files.acquire(s.header.Seq)
	if err != nil {
		return err
	}
	defer l.files.release(h)
	got, err := segment.Scan(io.NewSectionReader(h, 0, int64(durable.Off)), nil)
	if err == nil && got.Valid != durable.Off {
		err = fmt.Errorf("%w says %v, where no frame ends: %v", errNote, durable, got.Why)
	}
	return err
}

// copyLast copies the last segment into a new file, so that nothing remains of what could not be
// written, wherever the kernel keeps that. Only Open calls it.
func (l *Log) copyLast() error {
	last := l.last()
	if !l.noted || last == nil || !last.local {
		return nil
	}
	seq := last.header.Seq
	name := fileName(seq)
	h, err := l.files.acquire(seq)
	if err != nil {
		return err
	}
	defer l.files.release(h)
	b := make([]byte, last.len)
	if err := readFull(h, b, 0); err != nil {
		return err
	}
	size, err := h.Size()
	if err != nil {
		return err
	}
	if err := cachepool.Replace(l.cfg.Dir, name+".tmp", name, b); err != nil {
		return err
	}
	l.files.drop(seq)
	l.cfg.Room.Release(size - int64(last.len))
	return nil
}

// forgetPoison removes the note. The caller has removed everything that the note warns of.
func (l *Log) forgetPoison() error {
	if !l.noted {
		return nil
	}
	if err := l.cfg.Dir.Remove(poisonName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.noted = false
	return l.cfg.Dir.Sync()
}
