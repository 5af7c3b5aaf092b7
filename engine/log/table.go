// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"sort"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

const (
	tableName = "segments"
	tableTemp = "segments.tmp"
	entrySize = 8 + 8 + 32 + 8 + 32 + 1
	tableHead = 8 + 48 + 4
)

var (
	tableMagic  = []byte("WEIRTAB\x01")
	tableOfKeys = []byte("WEIRTAB\x02") // with the numbers of data keys
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
)

// table is the segment table: what is stored elsewhere, in ascending order.
type table struct {
	base    segment.Link
	entries []tableEntry
}

type tableEntry struct {
	seq, epoch uint64
	key        uint32
	salt       [32]byte
	len        uint64
	hash       segment.Hash
	evicted    bool
}

// header is the header of the entry's segment, which follows prev.
func (e *tableEntry) header(volume segment.VolumeID, prev segment.Link) segment.Header {
	return segment.Header{Volume: volume, Seq: e.seq, Epoch: e.epoch, Key: e.key, Salt: e.salt, Prev: prev}
}

func entryOf(s *seg) tableEntry {
	return tableEntry{seq: s.header.Seq, epoch: s.header.Epoch, key: s.header.Key, salt: s.header.Salt, len: s.len, hash: s.hash,
		evicted: !s.local}
}

// find returns the index at which seq is, or would be, and reports whether it is there.
func (t *table) find(seq uint64) (int, bool) {
	i := sort.Search(len(t.entries), func(i int) bool { return t.entries[i].seq >= seq })
	return i, i < len(t.entries) && t.entries[i].seq == seq
}

// with returns a copy of t that includes e.
func (t *table) with(e tableEntry) table {
	c := table{base: t.base, entries: slices.Clone(t.entries)}
	i, ok := c.find(e.seq)
	if ok {
		c.entries[i] = e
	} else {
		c.entries = slices.Insert(c.entries, i, e)
	}
	return c
}

// without returns a copy of t that lacks seq, and reports whether t had it.
func (t *table) without(seq uint64) (table, bool) {
	i, ok := t.find(seq)
	if !ok {
		return *t, false
	}
	c := table{base: t.base, entries: slices.Clone(t.entries)}
	c.entries = slices.Delete(c.entries, i, i+1)
	return c, true
}

func (t *table) encode() []byte {
	// While all segments have the volume's first key, releases that know no other can read it.
	keys := slices.ContainsFunc(t.entries, func(e tableEntry) bool { return e.key != 0 })
	b := make([]byte, 0, tableHead+len(t.entries)*(entrySize+4)+4)
	if keys {
		b = append(b, tableOfKeys...)
	} else {
		b = append(b, tableMagic...)
	}
	b = binary.BigEndian.AppendUint64(b, t.base.Seq)
	b = binary.BigEndian.AppendUint64(b, t.base.Len)
	b = append(b, t.base.Hash[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(t.entries)))
	for i := range t.entries {
		e := &t.entries[i]
		b = binary.BigEndian.AppendUint64(b, e.seq)
		b = binary.BigEndian.AppendUint64(b, e.epoch)
		b = append(b, e.salt[:]...)
		b = binary.BigEndian.AppendUint64(b, e.len)
		b = append(b, e.hash[:]...)
		if e.evicted {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
		if keys {
			b = binary.BigEndian.AppendUint32(b, e.key)
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeTable(b []byte) (table, error) {
	var t table
	bad := func(field string) (table, error) {
		return table{}, fmt.Errorf("segment table: corrupt %s", field)
	}
	size := entrySize
	switch {
	case len(b) < tableHead+4:
		return bad("magic")
	case bytes.Equal(b[:8], tableOfKeys):
		size += 4
	case !bytes.Equal(b[:8], tableMagic):
		return bad("magic")
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[len(body):]) {
		return bad("crc")
	}
	t.base.Seq = binary.BigEndian.Uint64(b[8:])
	t.base.Len = binary.BigEndian.Uint64(b[16:])
	copy(t.base.Hash[:], b[24:])
	n := uint64(binary.BigEndian.Uint32(b[56:]))
	if uint64(len(body)-tableHead) != n*uint64(size) {
		return bad("length")
	}
	t.entries = make([]tableEntry, n)
	prev := t.base.Seq
	for i := range t.entries {
		e, p := &t.entries[i], body[tableHead+i*size:]
		e.seq = binary.BigEndian.Uint64(p)
		e.epoch = binary.BigEndian.Uint64(p[8:])
		copy(e.salt[:], p[16:])
		e.len = binary.BigEndian.Uint64(p[48:])
		copy(e.hash[:], p[56:])
		if p[88] > 1 {
			return bad("flags")
		}
		e.evicted = p[88] == 1
		if size > entrySize {
			e.key = binary.BigEndian.Uint32(p[entrySize:])
		}
		if e.seq <= prev || e.len < segment.HeaderSize || e.len > segment.MaxOffset {
			return bad("entry")
		}
		prev = e.seq
	}
	return t, nil
}

// setTable makes t the durable table. An error poisons the log. The caller holds tableMu.
func (l *Log) setTable(t table) error {
	if err := writeTable(l.cfg.Dir, t); err != nil {
		return l.fail("write segment table", err)
	}
	l.table = t
	return nil
}

func writeTable(dir cachepool.Dir, t table) error {
	return cachepool.Replace(dir, tableTemp, tableName, t.encode())
}

// readTable reads the table. It returns an empty one if there is none.
func readTable(dir cachepool.Dir) (table, error) {
	f, err := dir.Open(tableName)
	if errors.Is(err, fs.ErrNotExist) {
		return table{}, nil
	}
	if err != nil {
		return table{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	size, err := f.Size()
	if err != nil {
		return table{}, err
	}
	b := make([]byte, size)
	if err := readFull(f, b, 0); err != nil {
		return table{}, fmt.Errorf("read segment table: %w", err)
	}
	t, err := decodeTable(b)
	if err != nil {
		err = fmt.Errorf("%w: %w", errTable, err)
	}
	return t, err
}

// errTable reports a segment table that does not decode.
var errTable = errors.New("segment table is damaged")
