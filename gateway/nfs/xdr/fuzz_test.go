// SPDX-License-Identifier: Apache-2.0

package xdr

import (
	"bytes"
	"encoding/binary"
	"testing"
	"testing/iotest"
)

// records is the obvious reading of a stream of records: it stops at the first
// that is torn or longer than limit.
func records(stream []byte, limit int) (out [][]byte) {
	rec, fragments := []byte{}, 0
	for len(stream) >= 4 {
		mark := binary.BigEndian.Uint32(stream)
		n := int(mark &^ uint32(lastFragment))
		stream = stream[4:]
		if fragments++; n > len(stream) || len(rec)+n > limit || fragments > maxFragments {
			return out
		}
		rec, stream = append(rec, stream[:n]...), stream[n:]
		if mark&lastFragment != 0 {
			out, rec, fragments = append(out, rec), []byte{}, 0
		}
	}
	return out
}

// FuzzReadRecord compares ReadRecord with records, also when the stream comes in
// pieces.
func FuzzReadRecord(f *testing.F) {
	f.Add([]byte{128, 0, 0, 4, 1, 2, 3, 4, 128, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 1, 'a', 0, 0, 0, 0, 128, 0, 0, 2, 'b', 'c', 128, 0})
	f.Add([]byte{255, 255, 255, 255})
	f.Add([]byte{127, 255, 255, 255, 128, 0, 0, 1, 1})
	f.Add(make([]byte, 4*maxFragments+8))
	f.Add(append([]byte{128, 1, 134, 160}, make([]byte, 100000)...)) // more than one piece
	f.Fuzz(func(t *testing.T, stream []byte) {
		const limit = 200 << 10
		want := records(stream, limit)
		whole := bytes.NewReader(stream)
		for i := 0; ; i++ {
			b, err := ReadRecord(whole, limit)
			if err != nil {
				if i != len(want) {
					t.Fatalf("record %d of %d: %v", i, len(want), err)
				}
				break
			}
			if i >= len(want) || !bytes.Equal(b.B, want[i]) {
				t.Fatalf("record %d of %d differs", i, len(want))
			}
			b.Free()
		}
		half := iotest.HalfReader(bytes.NewReader(stream))
		for i := range want {
			b, err := ReadRecord(half, limit)
			if err != nil || !bytes.Equal(b.B, want[i]) {
				t.Fatalf("record %d in pieces: %v", i, err)
			}
			b.Free()
		}
	})
}

// FuzzDecoder reads every kind of item from arbitrary bytes. What was read without
// an error is encoded again to the bytes that it was read from.
func FuzzDecoder(f *testing.F) {
	var e Encoder
	e.CallHeader(CallHeader{XID: 1, Program: NFS4_PROGRAM, Version: 4, Procedure: 1, Cred: OpaqueAuth{AUTH_SYS, []byte{1, 2, 3, 4}}})
	f.Add(byte(0), e.Bytes())
	var sys Encoder
	sys.AuthSys(AuthSys{Machine: "abc", UID: 1, GID: 2, Groups: []uint32{3, 4}})
	f.Add(byte(1), sys.Bytes())
	f.Add(byte(2), []byte{0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 9})
	f.Add(byte(2), []byte{0, 0, 0, 64})
	f.Add(byte(3), make([]byte, 28))
	f.Add(byte(4), append(make([]byte, 8), 0x3b, 0x9a, 0xc9, 0xff))
	f.Add(byte(5), []byte{0, 0, 0, 5, 'a', 'b', 'c', 'd', 'e', 0, 0, 0})
	f.Add(byte(6), make([]byte, 16))
	f.Add(byte(7), make([]byte, 20))
	f.Add(byte(8), make([]byte, 28))
	f.Fuzz(func(t *testing.T, kind byte, in []byte) {
		d := NewDecoder(in)
		var e Encoder
		same := true
		switch kind % 9 {
		case 0:
			h := d.CallHeader()
			if d.Err() == nil && h.RPCVersion == RPC_VERSION {
				e.CallHeader(h)
			} else {
				same = false
			}
			same = same && padded(h.Cred.Body) && padded(h.Verf.Body)
		case 1:
			a := d.AuthSys()
			e.AuthSys(a)
			same = padded([]byte(a.Machine))
		case 2:
			b := d.Bitmap()
			e.Bitmap(b)
			// Bits beyond words are not encoded, nor are trailing zero words.
			same = d.Err() == nil && e.Len() == d.Offset() && !b.Extra
		case 3:
			e.ChannelAttrs(d.ChannelAttrs())
			same = e.Len() == d.Offset() // without RDMA
		case 4:
			e.Time(d.Time())
		case 5:
			b := d.Opaque(100)
			e.Opaque(b)
			same = padded(b)
		case 6:
			e.Stateid(d.Stateid())
		case 7:
			e.ChangeInfo(d.ChangeInfo())
		case 8:
			d.ReplyHeader()
			for range d.Count(1<<30, 8) {
				d.Uint64()
			}
			same = false
		}
		if d.Offset() > len(in) || d.Len() < 0 {
			t.Fatal("read beyond the end")
		}
		if d.Err() == nil && same && !bytes.Equal(e.Bytes(), in[:d.Offset()]) {
			t.Fatalf("kind %d: read %x, wrote %x", kind%9, in[:d.Offset()], e.Bytes())
		}
	})
}

// padded tells whether b has no padding, whose bytes need not be zero.
func padded(b []byte) bool { return len(b)%4 == 0 }
