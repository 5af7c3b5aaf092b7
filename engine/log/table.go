// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"slices"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

const (
	tableName = "segments"
	tableTemp = "segments.tmp"
	// The table of earlier releases was replaced as a whole.
	oldEntrySize = 8 + 8 + 32 + 8 + 32 + 1
	oldTableHead = 8 + 48 + 4
	tableHead    = 8 + 48 + 4
	entrySize    = 1 + 8 + 8 + 4 + 32 + 8 + 32 + 4
)

var (
	tableMagic    = []byte("WEIRTAB\x03")
	oldTableMagic = []byte("WEIRTAB\x01")
	oldTableKeys  = []byte("WEIRTAB\x02") // with the numbers of data keys
	castagnoli    = crc32.MakeTable(crc32.Castagnoli)
)

// state is what a slot of the table says of a segment. The numbers are part of the format.
type state uint8

const (
	closedHere state = 1 // closed; the only copy may be the file here
	storedToo  state = 2 // also in a store
	evicted    state = 3 // only in a store
	cutAfter   state = 4 // what the table says of later segments counts no more
	elsewhere  state = 5 // neither here nor in a store of this site yet; other copies have it
	dropped    state = 6 // condemned: nobody needs it, and no copy keeps it
)

// table is what a segment table says, in ascending order.
type table struct {
	base    segment.Link
	entries []tableEntry
}

type tableEntry struct {
	state      state
	seq, epoch uint64
	key        uint32
	salt       [32]byte
	len        uint64
	hash       segment.Hash
}

// header is the header of the entry's segment, which follows prev.
func (e *tableEntry) header(volume segment.VolumeID, prev segment.Link) segment.Header {
	return segment.Header{Volume: volume, Seq: e.seq, Epoch: e.epoch, Key: e.key, Salt: e.salt, Prev: prev}
}

// away reports whether the segment's file is not here.
func (e *tableEntry) away() bool {
	return e.state == evicted || e.state == elsewhere || e.state == dropped
}

// entryOf is the entry of a closed segment.
func entryOf(s *seg) tableEntry {
	e := tableEntry{state: closedHere, seq: s.header.Seq, epoch: s.header.Epoch, key: s.header.Key, salt: s.header.Salt,
		len: s.len, hash: s.hash}
	switch {
	case s.dropped:
		e.state = dropped
	case s.uploaded && !s.local:
		e.state = evicted
	case s.uploaded:
		e.state = storedToo
	case !s.local:
		e.state = elsewhere
	}
	return e
}

// cutEntry is the entry that ends what the table says of the segments after seq.
func cutEntry(seq uint64) tableEntry { return tableEntry{state: cutAfter, seq: seq} }

// find returns the index at which seq is, or would be, and reports whether it is there.
func (t *table) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(t.entries, seq, func(e tableEntry, seq uint64) int { return cmp.Compare(e.seq, seq) })
}

func appendTableHead(b []byte, base segment.Link) []byte {
	n := len(b)
	b = append(b, tableMagic...)
	b = binary.BigEndian.AppendUint64(b, base.Seq)
	b = binary.BigEndian.AppendUint64(b, base.Len)
	b = append(b, base.Hash[:]...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[n:], castagnoli))
}

func appendSlot(b []byte, e *tableEntry) []byte {
	n := len(b)
	b = append(b, byte(e.state))
	b = binary.BigEndian.AppendUint64(b, e.seq)
	b = binary.BigEndian.AppendUint64(b, e.epoch)
	b = binary.BigEndian.AppendUint32(b, e.key)
	b = append(b, e.salt[:]...)
	b = binary.BigEndian.AppendUint64(b, e.len)
	b = append(b, e.hash[:]...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[n:], castagnoli))
}

func (t *table) encode() []byte {
	b := appendTableHead(make([]byte, 0, tableHead+len(t.entries)*entrySize), t.base)
	for i := range t.entries {
		b = appendSlot(b, &t.entries[i])
	}
	return b
}

// decodeTable decodes a table. A slot that does not verify is left out: a crash may have torn it,
// before anything relied on it. whole is false if there is one, or if the format is an earlier one:
// then nothing can be appended to it.
func decodeTable(b []byte) (t table, whole bool, err error) {
	if len(b) < tableHead || !bytes.Equal(b[:8], tableMagic) {
		t, err = decodeOldTable(b)
		return t, false, err
	}
	if crc32.Checksum(b[:tableHead-4], castagnoli) != binary.BigEndian.Uint32(b[tableHead-4:]) {
		return t, false, errors.New("segment table: corrupt head")
	}
	t.base = decodeBase(b)
	whole = (len(b)-tableHead)%entrySize == 0
	found := map[uint64]tableEntry{}
	for b = b[tableHead:]; len(b) >= entrySize; b = b[entrySize:] {
		e, ok := decodeSlot(b[:entrySize])
		switch {
		case !ok || e.state != cutAfter && e.seq <= t.base.Seq:
			whole = false
		case e.state == cutAfter:
			maps.DeleteFunc(found, func(seq uint64, _ tableEntry) bool { return seq > e.seq })
		default:
			found[e.seq] = e
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(found)) {
		t.entries = append(t.entries, found[seq])
	}
	return t, whole, nil
}

func decodeBase(b []byte) segment.Link {
	return segment.Link{Seq: binary.BigEndian.Uint64(b[8:]), Len: binary.BigEndian.Uint64(b[16:]), Hash: segment.Hash(b[24:56])}
}

// decodeSlot decodes one slot; false: it does not verify.
func decodeSlot(p []byte) (e tableEntry, ok bool) {
	if crc32.Checksum(p[:entrySize-4], castagnoli) != binary.BigEndian.Uint32(p[entrySize-4:]) {
		return e, false
	}
	e = tableEntry{
		state: state(p[0]), seq: binary.BigEndian.Uint64(p[1:]), epoch: binary.BigEndian.Uint64(p[9:]),
		key: binary.BigEndian.Uint32(p[17:]), salt: [32]byte(p[21:53]), len: binary.BigEndian.Uint64(p[53:]), hash: segment.Hash(p[61:93]),
	}
	switch e.state {
	case closedHere, storedToo, evicted, elsewhere, dropped:
		return e, e.seq > 0 && e.len >= segment.HeaderSize && e.len <= segment.MaxOffset
	case cutAfter:
		return e, true
	}
	return e, false
}

// decodeOldTable decodes the table of an earlier release. What it lists is stored elsewhere.
func decodeOldTable(b []byte) (table, error) {
	var t table
	bad := func(field string) (table, error) {
		return table{}, fmt.Errorf("segment table: corrupt %s", field)
	}
	size := oldEntrySize
	switch {
	case len(b) < oldTableHead+4:
		return bad("magic")
	case bytes.Equal(b[:8], oldTableKeys):
		size += 4
	case !bytes.Equal(b[:8], oldTableMagic):
		return bad("magic")
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[len(body):]) {
		return bad("crc")
	}
	t.base = decodeBase(b)
	n := uint64(binary.BigEndian.Uint32(b[56:]))
	if uint64(len(body)-oldTableHead) != n*uint64(size) {
		return bad("length")
	}
	t.entries = make([]tableEntry, n)
	prev := t.base.Seq
	for i := range t.entries {
		e, p := &t.entries[i], body[oldTableHead+i*size:]
		*e = tableEntry{
			state: storedToo, seq: binary.BigEndian.Uint64(p), epoch: binary.BigEndian.Uint64(p[8:]), salt: [32]byte(p[16:48]),
			len: binary.BigEndian.Uint64(p[48:]), hash: segment.Hash(p[56:88]),
		}
		if p[88] > 1 {
			return bad("flags")
		}
		if p[88] == 1 {
			e.state = evicted
		}
		if size > oldEntrySize {
			e.key = binary.BigEndian.Uint32(p[oldEntrySize:])
		}
		if e.seq <= prev || e.len < segment.HeaderSize || e.len > segment.MaxOffset {
			return bad("entry")
		}
		prev = e.seq
	}
	return t, nil
}

func writeTable(dir cachepool.Dir, t table) error {
	return cachepool.Replace(dir, tableTemp, tableName, t.encode())
}

// readTable reads the table, and returns its open file if it can be appended to, and how many slots
// that has. It returns an empty one if there is none.
func readTable(dir cachepool.Dir) (t table, f cachepool.File, slots int, err error) {
	f, err = dir.Open(tableName)
	if errors.Is(err, fs.ErrNotExist) {
		return table{}, nil, 0, nil
	}
	if err != nil {
		return table{}, nil, 0, err
	}
	keep := false
	defer func() {
		if !keep {
			_ = f.Close() // it was only read
			f = nil
		}
	}()
	// What an earlier process wrote and did not sync is not relied on before it is durable: a file
	// that the table says is evicted is removed.
	if err := errors.Join(f.Sync(), f.Forget()); err != nil {
		return table{}, f, 0, fmt.Errorf("fsync segment table: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		return table{}, f, 0, err
	}
	b := make([]byte, size)
	if err := readFull(f, b, 0); err != nil {
		return table{}, f, 0, fmt.Errorf("read segment table: %w", err)
	}
	t, keep, err = decodeTable(b)
	if err != nil {
		err = fmt.Errorf("%w: %w", errTable, err)
	}
	return t, f, (len(b) - tableHead) / entrySize, err
}

// errTable reports a segment table that does not decode.
var errTable = errors.New("segment table is damaged")
