// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
)

func FuzzHeader(f *testing.F) {
	f.Add(AppendHeader(nil, Header{Seq: 1, Epoch: 2, Key: 3}))
	f.Add(AppendHeader(nil, Header{Seq: 9, Epoch: 2, Prev: Link{Seq: 8, Len: 200}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= HeaderSize { // the checksum is what fuzzing does not find
			binary.BigEndian.PutUint32(b[124:], crcOf(b[:124]))
		}
		h, err := DecodeHeader(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrShort) {
				t.Fatal(err)
			}
			return
		}
		if again := AppendHeader(nil, h); !bytes.Equal(again, b[:HeaderSize]) {
			t.Fatalf("%x encodes as %x", b[:HeaderSize], again)
		}
	})
}

func crcOf(b []byte) uint32 {
	var frame [8]byte // frameCRC leaves out four of them
	copy(frame[:], b)
	return frameCRC(append(frame[:4:4], append(make([]byte, 4), b[4:]...)...))
}

func FuzzSegmentName(f *testing.F) {
	f.Add(Name(VolumeID{1}, 7, Hash{2}))
	f.Add(OpenName(VolumeID{1}, 7, [32]byte{2}))
	f.Add("01000000-0000-0000-0000-000000000000/0000000000000007")
	f.Fuzz(func(t *testing.T, name string) {
		if v, seq, h, err := ParseName(name); err == nil && Name(v, seq, h) != name {
			t.Fatal(name)
		}
		if v, seq, salt, err := ParseOpenName(name); err == nil && OpenName(v, seq, salt) != name {
			t.Fatal(name)
		}
	})
}

func FuzzBlockRef(f *testing.F) {
	f.Add(AppendBlockRef(nil, BlockRef{Seq: 1, Off: 200, Len: 100, Counter: 1 << 40}))
	f.Fuzz(func(t *testing.T, b []byte) {
		ref, err := DecodeBlockRef(b)
		if err == nil && !bytes.Equal(AppendBlockRef(nil, ref), b) {
			t.Fatalf("%x", b)
		}
	})
}

// FuzzRecord seals arbitrary bytes as the meta of a record, as a home might that has the key and
// mistakes. Frame and outline must say the same.
func FuzzRecord(f *testing.F) {
	for _, r := range testRecords() {
		if _, err := Prepare(r); err != nil {
			f.Fatal(err)
		}
		f.Add(appendMeta(nil, r), uint8(len(r.Blocks)))
	}
	_, seg, _ := build(f, testRecords())
	h, err := DecodeHeader(seg)
	if err != nil {
		f.Fatal(err)
	}
	o, err := NewOpener(&testKey, h)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, meta []byte, blocks uint8) {
		n := int(blocks % 5)
		b := binary.BigEndian.AppendUint32(make([]byte, 0, 200), uint32(framePrefix+4*n+20*n+len(meta)+TagSize))
		b = append(append(b, 0, 0, 0, 0), kindRecord)
		b = binary.BigEndian.AppendUint64(b, h.Epoch)
		b = binary.BigEndian.AppendUint64(b, 5)
		b = binary.BigEndian.AppendUint32(b, uint32(len(meta)+TagSize))
		b = binary.BigEndian.AppendUint16(b, uint16(n))
		for range n {
			b = binary.BigEndian.AppendUint32(b, 20)
		}
		s := &scratch{}
		plain := bytes.Clone(b[8:])
		b = append(b, make([]byte, 20*n)...)
		counter := uint64(5 + n)
		b = o.aead.Seal(b, s.setNonce(counter), meta, o.metaAAD(s, counter, HeaderSize, plain))
		binary.BigEndian.PutUint32(b[4:], frameCRC(b))
		r, err := o.DecodeRecord(b, HeaderSize)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		if len(meta) == 0 {
			return // no frame
		}
		outline, oerr := Outline(b)
		if oerr != nil {
			t.Fatal(oerr)
		}
		again, size, oerr := o.DecodeOutline(outline, HeaderSize)
		if (oerr == nil) != (err == nil) || oerr == nil && (size != len(b) || !reflect.DeepEqual(again, r)) {
			t.Fatalf("%v, %v\n%+v\n%+v", err, oerr, r, again)
		}
		if err == nil {
			r.Resolved()
		}
	})
}

// FuzzOutline decodes arbitrary bytes as an outline.
func FuzzOutline(f *testing.F) {
	_, seg, offs := build(f, testRecords())
	h, err := DecodeHeader(seg)
	if err != nil {
		f.Fatal(err)
	}
	o, err := NewOpener(&testKey, h)
	if err != nil {
		f.Fatal(err)
	}
	for _, off := range offs {
		fr, err := Next(seg[off:])
		if err != nil {
			f.Fatal(err)
		}
		out, err := Outline(fr.Bytes)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(out, off)
	}
	f.Fuzz(func(t *testing.T, b []byte, off uint64) {
		size, plain, meta, ok := OutlineParts(b)
		if ok && (plain < OutlinePrefix || meta < 0 || plain+meta > size || size > MaxFrame) {
			t.Fatal(size, plain, meta)
		}
		if _, _, err := o.DecodeOutline(b, off); err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrShort) {
			t.Fatal(err)
		}
	})
}
