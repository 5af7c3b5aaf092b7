// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// wellFormed reads a whole COMPOUND reply and says what is wrong with it. Every result
// must have its body of RFC 8881, 7862 or 8276. Only the last may have failed, and
// nothing may follow. wellFormed knows only the requests of these tests.
func (a *answer) wellFormed() error {
	for i := range a.count {
		o, st := xdr.Op(a.Uint32()), xdr.Status(a.Uint32())
		if st != xdr.NFS4_OK && i != a.count-1 {
			return fmt.Errorf("%v failed (%v) and %d results follow", o, st, a.count-1-i)
		}
		// A request without an operation number has no result.
		if i == a.count-1 && st != a.status && (st != xdr.NFS4_OK || a.status != xdr.NFS4ERR_BADXDR) {
			return fmt.Errorf("%v: %v, but the compound says %v", o, st, a.status)
		}
		a.skipBody(o, st)
		if err := a.Err(); err != nil {
			return fmt.Errorf("%v: %v: %w", o, st, err)
		}
	}
	if a.Err() != nil || a.Len() != 0 {
		return fmt.Errorf("%v, %d bytes follow the results", a.Err(), a.Len())
	}
	return nil
}

// skipBody reads what follows the status of a result.
func (a *answer) skipBody(o xdr.Op, st xdr.Status) {
	switch {
	case o == xdr.OP_SETATTR:
		a.Bitmap()
		return
	case st == xdr.NFS4ERR_DENIED && (o == xdr.OP_LOCK || o == xdr.OP_LOCKT):
		a.words(5)
		a.Uint64()
		a.Opaque(xdr.NFS4_OPAQUE_LIMIT)
		return
	case st != xdr.NFS4_OK:
		return
	}
	switch o {
	case xdr.OP_SEQUENCE:
		a.words(9)
	case xdr.OP_GETATTR:
		a.Bitmap()
		a.Opaque(maxFattr)
	case xdr.OP_GETFH:
		a.Opaque(xdr.NFS4_FHSIZE)
	case xdr.OP_ACCESS:
		a.words(2)
	case xdr.OP_READ:
		a.Bool()
		a.Opaque(volume.MaxIO)
	case xdr.OP_WRITE:
		a.words(4)
	case xdr.OP_COMMIT:
		a.words(2)
	case xdr.OP_SEEK:
		a.Bool()
		a.Uint64()
	case xdr.OP_READLINK:
		a.Opaque(volume.MaxTarget)
	case xdr.OP_READDIR:
		a.Verifier()
		for a.Bool() {
			a.Uint64()
			a.Opaque(volume.MaxName)
			a.Bitmap()
			a.Opaque(maxFattr)
		}
		a.Bool()
	case xdr.OP_CREATE:
		a.ChangeInfo()
		a.Bitmap()
	case xdr.OP_REMOVE, xdr.OP_LINK, xdr.OP_SETXATTR, xdr.OP_REMOVEXATTR:
		a.ChangeInfo()
	case xdr.OP_RENAME:
		a.ChangeInfo()
		a.ChangeInfo()
	case xdr.OP_OPEN:
		a.Stateid()
		a.ChangeInfo()
		a.Uint32()
		a.Bitmap()
		if a.Uint32() == xdr.OPEN_DELEGATE_NONE_EXT {
			if why := a.Uint32(); why == xdr.WND4_RESOURCE || why == xdr.WND4_CONTENTION {
				a.Bool()
			}
		}
	case xdr.OP_CLOSE, xdr.OP_OPEN_DOWNGRADE, xdr.OP_LOCK, xdr.OP_LOCKU:
		a.Stateid()
	case xdr.OP_TEST_STATEID, xdr.OP_SECINFO, xdr.OP_SECINFO_NO_NAME:
		a.words(int(a.Uint32()))
	case xdr.OP_GETXATTR:
		a.Opaque(volume.MaxXattr)
	case xdr.OP_LISTXATTRS:
		a.Uint64()
		for range a.Count(1<<20, 4) {
			a.Opaque(volume.MaxName)
		}
		a.Bool()
	case xdr.OP_EXCHANGE_ID:
		a.words(5)
		a.Uint64()
		a.Opaque(xdr.NFS4_OPAQUE_LIMIT)
		a.Opaque(xdr.NFS4_OPAQUE_LIMIT)
		a.Uint32()
	case xdr.OP_CREATE_SESSION:
		a.words(6)
		a.ChannelAttrs()
		a.ChannelAttrs()
	case xdr.OP_BIND_CONN_TO_SESSION:
		a.words(6)
	}
}

func (a *answer) words(n int) {
	for range n {
		a.Uint32()
	}
}

// encoded is one operation's number and arguments.
func encoded(o arg) []byte {
	var e xdr.Encoder
	o(&e)
	return e.Bytes()
}

// oneOfEach lists all operations with good arguments, for a host that has the file "f"
// open with id.
func oneOfEach(h *host, id xdr.Stateid) []arg {
	set := []any{xdr.NewBitmap(xdr.FATTR4_SIZE, xdr.FATTR4_MODE), []byte{0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 1, 0o244}}
	times := []any{xdr.NewBitmap(xdr.FATTR4_TIME_MODIFY_SET), []byte{3: 1, 11: 9, 15: 7}}
	owner := []any{xdr.NewBitmap(xdr.FATTR4_OWNER, xdr.FATTR4_OWNER_GROUP), []byte("\x00\x00\x00\x0177\x00\x00\x00\x00\x00\x011\x00\x00\x00")}
	return []arg{
		op(xdr.OP_ACCESS, 0x1ff), op(xdr.OP_COMMIT, uint64(0), 0),
		op(xdr.OP_CREATE, xdr.NF4DIR, "d", xdr.Bitmap{}, ""), op(xdr.OP_CREATE, xdr.NF4LNK, "target", "l", xdr.Bitmap{}, ""),
		op(xdr.OP_CREATE, append([]any{xdr.NF4CHR, 1, 2, "c"}, owner...)...),
		op(xdr.OP_DELEGRETURN, id), op(xdr.OP_GETATTR, readableAttrs), op(xdr.OP_GETFH), op(xdr.OP_LINK, "k"),
		lockOp(xdr.WRITE_LT, false, 0, 10, id, "l"), op(xdr.OP_LOCK, xdr.READ_LT, false, uint64(1), uint64(2), false, id, 0),
		op(xdr.OP_LOCKT, xdr.READ_LT, uint64(0), ^uint64(0), uint64(0), "x"), op(xdr.OP_LOCKU, xdr.READ_LT, 0, id, uint64(0), uint64(4)),
		op(xdr.OP_LOOKUP, "f"), op(xdr.OP_LOOKUPP), op(xdr.OP_NVERIFY, xdr.NewBitmap(xdr.FATTR4_TYPE), []byte{3: 1}),
		openOp("o", "g", 3, 0, append([]any{xdr.OPEN4_CREATE, xdr.UNCHECKED4}, set...)...),
		openOp("o", "x", 3, 3, append([]any{xdr.OPEN4_CREATE, xdr.EXCLUSIVE4_1, [8]byte{1}}, times...)...),
		openOp("o", "f", 1|xdr.OPEN4_SHARE_ACCESS_WANT_NO_DELEG, 0, noCreate...),
		op(xdr.OP_OPEN, 0, 1, 0, uint64(0), "o", xdr.OPEN4_NOCREATE, xdr.CLAIM_FH), reclaimOp(1, 0),
		op(xdr.OP_OPENATTR, false), op(xdr.OP_OPEN_DOWNGRADE, id, 0, 1, 0), op(xdr.OP_PUTFH, encodeHandle(place{export: Export{ID: volID}, h: volume.Root})),
		op(xdr.OP_PUTPUBFH), op(xdr.OP_PUTROOTFH), op(xdr.OP_READ, id, uint64(0), 100),
		op(xdr.OP_READDIR, uint64(0), [8]byte{}, 100, 4096, readableAttrs), op(xdr.OP_READLINK), op(xdr.OP_REMOVE, "absent"),
		op(xdr.OP_RENAME, "absent", "f"), op(xdr.OP_RESTOREFH), op(xdr.OP_SAVEFH), op(xdr.OP_SECINFO, "f"), op(xdr.OP_SECINFO_NO_NAME, 0),
		op(xdr.OP_SETATTR, append([]any{xdr.StateidAnonymous}, set...)...), op(xdr.OP_SETATTR, append([]any{id}, times...)...),
		op(xdr.OP_VERIFY, xdr.NewBitmap(xdr.FATTR4_TYPE), []byte{3: 1}), op(xdr.OP_WRITE, id, uint64(0), xdr.FILE_SYNC4, []byte("hello")),
		op(xdr.OP_BACKCHANNEL_CTL, 1, 1, 0), op(xdr.OP_BIND_CONN_TO_SESSION, h.session, xdr.CDFC4_FORE, false),
		op(xdr.OP_EXCHANGE_ID, [8]byte{}, "someone", 0, xdr.SP4_NONE, 1, "example.org", "client", uint64(0), 0),
		op(xdr.OP_EXCHANGE_ID, [8]byte{}, "someone", 0, xdr.SP4_SSV, 1, 1, 1, 1, 1, "oid", 1, "oid", 1, 1, 0),
		createSessionOp(1, 1, testChannel), op(xdr.OP_DESTROY_SESSION, xdr.SessionID{1}), op(xdr.OP_DESTROY_CLIENTID, uint64(1)),
		op(xdr.OP_FREE_STATEID, id), op(xdr.OP_TEST_STATEID, 2, id, id), op(xdr.OP_RECLAIM_COMPLETE, false),
		op(xdr.OP_ALLOCATE, id, uint64(0), uint64(1)), op(xdr.OP_DEALLOCATE, id, uint64(1), uint64(2)), op(xdr.OP_SEEK, id, uint64(0), xdr.NFS4_CONTENT_HOLE),
		op(xdr.OP_CLONE, id, id, uint64(0), uint64(0), uint64(1)), op(xdr.OP_COPY, id, id, uint64(0), uint64(0), uint64(1), true, true, 0),
		op(xdr.OP_READ_PLUS, id, uint64(0), 10), op(xdr.OP_WRITE_SAME), op(xdr.OP_IO_ADVISE, id, uint64(0), uint64(0), xdr.Bitmap{}),
		op(xdr.OP_OFFLOAD_CANCEL, id), op(xdr.OP_OFFLOAD_STATUS, id), op(xdr.OP_COPY_NOTIFY, id), op(xdr.OP_LAYOUTGET), op(xdr.OP_GETDEVICEINFO),
		op(xdr.OP_GET_DIR_DELEGATION), op(xdr.OP_WANT_DELEGATION), op(xdr.OP_SET_SSV, "", ""), op(xdr.OP_DELEGPURGE, uint64(0)),
		op(xdr.OP_RENEW, uint64(0)), op(xdr.OP_SETCLIENTID), op(xdr.OP_OPEN_CONFIRM, id, 0), op(xdr.OP_RELEASE_LOCKOWNER, uint64(0), "x"),
		op(xdr.OP_GETXATTR, "a"), op(xdr.OP_SETXATTR, 0, "a", "value"), op(xdr.OP_LISTXATTRS, uint64(0), 1000), op(xdr.OP_REMOVEXATTR, "b"),
		op(xdr.OP_ILLEGAL), op(xdr.OP_SEQUENCE, h.session, 1, 1, 0, false),
		op(xdr.OP_CLOSE, 0, id),
	}
}

// TestHostileArguments sends each operation with its arguments cut short at every word,
// and with every word replaced by numbers that make careless code overflow. Every
// request must be answered, with a reply that is well formed to its end.
func TestHostileArguments(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	id.Seqid = 0 // whatever the requests make of it
	try := func(what string, ops []byte) {
		t.Helper()
		h.seq[0]++
		var e xdr.Encoder
		e.String("")
		e.Uint32(2)
		e.Uint32(4)
		op(xdr.OP_SEQUENCE, h.session, h.seq[0], 0, 0, false)(&e)
		op(xdr.OP_PUTFH, fh)(&e)
		op(xdr.OP_SAVEFH)(&e)
		e.Raw(ops)
		h.send(nfsCall(0), e.Bytes())
		b := h.receive()
		if b == nil {
			t.Fatalf("%s: no answer", what)
		}
		if err := h.answer(b).wellFormed(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i, o := range oneOfEach(h, id) {
		whole := encoded(o)
		name := fmt.Sprintf("case %d, %v", i, xdr.Op(binary.BigEndian.Uint32(whole)))
		try(name, whole)
		for at := 4; at < len(whole); at += 4 {
			try(fmt.Sprintf("%s cut at %d", name, at), whole[:at])
			for _, v := range []uint32{0, 1, 3, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
				bad := append([]byte(nil), whole...)
				binary.BigEndian.PutUint32(bad[at:], v)
				try(fmt.Sprintf("%s with %#x at %d", name, v, at), bad)
			}
		}
	}
}
