// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/blake3"
)

var update = flag.Bool("update", false, "rewrite golden files")

var (
	testVolume = VolumeID{0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	testKey    = DataKey{1, 2, 3}
)

func testHeader() Header {
	return Header{Volume: testVolume, Seq: 7, Epoch: 3, Prev: Link{Seq: 6, Len: 4096, Hash: Hash{9, 9}}}
}

// seeded returns a reader of reproducible bytes. It must not be used outside tests.
func seeded(b byte) *rand.ChaCha8 { return rand.NewChaCha8([32]byte{b}) }

func text(n int) []byte { return bytes.Repeat([]byte("weir holds "), n/11+1)[:n] }

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = seeded(42).Read(b) // never fails
	return b
}

// testRecords cover every kind of op, codec and empty field.
func testRecords() []*Record {
	return []*Record{
		{Time: 1},
		{
			Time: -5, Slot: "client/1", Seq: 9, Index: 2, Result: []byte("ok"), Touched: []uint64{1, 1 << 40},
			Ops: []Op{
				{Kind: Set, Key: []byte("k1"), Value: []byte("v1")},
				{Kind: Set, Key: []byte("empty")},
				{Kind: Delete, Key: []byte("k2")},
				{Kind: DeleteRange, Key: []byte("a"), End: []byte("b")},
			},
		},
		{
			Time: 1700000000000000000,
			Ops: []Op{
				{Kind: SetBlock, Key: []byte("e1"), Value: []byte("origin"), Block: 1},
				{Kind: SetBlock, Key: []byte("e0"), Block: 0},
			},
			Blocks: []Block{{Raw: text(300)}, {Raw: noise(40)}},
		},
	}
}

// build makes a segment of records. It returns the segment and the offsets of its frames.
func build(t testing.TB, recs []*Record) (*Sealer, []byte, []uint64) {
	t.Helper()
	s, err := NewSealer(&testKey, testHeader(), seeded(1))
	if err != nil {
		t.Fatal(err)
	}
	seg := AppendHeader(nil, s.Header())
	var offs []uint64
	for _, r := range recs {
		offs = append(offs, uint64(len(seg)))
		if seg, err = encodeRecord(s, seg, r, uint64(len(seg))); err != nil {
			t.Fatal(err)
		}
	}
	return s, seg, offs
}

// asRead returns r as it comes back from a log.
func asRead(r *Record) *Record {
	c := *r
	c.Blocks = nil
	for _, b := range r.Blocks {
		c.Blocks = append(c.Blocks, Block{Ref: b.Ref, Size: b.Size})
	}
	return &c
}

func TestRecordsComeBack(t *testing.T) {
	recs := testRecords()
	_, seg, offs := build(t, recs)
	h, err := DecodeHeader(seg)
	if err != nil {
		t.Fatal(err)
	}
	o, err := NewOpener(&testKey, h)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range recs {
		f, err := Next(seg[offs[i]:])
		if err != nil || f.IsHeader {
			t.Fatalf("record %d: %v", i, err)
		}
		if FrameEpoch(f.Bytes) != 3 {
			t.Fatalf("epoch %d", FrameEpoch(f.Bytes))
		}
		got, err := o.DecodeRecord(f.Bytes, offs[i])
		if err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		if !reflect.DeepEqual(got, asRead(want)) {
			t.Fatalf("record %d:\n got %+v\nwant %+v", i, got, asRead(want))
		}
		for j, b := range got.Blocks {
			raw, err := o.OpenBlock(b.Ref, slices.Clone(seg[b.Ref.Off:b.Ref.Off+uint64(b.Ref.Len)]))
			if err != nil || !bytes.Equal(raw, want.Blocks[j].Raw) {
				t.Fatalf("record %d block %d: %v", i, j, err)
			}
		}
		if _, err := o.DecodeRecord(f.Bytes, offs[i]+1); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("a record opened at another place: %v", err)
		}
	}
}

func TestResolved(t *testing.T) {
	recs := testRecords()
	build(t, recs)
	r := recs[2]
	ops := r.Resolved()
	if ops[0].Kind != Set || r.Ops[0].Kind != SetBlock {
		t.Fatal("SetBlock must become Set in the result only")
	}
	v, ok := bytes.CutPrefix(ops[0].Value, []byte("origin"))
	ref, err := DecodeBlockRef(v)
	if !ok || err != nil || ref != r.Blocks[1].Ref {
		t.Fatalf("%x %v %v", ops[0].Value, ref, err)
	}
	for _, bad := range [][]byte{nil, make([]byte, 27), make([]byte, 28), bytes.Repeat([]byte{255}, 28)} {
		if _, err := DecodeBlockRef(bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("DecodeBlockRef(%x): %v", bad, err)
		}
	}
}

// TestGolden pins the format. If it fails, old logs can no longer be read.
func TestGolden(t *testing.T) {
	_, seg, _ := build(t, testRecords())
	path := filepath.Join("testdata", "segment.hex")
	if *update {
		var b strings.Builder
		for line := range slices.Chunk(seg, 32) {
			b.WriteString(hex.EncodeToString(line) + "\n")
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(seg, want) {
		// The compressor may change its output, but what was written must still open.
		t.Errorf("encoding differs from %s", path)
	}
	checkSegment(t, want, testRecords())
}

// checkSegment decodes a whole segment with the key and compares it with want.
func checkSegment(t *testing.T, seg []byte, want []*Record) {
	t.Helper()
	recs, blocks, err := readAll(seg)
	if err != nil {
		t.Fatal(err)
	}
	if len(recs) != len(want) {
		t.Fatalf("%d records, want %d", len(recs), len(want))
	}
	for i, r := range recs {
		for j := range r.Blocks {
			if !bytes.Equal(blocks[i][j], want[i].Blocks[j].Raw) {
				t.Fatalf("record %d block %d differs", i, j)
			}
		}
		r.Epoch, r.Blocks = 0, nil
		w := *want[i]
		w.Epoch, w.Blocks = 0, nil
		if !reflect.DeepEqual(*r, w) {
			t.Fatalf("record %d: %+v want %+v", i, *r, w)
		}
	}
}

// readAll exercises every decoding path: scan, header, records, blocks. It fails at the first
// error.
func readAll(seg []byte) (recs []*Record, blocks [][][]byte, err error) {
	var o *Opener
	sc, err := Scan(bytes.NewReader(seg), func(off uint64, frame []byte) error {
		if off == 0 {
			h, err := DecodeHeader(frame)
			if err != nil {
				return err
			}
			o, err = NewOpener(&testKey, h)
			return err
		}
		r, err := o.DecodeRecord(frame, off)
		if err != nil {
			return err
		}
		var raws [][]byte
		for _, b := range r.Blocks {
			raw, err := o.OpenBlock(b.Ref, slices.Clone(seg[b.Ref.Off:b.Ref.Off+uint64(b.Ref.Len)]))
			if err != nil {
				return err
			}
			raws = append(raws, raw)
		}
		recs, blocks = append(recs, r), append(blocks, raws)
		return nil
	})
	if err == nil && sc.Tail != Clean {
		err = sc.Why
	}
	return recs, blocks, err
}

func TestName(t *testing.T) {
	h := blake3.Sum256([]byte("x"))
	name := Name(testVolume, 255, h)
	if !strings.HasPrefix(name, "a0010203-0405-0607-0809-0a0b0c0d0e0f/00000000000000ff-") {
		t.Fatal(name)
	}
	v, seq, hash, err := ParseName(name)
	if err != nil || v != testVolume || seq != 255 || hash != h {
		t.Fatal(v, seq, hash, err)
	}
	for _, bad := range []string{"", "x", name[1:], name + "0", strings.ToUpper(name), strings.Replace(name, "-", "+", 1),
		strings.Replace(name, "ff-", "+f-", 1)} {
		if _, _, _, err := ParseName(bad); err == nil {
			t.Errorf("ParseName(%q) accepted", bad)
		}
	}
}

func TestPack(t *testing.T) {
	for _, raw := range [][]byte{{1}, text(10), text(MaxBlock), noise(100), noise(MaxBlock), make([]byte, MaxBlock)} {
		p := Pack(raw, Fast)
		if len(p) > len(raw)+1 {
			t.Fatalf("%d bytes packed to %d", len(raw), len(p))
		}
		got, err := Unpack(p, nil)
		if err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("%d bytes: %v", len(raw), err)
		}
		for _, how := range []Compression{None, Strong, "unknown"} {
			if got, err := Unpack(Pack(raw, how), nil); err != nil || !bytes.Equal(got, raw) {
				t.Fatalf("%d bytes, compression %q: %v", len(raw), how, err)
			}
		}
		if how := Pack(raw, None)[0]; how != codecRaw {
			t.Fatalf("without compression the codec is %d", how)
		}
		buf := make([]byte, 0, MaxBlock)
		got, err = Unpack(p, buf)
		if err != nil || &got[0] != &buf[:1][0] {
			t.Fatalf("dst not used: %v", err)
		}
	}
	bomb := Pack(make([]byte, MaxBlock+1), Fast)
	huge := encoders[Fast]().EncodeAll(make([]byte, 64<<20), []byte{codecZstd})
	two := Pack(make([]byte, MaxBlock), Fast)
	two = append(two, two[1:]...) // zstd frames may follow one another
	for name, bad := range map[string][]byte{
		"one byte too many": bomb, "bomb": huge, "two frames": two, "empty": {}, "codec": {9, 1}, "not zstd": {1, 2, 3},
		"long raw": make([]byte, MaxBlock+2),
	} {
		got, err := Unpack(bad, nil)
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		var c *CorruptError
		if name == "bomb" && errors.As(err, &c) && c.Field != "block zstd" {
			t.Errorf("a bomb was unpacked before it was refused: %v", err)
		}
	}
}

func TestPrepareRefuses(t *testing.T) {
	many := make([]Block, maxBlocks+1)
	fat := &Record{Result: make([]byte, MaxFrame)}
	for name, c := range map[string]struct {
		rec   *Record
		large bool
	}{
		"op kind":       {&Record{Ops: []Op{{Kind: 9}}}, false},
		"block index":   {&Record{Ops: []Op{{Kind: SetBlock, Block: 0}}}, false},
		"negative":      {&Record{Ops: []Op{{Kind: SetBlock, Block: -1}}}, false},
		"empty block":   {&Record{Blocks: []Block{{Raw: []byte{}}}}, false},
		"long block":    {&Record{Blocks: []Block{{Raw: make([]byte, MaxBlock+1)}}}, false},
		"no data":       {&Record{Blocks: []Block{{Size: 5}}}, false},
		"many blocks":   {&Record{Blocks: many}, true},
		"too much meta": {fat, true},
	} {
		if _, err := Prepare(c.rec); err == nil || errors.Is(err, ErrTooLarge) != c.large {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStaleReference: segments that had the same sequence reject each other's references, however
// similar they are.
func TestStaleReference(t *testing.T) {
	recs := testRecords()
	_, seg, _ := build(t, recs)
	other, err := NewSealer(&testKey, testHeader(), seeded(2))
	if err != nil {
		t.Fatal(err)
	}
	ref := recs[2].Blocks[0].Ref
	if _, err := other.OpenBlock(ref, seg[ref.Off:ref.Off+uint64(ref.Len)]); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	_, err = encodeRecord(other, nil, testRecords()[2], ref.Off)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.CheckRef(ref); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}

func TestSealerOwnsItsSalt(t *testing.T) {
	h := testHeader()
	h.Salt[3] = 1
	if _, err := NewSealer(&testKey, h, seeded(1)); err == nil {
		t.Error("sealing under a given salt must be refused (protocol-16)")
	}
	if _, err := NewSealer(&testKey, testHeader(), bytes.NewReader(make([]byte, 32))); err == nil {
		t.Error("zero randomness must be refused")
	}
	if _, err := NewSealer(&testKey, testHeader(), bytes.NewReader(make([]byte, 31))); err == nil {
		t.Error("short randomness must be refused")
	}
	s, _, _ := build(t, testRecords())
	s.Stop()
	if _, err := encodeRecord(s, nil, &Record{}, HeaderSize); err == nil {
		t.Error("a stopped Sealer sealed")
	}
}

// TestSecrets looks for user bytes outside sealed parts (protocol-18).
func TestSecrets(t *testing.T) {
	_, seg, _ := build(t, []*Record{{
		Slot: "SECRET", Result: []byte("SECRET"), Blocks: []Block{{Raw: []byte("SECRET")}},
		Ops: []Op{{Kind: Set, Key: []byte("SECRET"), Value: []byte("SECRET")}},
	}})
	if bytes.Contains(seg, []byte("SECRET")) {
		t.Error("plaintext in a segment")
	}
}

// encodeRecord prepares and seals a record.
func encodeRecord(s *Sealer, dst []byte, rec *Record, off uint64) ([]byte, error) {
	p, err := Prepare(rec)
	if err != nil {
		return dst, err
	}
	return s.Seal(dst, p, off)
}

// TestPackLooksFirst: what is random is kept as it is, what repeats itself is not.
func TestPackLooksFirst(t *testing.T) {
	random := noise(MaxBlock)
	twice := append(slices.Clone(random[:MaxBlock/2]), random[:MaxBlock/2]...)
	few := slices.Clone(random)
	for i := range few {
		few[i] &= 0x7f
	}
	for name, c := range map[string]struct {
		raw    []byte
		random bool
	}{"random": {random, true}, "a random part, twice": {twice, false}, "half of the bytes": {few, false}, "text": {text(MaxBlock), false},
		"zeros": {make([]byte, MaxBlock), false}, "short": {random[:4000], false}} {
		if got := looksRandom(c.raw); got != c.random {
			t.Errorf("%s: looks random: %t", name, got)
		}
		pack := Pack(c.raw, Fast)
		if raw, err := Unpack(pack, nil); err != nil || !bytes.Equal(raw, c.raw) {
			t.Errorf("%s: %v", name, err)
		}
		if compressed := pack[0] == codecZstd; compressed == (c.random || name == "short" || name == "half of the bytes") {
			t.Errorf("%s: compressed: %t", name, compressed)
		}
	}
}
