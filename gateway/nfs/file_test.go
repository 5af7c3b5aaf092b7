// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"bytes"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

func TestData(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	put := op(xdr.OP_PUTFH, fh)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	a := h.call(put, op(xdr.OP_WRITE, id, uint64(100), xdr.UNSTABLE4, data), op(xdr.OP_COMMIT, uint64(0), 0))
	a.ok(xdr.OP_PUTFH).ok(xdr.OP_WRITE)
	n, how, verf := a.Uint32(), a.Uint32(), a.Verifier()
	if n != 1<<20 || how != xdr.UNSTABLE4 {
		t.Fatal(n, how)
	}
	if v := a.ok(xdr.OP_COMMIT).Verifier(); v != verf {
		t.Fatalf("verifier %x of COMMIT, %x of WRITE", v, verf)
	}
	// Two READs in one reply, with an odd length between them.
	a = h.call(put, op(xdr.OP_READ, id, uint64(99), 1<<20), op(xdr.OP_READ, id, uint64(1<<20), 333), op(xdr.OP_GETFH))
	a.ok(xdr.OP_PUTFH).ok(xdr.OP_READ)
	if eof, got := a.Bool(), a.Opaque(1<<20); eof || !bytes.Equal(got[1:], data[:1<<20-1]) || got[0] != 0 {
		t.Fatal("wrong data")
	}
	a.ok(xdr.OP_READ)
	if eof, got := a.Bool(), a.Opaque(1<<20); !eof || !bytes.Equal(got, data[1<<20-100:]) {
		t.Fatalf("wrong data at the end: %d bytes, eof %v", len(got), eof)
	}
	if !bytes.Equal(a.ok(xdr.OP_GETFH).Opaque(128), fh) || a.Err() != nil {
		t.Fatal("what follows a READ is wrong")
	}
	h.call(put, op(xdr.OP_WRITE, id, uint64(1)<<63, xdr.FILE_SYNC4, []byte("x"))).ok(xdr.OP_PUTFH).want(xdr.OP_WRITE, xdr.NFS4ERR_FBIG)
	h.in(op(xdr.OP_READ, xdr.StateidAnonymous, uint64(0), 1)).want(xdr.OP_READ, xdr.NFS4ERR_ISDIR)

	h.call(put, op(xdr.OP_DEALLOCATE, id, uint64(0), uint64(512<<10))).ok(xdr.OP_PUTFH).ok(xdr.OP_DEALLOCATE)
	a = h.call(put, op(xdr.OP_SEEK, id, uint64(0), xdr.NFS4_CONTENT_DATA), op(xdr.OP_SEEK, id, uint64(600<<10), xdr.NFS4_CONTENT_HOLE), op(xdr.OP_SEEK, id, uint64(1<<30), xdr.NFS4_CONTENT_DATA))
	a.ok(xdr.OP_PUTFH).ok(xdr.OP_SEEK)
	if eof, off := a.Bool(), a.Uint64(); eof || off != 512<<10 {
		t.Fatal(eof, off)
	}
	a.ok(xdr.OP_SEEK)
	if eof, off := a.Bool(), a.Uint64(); !eof || off != 1<<20+100 {
		t.Fatal(eof, off)
	}
	a.want(xdr.OP_SEEK, xdr.NFS4ERR_NXIO)
}

func TestStateids(t *testing.T) {
	r := newRig(t)
	h, other := r.host("10.0.0.1"), r.host("10.0.0.2")
	fh, old := h.open("f", 1, 0)
	_, id := h.open("f", 2, 0)
	if id.Other != old.Other || id.Seqid != old.Seqid+1 {
		t.Fatalf("a second open of one owner: %v after %v", id, old)
	}
	gh, _ := h.open("g", 3, 0)
	read := func(h *host, fh []byte, id xdr.Stateid) xdr.Status {
		t.Helper()
		return h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_READ, id, uint64(0), 1)).ok(xdr.OP_PUTFH).result(xdr.OP_READ)
	}
	change := func(f func(*xdr.Stateid)) xdr.Stateid { s := id; f(&s); return s }
	cases := []struct {
		name string
		h    *host
		fh   []byte
		id   xdr.Stateid
		want xdr.Status
	}{
		{"good", h, fh, id, xdr.NFS4_OK},
		{"seqid 0", h, fh, change(func(s *xdr.Stateid) { s.Seqid = 0 }), xdr.NFS4_OK},
		{"old", h, fh, old, xdr.NFS4ERR_OLD_STATEID},
		{"future", h, fh, change(func(s *xdr.Stateid) { s.Seqid += 3 }), xdr.NFS4ERR_BAD_STATEID},
		{"of another file", h, gh, id, xdr.NFS4ERR_BAD_STATEID},
		{"of another client", other, fh, id, xdr.NFS4ERR_BAD_STATEID},
		{"of another boot", h, fh, change(func(s *xdr.Stateid) { s.Other[3]++ }), xdr.NFS4ERR_BAD_STATEID},
		{"anonymous", h, fh, xdr.StateidAnonymous, xdr.NFS4_OK},
		{"bypass", h, fh, xdr.StateidBypass, xdr.NFS4_OK},
		{"current, there is none", h, fh, xdr.StateidCurrent, xdr.NFS4ERR_BAD_STATEID},
		{"zero with seqid", h, fh, xdr.Stateid{Seqid: 5}, xdr.NFS4ERR_BAD_STATEID},
		{"invalid", h, fh, xdr.StateidInvalid, xdr.NFS4ERR_BAD_STATEID},
	}
	for _, c := range cases {
		if st := read(c.h, c.fh, c.id); st != c.want {
			t.Errorf("%s: %v, want %v", c.name, st, c.want)
		}
	}
	// The current stateid, through SAVEFH and RESTOREFH.
	a := h.in(openOp("o3", "f", 3, 0, noCreate...), op(xdr.OP_SAVEFH), op(xdr.OP_PUTROOTFH), op(xdr.OP_RESTOREFH), op(xdr.OP_READ, xdr.StateidCurrent, uint64(0), 1), op(xdr.OP_CLOSE, 0, xdr.StateidCurrent))
	a.opened()
	a.ok(xdr.OP_SAVEFH).ok(xdr.OP_PUTROOTFH).ok(xdr.OP_RESTOREFH).ok(xdr.OP_READ)
	a.Bool()
	a.Opaque(1)
	a.ok(xdr.OP_CLOSE)
	if id := a.Stateid(); id != xdr.StateidInvalid {
		t.Fatalf("stateid of CLOSE: %v", id)
	}
}

func TestShares(t *testing.T) {
	r := newRig(t)
	h, other := r.host("10.0.0.1"), r.host("10.0.0.2")
	fh, id := h.open("f", xdr.OPEN4_SHARE_ACCESS_READ, xdr.OPEN4_SHARE_DENY_WRITE)
	other.in(openOp("o", "f", 2, 0, noCreate...)).want(xdr.OP_OPEN, xdr.NFS4ERR_SHARE_DENIED)
	other.in(openOp("o", "f", 1, 1, noCreate...)).want(xdr.OP_OPEN, xdr.NFS4ERR_SHARE_DENIED)
	other.in(openOp("o", "f", 1, 0, noCreate...)).opened()
	write := func(h *host, id xdr.Stateid) xdr.Status {
		t.Helper()
		return h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_WRITE, id, uint64(0), xdr.FILE_SYNC4, []byte("x"))).ok(xdr.OP_PUTFH).result(xdr.OP_WRITE)
	}
	if st := write(other, xdr.StateidAnonymous); st != xdr.NFS4ERR_LOCKED {
		t.Fatal(st)
	}
	if st := write(h, id); st != xdr.NFS4ERR_OPENMODE {
		t.Fatal(st)
	}
	truncate := []any{xdr.OPEN4_CREATE, xdr.UNCHECKED4, xdr.NewBitmap(xdr.FATTR4_SIZE), make([]byte, 8)}
	other.in(openOp("o2", "f", 1, 0, truncate...)).want(xdr.OP_OPEN, xdr.NFS4ERR_SHARE_DENIED)
	a := h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_OPEN_DOWNGRADE, id, 0, 3, 0))
	a.ok(xdr.OP_PUTFH).want(xdr.OP_OPEN_DOWNGRADE, xdr.NFS4ERR_INVAL)
	_, id = h.open("f", 1, 0)
	a = h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_OPEN_DOWNGRADE, id, 0, 1, 0)).ok(xdr.OP_PUTFH).ok(xdr.OP_OPEN_DOWNGRADE)
	if next := a.Stateid(); next.Seqid != id.Seqid+1 {
		t.Fatal(next)
	}
	other.in(openOp("o", "f", 2, 0, noCreate...)).opened()
}

func TestOpenModes(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.uid = 5
	// Only the request that creates a file may open it for writing against its mode.
	readonly := func(mode int) []any {
		return []any{xdr.OPEN4_CREATE, mode, xdr.NewBitmap(xdr.FATTR4_MODE), []byte{0, 0, 1, 0}}
	}
	a := h.in(openOp("o", "f", 3, 0, readonly(xdr.UNCHECKED4)...), op(xdr.OP_WRITE, xdr.StateidCurrent, uint64(0), xdr.FILE_SYNC4, []byte("x")))
	a.opened()
	a.ok(xdr.OP_WRITE)
	h.in(openOp("o2", "f", 3, 0, noCreate...)).want(xdr.OP_OPEN, xdr.NFS4ERR_ACCESS)
	h.in(openOp("o2", "f", 1, 0, noCreate...)).opened()
	h.uid = 6
	h.in(openOp("o3", "f", 1, 0, noCreate...)).want(xdr.OP_OPEN, xdr.NFS4ERR_ACCESS)
	h.uid = 5
	// An equal verifier opens the existing file. Another one does not.
	exclusive := func(v byte) arg { return openOp("o", "x", 3, 0, xdr.OPEN4_CREATE, xdr.EXCLUSIVE4, [8]byte{v}) }
	h.in(exclusive(1)).opened()
	h.in(exclusive(1)).opened()
	h.in(exclusive(2)).want(xdr.OP_OPEN, xdr.NFS4ERR_EXIST)
	// A client that wants a delegation learns why there is none.
	a = h.in(openOp("o", "f", 1|xdr.OPEN4_SHARE_ACCESS_WANT_NO_DELEG, 0, noCreate...))
	a.ok(xdr.OP_OPEN).Stateid()
	a.ChangeInfo()
	a.Uint32()
	a.Bitmap()
	if d, why := a.Uint32(), a.Uint32(); d != xdr.OPEN_DELEGATE_NONE_EXT || why != xdr.WND4_NOT_WANTED || a.Len() != 0 {
		t.Fatal(d, why, a.Len())
	}
}

func TestLocks(t *testing.T) {
	r := newRig(t)
	h, other := r.host("10.0.0.1"), r.host("10.0.0.2")
	fh, id := h.open("f", 3, 0)
	_, otherID := other.open("f", 3, 0)
	put := op(xdr.OP_PUTFH, fh)
	first := lockStateid(h.call(put, lockOp(xdr.WRITE_LT, false, 10, 10, id, "me")).ok(xdr.OP_PUTFH))

	a := other.call(put, lockOp(xdr.WRITEW_LT, false, 0, ^uint64(0), otherID, "you"))
	a.ok(xdr.OP_PUTFH).want(xdr.OP_LOCK, xdr.NFS4ERR_DENIED)
	if off, n, kind, client, owner := a.Uint64(), a.Uint64(), a.Uint32(), a.Uint64(), a.String(100); off != 10 || n != 10 || kind != xdr.WRITE_LT || client != h.client || owner != "me" || a.Len() != 0 {
		t.Fatal(off, n, kind, client, owner)
	}
	test := func(h *host, off, n uint64, owner string) xdr.Status {
		t.Helper()
		return h.call(put, op(xdr.OP_LOCKT, xdr.READ_LT, off, n, uint64(0), owner)).ok(xdr.OP_PUTFH).result(xdr.OP_LOCKT)
	}
	for i, c := range []struct{ got, want xdr.Status }{
		{test(other, 0, 10, "you"), xdr.NFS4_OK}, {test(other, 0, 11, "you"), xdr.NFS4ERR_DENIED},
		{test(other, 0, 0, "you"), xdr.NFS4ERR_INVAL}, {test(other, 5, ^uint64(0)-1, "you"), xdr.NFS4ERR_INVAL},
		{test(h, 0, 20, "me"), xdr.NFS4_OK}, {test(h, 0, 20, "other owner"), xdr.NFS4ERR_DENIED},
	} {
		if c.got != c.want {
			t.Errorf("case %d: %v, want %v", i, c.got, c.want)
		}
	}
	// A further lock of the same owner gets the same stateid with the next seqid.
	second := lockStateid(h.call(put, op(xdr.OP_LOCK, xdr.READ_LT, false, uint64(100), uint64(1), false, first, 0)).ok(xdr.OP_PUTFH))
	if second.Other != first.Other || second.Seqid != first.Seqid+1 {
		t.Fatal(first, second)
	}
	free := func(h *host, id xdr.Stateid) xdr.Status {
		t.Helper()
		return h.call(op(xdr.OP_FREE_STATEID, id)).result(xdr.OP_FREE_STATEID)
	}
	if st := free(h, second); st != xdr.NFS4ERR_LOCKS_HELD {
		t.Fatal(st)
	}
	a = h.call(put, op(xdr.OP_LOCKU, xdr.READ_LT, 0, second, uint64(0), ^uint64(0)))
	third := a.ok(xdr.OP_PUTFH).ok(xdr.OP_LOCKU).Stateid()
	if st := free(h, third); st != xdr.NFS4_OK {
		t.Fatal(st)
	}
	if st := free(h, third); st != xdr.NFS4ERR_BAD_STATEID {
		t.Fatal(st)
	}
	lockStateid(other.call(put, lockOp(xdr.WRITE_LT, false, 0, ^uint64(0), otherID, "you")).ok(xdr.OP_PUTFH))
	// CLOSE releases the locks.
	other.call(put, op(xdr.OP_CLOSE, 0, otherID)).ok(xdr.OP_PUTFH).ok(xdr.OP_CLOSE)
	lockStateid(h.call(put, lockOp(xdr.WRITE_LT, false, 0, ^uint64(0), id, "me")).ok(xdr.OP_PUTFH))
	// A file that is open for reading cannot be locked for writing.
	_, ro := other.open("f", 1, 0)
	other.call(put, lockOp(xdr.WRITE_LT, false, 0, 1, ro, "you")).ok(xdr.OP_PUTFH).want(xdr.OP_LOCK, xdr.NFS4ERR_OPENMODE)
}

func TestLocksAreGivenUpInTheEnd(t *testing.T) {
	r := newRig(t)
	h, other := r.host("10.0.0.1"), r.host("10.0.0.2")
	fh, id := h.open("f", 3, 0)
	_, otherID := other.open("f", 3, 0)
	put := op(xdr.OP_PUTFH, fh)
	lockStateid(h.call(put, lockOp(xdr.WRITE_LT, false, 0, 1, id, "me")).ok(xdr.OP_PUTFH))
	r.setBefore(func(op string, _ volume.Handle) error {
		if op == "unlock" {
			return volume.ErrDelay
		}
		return nil
	})
	h.call(put, op(xdr.OP_CLOSE, 0, id)).ok(xdr.OP_PUTFH).ok(xdr.OP_CLOSE)
	lock := func() xdr.Status {
		t.Helper()
		return other.call(put, lockOp(xdr.WRITE_LT, false, 0, 1, otherID, "you")).ok(xdr.OP_PUTFH).result(xdr.OP_LOCK)
	}
	if st := lock(); st != xdr.NFS4ERR_DENIED {
		t.Fatal(st)
	}
	r.setBefore(nil)
	for deadline := time.Now().Add(hang); lock() != xdr.NFS4_OK; r.clock.advance(releaseRetry) {
		if time.Now().After(deadline) {
			t.Fatal("the lock is not given up")
		}
	}
}

func TestRemovedFileStaysWhileOpen(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	h.in(op(xdr.OP_REMOVE, "f")).ok(xdr.OP_REMOVE)
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_WRITE, id, uint64(0), xdr.FILE_SYNC4, []byte("x"))).ok(xdr.OP_PUTFH).ok(xdr.OP_WRITE)
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_CLOSE, 0, id)).ok(xdr.OP_PUTFH).ok(xdr.OP_CLOSE)
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_GETATTR, xdr.NewBitmap(xdr.FATTR4_SIZE))).ok(xdr.OP_PUTFH).want(xdr.OP_GETATTR, xdr.NFS4ERR_STALE)
}

func TestXattrs(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, _ := h.open("f", 3, 0)
	do := func(o xdr.Op, want xdr.Status, args ...any) *answer {
		t.Helper()
		a := h.call(op(xdr.OP_PUTFH, fh), op(o, args...)).ok(xdr.OP_PUTFH)
		a.want(o, want)
		return a
	}
	do(xdr.OP_GETXATTR, xdr.NFS4ERR_NOXATTR, "a")
	do(xdr.OP_SETXATTR, xdr.NFS4ERR_NOXATTR, xdr.SETXATTR4_REPLACE, "a", []byte("1"))
	if c := do(xdr.OP_SETXATTR, xdr.NFS4_OK, xdr.SETXATTR4_CREATE, "a", []byte("1")).ChangeInfo(); c.Before >= c.After {
		t.Fatalf("%+v", c)
	}
	do(xdr.OP_SETXATTR, xdr.NFS4ERR_EXIST, xdr.SETXATTR4_CREATE, "a", []byte("2"))
	do(xdr.OP_SETXATTR, xdr.NFS4_OK, xdr.SETXATTR4_EITHER, "bb", []byte{})
	do(xdr.OP_SETXATTR, xdr.NFS4ERR_XATTR2BIG, xdr.SETXATTR4_EITHER, "c", make([]byte, 65537))
	if v := do(xdr.OP_GETXATTR, xdr.NFS4_OK, "a").String(10); v != "1" {
		t.Fatalf("value %q", v)
	}
	do(xdr.OP_LISTXATTRS, xdr.NFS4ERR_TOOSMALL, uint64(0), 16)
	a := do(xdr.OP_LISTXATTRS, xdr.NFS4_OK, uint64(0), 24)
	if cookie, n, name, eof := a.Uint64(), a.Uint32(), a.String(10), a.Bool(); cookie != 1 || n != 1 || name != "a" || eof {
		t.Fatal(cookie, n, name, eof)
	}
	a = do(xdr.OP_LISTXATTRS, xdr.NFS4_OK, uint64(1), 24)
	if cookie, n, name, eof := a.Uint64(), a.Uint32(), a.String(10), a.Bool(); cookie != 2 || n != 1 || name != "bb" || !eof {
		t.Fatal(cookie, n, name, eof)
	}
	do(xdr.OP_REMOVEXATTR, xdr.NFS4_OK, "a")
	do(xdr.OP_REMOVEXATTR, xdr.NFS4ERR_NOXATTR, "a")
	// Minor version 1 does not have these operations.
	h.seq[0]++
	h.send(nfsCall(0), compoundBody(1, op(xdr.OP_SEQUENCE, h.session, h.seq[0], 0, 0, false), op(xdr.OP_PUTFH, fh), op(xdr.OP_GETXATTR, "a")))
	h.finish().ok(xdr.OP_PUTFH).want(xdr.OP_ILLEGAL, xdr.NFS4ERR_OP_ILLEGAL)
}

func TestAccess(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.uid = 5
	h.open("f", 3, 0)
	access := func(uid uint32) (supported, granted uint32) {
		h.uid = uid
		a := h.in(op(xdr.OP_LOOKUP, "f"), op(xdr.OP_ACCESS, 0xfff)).ok(xdr.OP_LOOKUP).ok(xdr.OP_ACCESS)
		return a.Uint32(), a.Uint32()
	}
	const all = xdr.ACCESS4_READ | xdr.ACCESS4_MODIFY | xdr.ACCESS4_EXTEND | xdr.ACCESS4_EXECUTE | xdr.ACCESS4_XAREAD | xdr.ACCESS4_XAWRITE | xdr.ACCESS4_XALIST
	for uid, want := range map[uint32]uint32{5: all &^ xdr.ACCESS4_EXECUTE, 6: 0, 0: all &^ xdr.ACCESS4_EXECUTE} {
		if s, g := access(uid); s != all || g != want {
			t.Errorf("user %d: supported %#x, granted %#x, want %#x", uid, s, g, want)
		}
	}
}
