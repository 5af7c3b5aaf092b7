// SPDX-License-Identifier: Apache-2.0

package xdr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"
)

func TestRoundTrip(t *testing.T) {
	var e Encoder
	at := e.Mark()
	e.Uint32(0)
	e.Uint64(1 << 40)
	e.Int64(-5)
	e.Bool(true)
	e.Opaque([]byte("abcde"))
	e.OpaqueRef([]byte("by reference"))
	e.OpaqueRef(nil)
	e.String("")
	e.Bitmap(NewBitmap(1, 33, 82))
	e.Stateid(Stateid{7, [12]byte{1, 11: 2}})
	e.Time(time.Unix(-3, 999))
	e.ChannelAttrs(ChannelAttrs{1, 2, 3, 4, 5, 6})
	undo := e.Mark()
	e.OpaqueRef([]byte("taken back"))
	e.Truncate(undo)
	e.PatchUint32(at, 99)
	if e.Len() != len(e.Bytes()) || e.Len()%4 != 0 {
		t.Fatal(e.Len(), len(e.Bytes()))
	}
	var wire bytes.Buffer
	if err := WriteRecord(&wire, &e); err != nil {
		t.Fatal(err)
	}
	rec, err := ReadRecord(&wire, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	d := NewDecoder(rec.B)
	if v := d.Uint32(); v != 99 {
		t.Fatal(v)
	}
	if d.Uint64() != 1<<40 || d.Int64() != -5 || !d.Bool() || string(d.Opaque(5)) != "abcde" || d.String(12) != "by reference" ||
		d.String(0) != "" || d.String(0) != "" {
		t.Fatal("wrong value")
	}
	if b := d.Bitmap(); b != NewBitmap(1, 33, 82) || !b.Has(82) || b.Has(83) || b.Has(200) {
		t.Fatal(b)
	}
	if s := d.Stateid(); s != (Stateid{7, [12]byte{1, 11: 2}}) {
		t.Fatal(s)
	}
	if v := d.Time(); !v.Equal(time.Unix(-3, 999)) {
		t.Fatal(v)
	}
	if a := d.ChannelAttrs(); a != (ChannelAttrs{1, 2, 3, 4, 5, 6}) || d.Err() != nil || d.Len() != 0 {
		t.Fatal(a, d.Err(), d.Len())
	}
	if d.Uint32() != 0 || !errors.Is(d.Err(), errShort) {
		t.Fatal("read beyond the end")
	}
}

func TestHostileLengths(t *testing.T) {
	cases := map[string]struct {
		in   []byte
		read func(*Decoder)
		want error
	}{
		"opaque beyond the end":   {[]byte{0, 0, 0, 9, 1}, func(d *Decoder) { d.Opaque(100) }, errShort},
		"opaque of 4 GiB":         {[]byte{255, 255, 255, 255}, func(d *Decoder) { d.Opaque(100) }, errShort},
		"opaque above its limit":  {[]byte{0, 0, 0, 4, 1, 2, 3, 4}, func(d *Decoder) { d.Opaque(3) }, ErrTooLong},
		"array of 4 G items":      {[]byte{255, 255, 255, 255}, func(d *Decoder) { d.Count(1<<31, 16) }, errShort},
		"array above its limit":   {[]byte{0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0}, func(d *Decoder) { d.Count(1, 4) }, ErrTooLong},
		"boolean 2":               {[]byte{0, 0, 0, 2}, func(d *Decoder) { d.Bool() }, errBadBool},
		"a second of nanoseconds": {[]byte{7: 0, 8: 0x3b, 9: 0x9a, 10: 0xca, 11: 0}, func(d *Decoder) { d.Time() }, ErrBadTime},
		"padding is missing":      {[]byte{0, 0, 0, 1, 1}, func(d *Decoder) { d.Opaque(4) }, errShort},
	}
	for name, c := range cases {
		d := NewDecoder(c.in)
		c.read(d)
		if !errors.Is(d.Err(), c.want) {
			t.Errorf("%s: %v, want %v", name, d.Err(), c.want)
		}
	}
}

func TestRecords(t *testing.T) {
	cases := map[string]struct {
		in   []byte
		want string
		err  error
	}{
		"fragments":      {[]byte{0, 0, 0, 2, 'a', 'b', 0, 0, 0, 0, 128, 0, 0, 1, 'c'}, "abc", nil},
		"end":            {nil, "", io.EOF},
		"torn header":    {[]byte{128, 0}, "", io.ErrUnexpectedEOF},
		"torn body":      {[]byte{128, 0, 0, 9, 'a'}, "", io.ErrUnexpectedEOF},
		"too long":       {[]byte{128, 0, 0, 99}, "", ErrTooLong},
		"too long sum":   {[]byte{0, 0, 0, 2, 'a', 'b', 128, 0, 0, 15, 'c'}, "", ErrTooLong},
		"empty for ever": {make([]byte, 4*maxFragments+4), "", ErrTooLong},
	}
	for name, c := range cases {
		b, err := ReadRecord(bytes.NewReader(c.in), 16)
		if !errors.Is(err, c.err) || err == nil && string(b.B) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHeaders(t *testing.T) {
	var e Encoder
	e.AuthSys(AuthSys{1, "host", 2, 3, []uint32{4, 5}})
	h := CallHeader{XID: 9, RPCVersion: 2, Program: NFS4_PROGRAM, Version: 4, Procedure: 1, Cred: OpaqueAuth{AUTH_SYS, e.Bytes()},
		Verf: OpaqueAuth{Body: []byte{}}}
	var call Encoder
	call.CallHeader(h)
	got := NewDecoder(call.Bytes()).CallHeader()
	if got.XID != 9 || got.Program != NFS4_PROGRAM || got.Cred.Flavor != AUTH_SYS {
		t.Fatalf("%+v", got)
	}
	if a := NewDecoder(got.Cred.Body).AuthSys(); a.Machine != "host" || a.UID != 2 || len(a.Groups) != 2 {
		t.Fatalf("%+v", a)
	}
	for want, put := range map[ReplyHeader]func(*Encoder){
		{XID: 1}:                                       func(e *Encoder) { e.AcceptedHeader(1, SUCCESS) },
		{XID: 1, Denied: true, Low: 2, High: 3}:        func(e *Encoder) { e.DeniedHeader(1, RPC_MISMATCH, 2, 3) },
		{XID: 1, Denied: true, Stat: 1, AuthStat: 5}:   func(e *Encoder) { e.DeniedHeader(1, AUTH_ERROR, 5, 0) },
		{XID: 1, Stat: PROG_MISMATCH, Low: 4, High: 4}: func(e *Encoder) { e.AcceptedHeader(1, PROG_MISMATCH); e.Uint32(4); e.Uint32(4) },
	} {
		var e Encoder
		put(&e)
		d := NewDecoder(e.Bytes())
		if got := d.ReplyHeader(); got != want || d.Err() != nil || d.Len() != 0 {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if s := NFS4ERR_GRACE.Error() + OP_OPEN.String() + Status(4).String(); s != "NFS4ERR_GRACEOPEN4" {
		t.Fatal(s)
	}
}

// TestRecordWithoutRoom: of a record for which there is no room the beginning is kept, and the next
// record is found.
func TestRecordWithoutRoom(t *testing.T) {
	record := func(last bool, n int) []byte {
		b := make([]byte, 4+n)
		mark := uint32(n)
		if last {
			mark |= lastFragment
		}
		binary.BigEndian.PutUint32(b, mark)
		return b
	}
	for name, first := range map[string][]byte{
		"one fragment":   record(true, 100<<10),
		"two fragments":  append(record(false, 50<<10), record(true, 50<<10)...),
		"a small second": append(record(false, 99<<10), record(true, 1<<10)...),
	} {
		r := bytes.NewReader(append(first, record(true, 7)...))
		asked := 0
		buf, size, err := ReadRecordWithin(r, 1<<20, func(n int) bool { asked = n; return n < 60<<10 })
		if err != nil || size != 100<<10 || len(buf.B) == size || asked < 60<<10 {
			t.Fatalf("%s: %d of %d bytes, asked for %d: %v", name, len(buf.B), size, asked, err)
		}
		buf.Free()
		if next, err := ReadRecord(r, 1<<20); err != nil || len(next.B) != 7 {
			t.Fatalf("%s: the next record: %v", name, err)
		}
		if _, _, err := ReadRecordWithin(bytes.NewReader(first), 100<<10-1, func(int) bool { return false }); !errors.Is(err, ErrTooLong) {
			t.Errorf("%s: with a lower limit: %v", name, err)
		}
	}
	if b := NewBuffer(1<<20 + 300); cap(b.B) > largeSize {
		t.Errorf("a megabyte and a header take %d", cap(b.B))
	}
	for _, n := range []int{largeSize, largeSize + 1, 1 << 21, 1<<21 + 1} {
		if b := NewBuffer(n); len(b.B) != n {
			t.Errorf("a buffer of %d has %d", n, len(b.B))
		}
	}
}
