// SPDX-License-Identifier: Apache-2.0

package data

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
)

// field is a run of bytes of a stored segment. If it belongs to a block, it says which bytes of the
// volume's only file can not be read without it.
type field struct {
	kind     string
	seq      uint64
	off, len int64
	from, to int64 // in the file; the block that the field is of, or the first after it
}

// object is a segment as stores and pools keep it.
type object struct {
	seq  uint64
	name string // of the object: VOLUME/SEQUENCE-HASH
}

// objects lists the segments in a store's folder, by sequence.
func objects(t *testing.T, dir string) (out []object) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.Join(strings.Split(f, "/")[len(strings.Split(f, "/"))-2:], "/")
		if _, seq, _, err := segment.ParseName(name); err == nil {
			out = append(out, object{seq, name})
		}
	}
	slices.SortFunc(out, func(a, b object) int { return int(a.seq) - int(b.seq) })
	return out
}

// The parts of a header frame; package segment draws it.
var headerParts = []struct {
	kind     string
	off, len int64
}{
	{"magic", 0, 8}, {"reserved", 8, 4}, {"volume", 12, 16}, {"sequence", 28, 8}, {"epoch", 36, 8}, {"salt", 44, 32},
	{"predecessor's sequence", 76, 8}, {"predecessor's length", 84, 8}, {"predecessor's hash", 92, 32}, {"header's checksum", 124, 4},
}

const tag = 16 // bytes of a GCM tag, at the end of what is sealed

// fields lists the fields of a segment. at is the place in the file of its first block. Blocks do
// not compress here, so their lengths say how much of the file they hold. fields returns the place
// of the next segment's first block.
func fields(t *testing.T, seq uint64, b []byte, at int64) (out []field, next int64) {
	t.Helper()
	for off := 0; off < len(b); {
		f, err := segment.Next(b[off:])
		if err != nil {
			t.Fatalf("segment %d offset %d: %v", seq, off, err)
		}
		o := int64(off)
		off += len(f.Bytes)
		if f.IsHeader {
			for _, p := range headerParts {
				out = append(out, field{p.kind, seq, o + p.off, p.len, at, at + 1})
			}
			continue
		}
		n := int64(binary.BigEndian.Uint16(f.Bytes[29:]))
		first := len(out)
		out = append(out, []field{
			{"record's length", seq, o, 4, 0, 0}, {"record's checksum", seq, o + 4, 4, 0, 0}, {"record's kind", seq, o + 8, 1, 0, 0},
			{"record's epoch", seq, o + 9, 8, 0, 0}, {"nonce counter", seq, o + 17, 8, 0, 0}, {"length of meta", seq, o + 25, 4, 0, 0},
			{"number of blocks", seq, o + 29, 2, 0, 0},
		}...)
		if n > 0 {
			out = append(out, field{"lengths of blocks", seq, o + 31, 4 * n, 0, 0})
		}
		begin, p := at, o+31+4*n
		for i := range n {
			size := int64(binary.BigEndian.Uint32(f.Bytes[31+4*i:]))
			raw := size - tag - 1
			out = append(out, field{"block", seq, p, size - tag, at, at + raw},
				field{"block's tag", seq, p + size - tag, tag, at, at + raw})
			p, at = p+size, at+raw
		}
		out = append(out, field{"meta", seq, p, o + int64(len(f.Bytes)) - p - tag, 0, 0},
			field{"meta's tag", seq, o + int64(len(f.Bytes)) - tag, tag, 0, 0})
		for i := first; i < len(out); i++ {
			if out[i].to == 0 {
				out[i].from, out[i].to = begin, begin+1
			}
		}
	}
	return out, at
}

// flip changes one bit of a file.
func flip(t *testing.T, file string, off int64, bit uint) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1)
	_, err = f.ReadAt(p, off)
	if err == nil {
		p[0] ^= 1 << bit
		_, err = f.WriteAt(p, off)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(fmt.Errorf("flip bit %d of byte %d of %s: %w", bit, off, file, err))
	}
}
