// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// FuzzCompound executes arbitrary operations within a session. The server must neither
// crash nor hang. Its reply must be well formed to its end.
func FuzzCompound(f *testing.F) {
	add := func(minor uint32, tag string, ops ...arg) {
		var e xdr.Encoder
		for _, o := range ops {
			o(&e)
		}
		f.Add(minor, tag, uint32(len(ops)), e.Bytes())
	}
	id := xdr.Stateid{Seqid: 1}
	add(2, "")
	add(1, "a tag")
	for _, o := range oneOfEach(&host{}, id) {
		add(2, "", toVol(openOp("o", "f", 3, 0, unchecked...), op(xdr.OP_SAVEFH), o)...)
	}
	add(2, "", toVol(openOp("o", "f", 3, 0, unchecked...), op(xdr.OP_WRITE, id, uint64(0), 2, []byte("abc")),
		op(xdr.OP_READ, id, uint64(0), 100), op(xdr.OP_CLOSE, 0, id))...)
	add(2, "", toVol(openOp("o", "f", 3, 0, guarded...), lockOp(xdr.WRITE_LT, false, 0, 10, id, "l"),
		op(xdr.OP_LOCKU, 1, 0, id, uint64(0), uint64(9)))...)
	add(2, "", toVol(op(xdr.OP_CREATE, xdr.NF4LNK, "t", "l", xdr.Bitmap{}, ""), op(xdr.OP_READLINK), op(xdr.OP_LOOKUPP),
		op(xdr.OP_SAVEFH), op(xdr.OP_RENAME, "l", "m"), op(xdr.OP_LINK, "x"))...)
	add(2, "", op(xdr.OP_TEST_STATEID, 1<<31), op(xdr.OP_ILLEGAL))
	f.Fuzz(func(t *testing.T, minor uint32, tag string, count uint32, ops []byte) {
		r := newRig(t)
		h := r.host("10.0.0.1")
		var e xdr.Encoder
		e.String(tag)
		e.Uint32(minor)
		e.Uint32(1 + count%testChannel.MaxOperations)
		op(xdr.OP_SEQUENCE, h.session, 1, 1, 0, true)(&e)
		e.Raw(ops[:min(len(ops), 1<<16)])
		h.send(nfsCall(0), e.Bytes())
		b := h.receive()
		if b == nil {
			t.Fatal("no answer")
		}
		if d := xdr.NewDecoder(b); d.ReplyHeader().Stat == xdr.GARBAGE_ARGS {
			return
		}
		if err := h.answer(b).wellFormed(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzConnection sends arbitrary bytes on a connection. The server must not crash. It
// must end the connection when the client does.
func FuzzConnection(f *testing.F) {
	record := func(h xdr.CallHeader, body []byte) []byte {
		var e xdr.Encoder
		e.CallHeader(h)
		e.Raw(body)
		return append([]byte{128, 0, byte(e.Len() >> 8), byte(e.Len())}, e.Bytes()...)
	}
	null := xdr.CallHeader{Program: xdr.NFS4_PROGRAM, Version: xdr.NFS_V4}
	f.Add(record(null, nil))
	f.Add(append(record(null, nil), record(nfsCall(0), compoundBody(2, op(xdr.OP_EXCHANGE_ID, [8]byte{}, "x", 0, 0, 0)))...))
	f.Add(record(nfsCall(0), compoundBody(1, createSessionOp(1, 1, testChannel))))
	f.Add(record(nfsCall(0), compoundBody(2, op(xdr.OP_SEQUENCE, xdr.SessionID{}, 1, 0, 0, false))))
	f.Add(record(nfsCall(0), []byte{0, 0, 255, 255}))
	f.Add([]byte{0, 0, 0, 0, 128, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1})
	f.Add([]byte{127, 255, 255, 255, 0})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := newRig(t)
		p := r.connect("10.0.0.1")
		if err := p.nc.SetDeadline(time.Now().Add(hang)); err != nil {
			t.Fatal(err)
		}
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			_, _ = io.Copy(io.Discard, p.nc) // it ends as the connection does
		}()
		_, _ = p.nc.Write(stream) // the server may have closed it
		_ = p.nc.Close()
		<-drained
	})
}

// FuzzHandle decodes arbitrary bytes as a file handle. If they decode, they must be equal
// to the handle that is encoded from the result.
func FuzzHandle(f *testing.F) {
	f.Add(encodeHandle(place{pseudo: true}))
	f.Add(encodeHandle(place{export: Export{ID: volID}, h: volume.Handle{Ino: 7, Gen: 9}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		id, h, ok := decodeHandle(b)
		if !ok {
			return
		}
		if again := encodeHandle(place{pseudo: id == volume.ID{}, export: Export{ID: id}, h: h}); string(again) != string(b) {
			t.Fatalf("%x decodes to what encodes to %x", b, again)
		}
	})
}

// FuzzOwner: a number that is read from a client's owner is written as it was.
func FuzzOwner(f *testing.F) {
	for _, s := range []string{"0", "1000", "01", "+1", "4294967296", "root@example.org", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, ok := parseOwner(s); ok && strconv.FormatUint(uint64(n), 10) != s {
			t.Fatalf("%q is %d", s, n)
		}
	})
}
