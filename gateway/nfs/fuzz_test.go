// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"testing"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// FuzzCompound executes arbitrary operations within a session: the server must
// neither crash nor hang, and answer with a reply that is well formed up to its
// results.
func FuzzCompound(f *testing.F) {
	add := func(ops ...arg) {
		var e xdr.Encoder
		for _, o := range ops {
			o(&e)
		}
		f.Add(uint32(len(ops)), e.Bytes())
	}
	id := xdr.Stateid{Seqid: 1}
	add()
	add(toVol(openOp("o", "f", 3, 0, unchecked...), op(xdr.OP_WRITE, id, uint64(0), 2, []byte("abc")), op(xdr.OP_READ, id, uint64(0), 100), op(xdr.OP_CLOSE, 0, id))...)
	add(toVol(openOp("o", "f", 3, 0, guarded...), lockOp(xdr.WRITE_LT, false, 0, 10, id, "l"), op(xdr.OP_LOCKU, 1, 0, id, uint64(0), uint64(9)))...)
	add(toVol(op(xdr.OP_GETATTR, supportedAttrs(2)), op(xdr.OP_READDIR, uint64(0), [8]byte{}, 0, 4096, readableAttrs))...)
	add(toVol(op(xdr.OP_CREATE, xdr.NF4LNK, "t", "l", xdr.Bitmap{}, ""), op(xdr.OP_READLINK), op(xdr.OP_LOOKUPP), op(xdr.OP_SAVEFH), op(xdr.OP_RENAME, "l", "m"), op(xdr.OP_LINK, "x"))...)
	add(toVol(op(xdr.OP_SETXATTR, 0, "k", "v"), op(xdr.OP_LISTXATTRS, uint64(0), 100), op(xdr.OP_SEEK, id, uint64(0), 0))...)
	add(op(xdr.OP_EXCHANGE_ID, [8]byte{}, "x", 0, 2, 0, 0, 0, 0, 1, 1, 0))
	add(op(xdr.OP_TEST_STATEID, 1<<31), op(xdr.OP_ILLEGAL))
	f.Fuzz(func(t *testing.T, count uint32, ops []byte) {
		r := newRig(t)
		h := r.host("10.0.0.1")
		var e xdr.Encoder
		e.String("")
		e.Uint32(2)
		e.Uint32(1 + count%testChannel.MaxOperations)
		op(xdr.OP_SEQUENCE, h.session, 1, 1, 0, true)(&e)
		e.Raw(ops[:min(len(ops), 1<<16)])
		h.send(nfsCall(0), e.Bytes())
		b := h.receive()
		if b == nil {
			t.Fatal("no answer")
		}
		if a := h.answer(b); a.Err() != nil || a.count > count+2 && a.count > testChannel.MaxOperations {
			t.Fatalf("malformed answer: %v, %d results", a.Err(), a.count)
		}
	})
}
