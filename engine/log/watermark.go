// SPDX-License-Identifier: Apache-2.0

package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/weir-storage/weir/cachepool"
)

// The watermark says how far the log was told to be durable, and how far it was known to be
// committed. What lies below it was promised to others. So a tail that is missing below it was
// lost, and is not one that a crash tore (protocol-3).
//
// It has two slots. All writes between two fsyncs go to the same slot, so the other one is whole
// whatever a crash does. The slot with the greater generation counts.
const (
	watermarkName = "durable"
	watermarkTemp = "durable.tmp"
	watermarkGap  = 4096 // between the slots, in bytes: no sector and no page has parts of both
	slotSize      = 8 + 8 + 16 + 16 + 16 + 1 + 4
)

var watermarkMagic = []byte("WEIRDUR\x01")

// mark is what a watermark says.
type mark struct {
	durable   Position
	committed Position // at most durable
	lost      bool     // Disown was called
}

// watermark is the file of a log's mark. The log's lock syncMu guards it.
type watermark struct {
	mark
	identity   cachepool.ID // of the log; zero if it is from a release that had none
	file       cachepool.File
	generation uint64
	dirty      bool // written since the last fsync
}

func (w *watermark) encode(m mark, generation uint64) []byte {
	b := append(make([]byte, 0, slotSize), watermarkMagic...)
	b = binary.BigEndian.AppendUint64(b, generation)
	b = append(b, w.identity[:]...)
	for _, p := range []Position{m.durable, m.committed} {
		b = binary.BigEndian.AppendUint64(b, p.Seq)
		b = binary.BigEndian.AppendUint64(b, p.Off)
	}
	if m.lost {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeMark decodes a slot; nil: it does not verify.
func decodeMark(b []byte) *watermark {
	body := slotSize - 4
	if len(b) < slotSize || string(b[:8]) != string(watermarkMagic) || b[body-1] > 1 ||
		crc32.Checksum(b[:body], castagnoli) != binary.BigEndian.Uint32(b[body:]) {
		return nil
	}
	at := func(i int) Position {
		return Position{Seq: binary.BigEndian.Uint64(b[i:]), Off: binary.BigEndian.Uint64(b[i+8:])}
	}
	return &watermark{
		mark:       mark{durable: at(32), committed: at(48), lost: b[64] == 1},
		identity:   cachepool.ID(b[16:32]),
		generation: binary.BigEndian.Uint64(b[8:]),
	}
}

// errWatermark reports a watermark that cannot be believed.
var errWatermark = errors.New("the note of how far the log was durable does not verify")

// openWatermark reads the watermark. Without a file it is zero: the log is new, or is from a
// release that had none. It changes nothing on the pool, but makes durable what an earlier process
// wrote, so that the slot which is written next is not the only whole one.
func openWatermark(dir cachepool.Dir) (*watermark, error) {
	f, err := dir.Open(watermarkName)
	if errors.Is(err, fs.ErrNotExist) {
		return &watermark{}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Sync(), f.Forget()); err != nil {
		return nil, errors.Join(fmt.Errorf("fsync %s: %w", watermarkName, err), f.Close())
	}
	var w *watermark
	for slot := range int64(2) {
		b := make([]byte, slotSize)
		if err := readFull(f, b, slot*watermarkGap); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				continue
			}
			return nil, errors.Join(err, f.Close())
		}
		if s := decodeMark(b); s != nil && (w == nil || s.generation > w.generation) {
			w = s
		}
	}
	if w == nil {
		return nil, errors.Join(errWatermark, f.Close())
	}
	w.file = f
	return w, nil
}

// begin makes m the watermark, durably. It makes the file if there is none.
func (w *watermark) begin(dir cachepool.Dir, m mark) error {
	if w.file != nil {
		if m == w.mark && !w.dirty {
			return nil
		}
		if err := w.set(m); err != nil {
			return err
		}
		return w.sync()
	}
	b := make([]byte, watermarkGap+slotSize)
	copy(b[watermarkGap:], w.encode(m, 1)) // generation 1 is in the second slot
	if err := cachepool.Replace(dir, watermarkTemp, watermarkName, b); err != nil {
		return err
	}
	f, err := dir.Open(watermarkName)
	if err != nil {
		return err
	}
	w.file, w.mark, w.generation = f, m, 1
	return nil
}

// set writes m. It is durable after sync. A kill of the process does not lose it.
func (w *watermark) set(m mark) error {
	generation := w.generation
	if !w.dirty {
		generation++
	}
	if _, err := w.file.WriteAt(w.encode(m, generation), int64(generation%2)*watermarkGap); err != nil {
		return fmt.Errorf("write %s: %w", watermarkName, err)
	}
	w.mark, w.generation, w.dirty = m, generation, true
	return nil
}

// sync makes the watermark durable.
func (w *watermark) sync() error {
	if !w.dirty {
		return nil
	}
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("fsync %s: %w", watermarkName, err)
	}
	w.dirty = false
	return nil
}

func (w *watermark) close() error {
	if w.file == nil {
		return nil
	}
	f := w.file
	w.file = nil
	return f.Close()
}
