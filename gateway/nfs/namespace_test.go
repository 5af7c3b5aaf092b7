// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

func TestMismatch(t *testing.T) {
	r := newRig(t)
	p := r.connect("10.0.0.1")
	call := func(change func(*xdr.CallHeader)) xdr.ReplyHeader {
		h := nfsCall(0)
		change(&h)
		head, _ := p.rpc(h, compoundBody(2))
		return head
	}
	cases := []struct {
		name   string
		change func(*xdr.CallHeader)
		want   xdr.ReplyHeader
	}{
		{"null without credential", func(h *xdr.CallHeader) { h.Procedure, h.Cred = 0, xdr.OpaqueAuth{} }, xdr.ReplyHeader{XID: 7}},
		{"NFSv3", func(h *xdr.CallHeader) { h.Version = 3 }, xdr.ReplyHeader{XID: 7, Stat: xdr.PROG_MISMATCH, Low: 4, High: 4}},
		{"mountd", func(h *xdr.CallHeader) { h.Program = 100005 }, xdr.ReplyHeader{XID: 7, Stat: xdr.PROG_UNAVAIL}},
		{"procedure 2", func(h *xdr.CallHeader) { h.Procedure = 2 }, xdr.ReplyHeader{XID: 7, Stat: xdr.PROC_UNAVAIL}},
		{"no credential", func(h *xdr.CallHeader) { h.Cred = xdr.OpaqueAuth{} },
			xdr.ReplyHeader{XID: 7, Denied: true, Stat: xdr.AUTH_ERROR, AuthStat: xdr.AUTH_TOOWEAK}},
		{"bad credential", func(h *xdr.CallHeader) { h.Cred.Body = h.Cred.Body[:8] },
			xdr.ReplyHeader{XID: 7, Denied: true, Stat: xdr.AUTH_ERROR, AuthStat: xdr.AUTH_BADCRED}},
		{"gss", func(h *xdr.CallHeader) { h.Cred.Flavor = xdr.RPCSEC_GSS },
			xdr.ReplyHeader{XID: 7, Denied: true, Stat: xdr.AUTH_ERROR, AuthStat: xdr.AUTH_REJECTEDCRED}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := call(c.change); got != c.want {
				t.Fatalf("%+v, want %+v", got, c.want)
			}
		})
	}
	p.send(nfsCall(0), compoundBody(0, op(xdr.OP_PUTROOTFH)))
	if a := p.answer(p.receive()); a.status != xdr.NFS4ERR_MINOR_VERS_MISMATCH || a.count != 0 {
		t.Fatal(a.status, a.count)
	}
}

func TestIllegalOperationKeepsWhatCameBefore(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	for o, want := range map[xdr.Op]xdr.Status{
		2: xdr.NFS4ERR_OP_ILLEGAL, 77: xdr.NFS4ERR_OP_ILLEGAL, 1 << 31: xdr.NFS4ERR_OP_ILLEGAL,
		xdr.OP_OPENATTR: xdr.NFS4ERR_NOTSUPP, xdr.OP_LAYOUTGET: xdr.NFS4ERR_NOTSUPP, xdr.OP_COPY: xdr.NFS4ERR_NOTSUPP,
	} {
		a := h.in(op(xdr.OP_GETFH), op(o), op(xdr.OP_GETFH))
		a.ok(xdr.OP_GETFH)
		a.Opaque(128)
		if want == xdr.NFS4ERR_OP_ILLEGAL {
			o = xdr.OP_ILLEGAL
		}
		a.want(o, want)
		if a.Len() != 0 || a.count != 5 {
			t.Fatalf("%v: %d results, %d bytes more", o, a.count, a.Len())
		}
	}
	// Arguments that do not decode.
	a := h.call(op(xdr.OP_PUTROOTFH), op(xdr.OP_LOOKUP, 1<<30))
	a.ok(xdr.OP_PUTROOTFH).want(xdr.OP_LOOKUP, xdr.NFS4ERR_BADXDR)
}

func TestPseudoRoot(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	ids := xdr.NewBitmap(xdr.FATTR4_FSID, xdr.FATTR4_FILEID, xdr.FATTR4_MOUNTED_ON_FILEID)
	read := func(a *answer) (v [4]uint64) {
		a.Bitmap()
		a.Uint32()
		for i := range v {
			v[i] = a.Uint64()
		}
		return v
	}
	a := h.call(op(xdr.OP_PUTROOTFH), op(xdr.OP_GETATTR, ids), op(xdr.OP_LOOKUP, "vol"), op(xdr.OP_GETATTR, ids),
		op(xdr.OP_LOOKUPP), op(xdr.OP_GETATTR, ids), op(xdr.OP_LOOKUPP))
	root := read(a.ok(xdr.OP_PUTROOTFH).ok(xdr.OP_GETATTR))
	vol := read(a.ok(xdr.OP_LOOKUP).ok(xdr.OP_GETATTR))
	back := read(a.ok(xdr.OP_LOOKUPP).ok(xdr.OP_GETATTR))
	a.want(xdr.OP_LOOKUPP, xdr.NFS4ERR_NOENT)
	if root != back || root[0] != 0 || root[1] != 0 || vol[0] == 0 {
		t.Fatalf("root %v, volume %v, its parent %v", root, vol, back)
	}
	entries, _ := h.list(op(xdr.OP_PUTROOTFH), 0, 4096)
	if len(entries) != 1 || entries[0].name != "vol" || entries[0].cookie < 3 || vol[3] != mountFileid(volID) || vol[2] != 1 {
		t.Fatalf("%+v, volume %v", entries, vol)
	}
	h.call(op(xdr.OP_PUTROOTFH), op(xdr.OP_REMOVE, "vol")).ok(xdr.OP_PUTROOTFH).want(xdr.OP_REMOVE, xdr.NFS4ERR_ROFS)
	h.call(op(xdr.OP_PUTROOTFH), openOp("o", "x", 3, 0, unchecked...)).ok(xdr.OP_PUTROOTFH).want(xdr.OP_OPEN, xdr.NFS4ERR_ROFS)
}

func TestUnadmittedClient(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.9")
	r.refuse("10.0.0.9", true)
	h.call(op(xdr.OP_PUTROOTFH), op(xdr.OP_LOOKUP, "vol")).ok(xdr.OP_PUTROOTFH).want(xdr.OP_LOOKUP, xdr.NFS4ERR_NOENT)
	if l := r.log.String(); !strings.Contains(l, "10.0.0.9") || !strings.Contains(l, "vol") || !strings.Contains(l, "remedy") {
		t.Fatalf("log: %s", l)
	}
	r.refuse("10.0.0.9", false)
	fh, id := h.open("f", 3, 0)
	// Revoking works at once, also for a file that is open.
	r.refuse("10.0.0.9", true)
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_READ, id, uint64(0), 1)).want(xdr.OP_PUTFH, xdr.NFS4ERR_ACCESS)
	if l := r.log.String(); !strings.Contains(l, volID.String()) {
		t.Fatalf("log: %s", l)
	}
	stranger := encodeHandle(place{export: Export{ID: volume.ID{7}}, h: volume.Root})
	h.call(op(xdr.OP_PUTFH, stranger)).want(xdr.OP_PUTFH, xdr.NFS4ERR_STALE)
	h.call(op(xdr.OP_PUTFH, []byte("nonsense"))).want(xdr.OP_PUTFH, xdr.NFS4ERR_BADHANDLE)
}

func TestReadOnlyExport(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.open("f", 3, 0)
	r.mu.Lock()
	r.ro = true
	r.mu.Unlock()
	h.in(op(xdr.OP_REMOVE, "f")).want(xdr.OP_REMOVE, xdr.NFS4ERR_ROFS)
	h.in(openOp("o2", "f", 2, 0, noCreate...)).want(xdr.OP_OPEN, xdr.NFS4ERR_ROFS)
	h.in(openOp("o2", "f", 1, 0, noCreate...)).opened()
}

func TestNamespace(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	mkdir := func(name string) arg {
		return op(xdr.OP_CREATE, xdr.NF4DIR, name, xdr.NewBitmap(xdr.FATTR4_MODE), []byte{0, 0, 1, 0o355})
	}
	a := h.in(op(xdr.OP_SAVEFH), mkdir("d"), op(xdr.OP_RESTOREFH), op(xdr.OP_CREATE, xdr.NF4LNK, "target", "l", xdr.Bitmap{}, ""),
		op(xdr.OP_READLINK))
	a.ok(xdr.OP_SAVEFH).ok(xdr.OP_CREATE)
	if c := a.ChangeInfo(); !c.Atomic || c.Before >= c.After {
		t.Fatalf("%+v", c)
	}
	a.Bitmap()
	a.ok(xdr.OP_RESTOREFH).ok(xdr.OP_CREATE).ChangeInfo()
	a.Bitmap()
	if target := a.ok(xdr.OP_READLINK).String(100); target != "target" {
		t.Fatalf("target %q", target)
	}
	h.open("f", 3, 0)
	in := func(o arg, what xdr.Op, want xdr.Status) {
		t.Helper()
		h.in(op(xdr.OP_SAVEFH), o).ok(xdr.OP_SAVEFH).want(what, want)
	}
	in(op(xdr.OP_LOOKUP, "absent"), xdr.OP_LOOKUP, xdr.NFS4ERR_NOENT)
	in(op(xdr.OP_LOOKUP, ""), xdr.OP_LOOKUP, xdr.NFS4ERR_INVAL)
	in(op(xdr.OP_LOOKUP, ".."), xdr.OP_LOOKUP, xdr.NFS4ERR_BADNAME)
	in(op(xdr.OP_LOOKUP, "a/b"), xdr.OP_LOOKUP, xdr.NFS4ERR_BADCHAR)
	in(op(xdr.OP_LOOKUP, strings.Repeat("x", 256)), xdr.OP_LOOKUP, xdr.NFS4ERR_NAMETOOLONG)
	in(mkdir("d"), xdr.OP_CREATE, xdr.NFS4ERR_EXIST)
	in(op(xdr.OP_CREATE, xdr.NF4REG, "r", xdr.Bitmap{}, ""), xdr.OP_CREATE, xdr.NFS4ERR_BADTYPE)
	in(op(xdr.OP_RENAME, "f", "d"), xdr.OP_RENAME, xdr.NFS4ERR_ISDIR)
	in(op(xdr.OP_RENAME, "f", "g"), xdr.OP_RENAME, xdr.NFS4_OK)
	in(op(xdr.OP_REMOVE, "f"), xdr.OP_REMOVE, xdr.NFS4ERR_NOENT)
	in(openOp("o", "l", 1, 0, noCreate...), xdr.OP_OPEN, xdr.NFS4ERR_SYMLINK)
	in(openOp("o", "d", 1, 0, noCreate...), xdr.OP_OPEN, xdr.NFS4ERR_ISDIR)
	in(openOp("o", "g", 3, 0, guarded...), xdr.OP_OPEN, xdr.NFS4ERR_EXIST)
	h.in(op(xdr.OP_SAVEFH), op(xdr.OP_PUTROOTFH), op(xdr.OP_RENAME, "g", "h")).ok(xdr.OP_SAVEFH).ok(xdr.OP_PUTROOTFH).
		want(xdr.OP_RENAME, xdr.NFS4ERR_XDEV)
	h.in(op(xdr.OP_LOOKUP, "l"), op(xdr.OP_LOOKUP, "x")).ok(xdr.OP_LOOKUP).want(xdr.OP_LOOKUP, xdr.NFS4ERR_SYMLINK)
	h.in(op(xdr.OP_LOOKUP, "g"), op(xdr.OP_SAVEFH), op(xdr.OP_LOOKUPP)).ok(xdr.OP_LOOKUP).ok(xdr.OP_SAVEFH).
		want(xdr.OP_LOOKUPP, xdr.NFS4ERR_NOTDIR)
	h.in(op(xdr.OP_SECINFO, "g"), op(xdr.OP_GETFH)).ok(xdr.OP_SECINFO)
}

type dirEntry struct {
	cookie uint64
	name   string
}

// list reads one page of a directory.
func (h *host) list(dir arg, cookie uint64, room int) (entries []dirEntry, eof bool) {
	h.t.Helper()
	a := h.call(dir, op(xdr.OP_READDIR, cookie, [8]byte{}, 0, room,
		xdr.NewBitmap(xdr.FATTR4_FILEID, xdr.FATTR4_TYPE, xdr.FATTR4_RDATTR_ERROR)))
	a.Uint64() // the result of dir
	a.ok(xdr.OP_READDIR).Verifier()
	for a.Bool() {
		e := dirEntry{a.Uint64(), a.String(256)}
		a.Bitmap()
		a.Opaque(1024)
		entries = append(entries, e)
	}
	eof = a.Bool()
	if a.Err() != nil {
		h.t.Fatal(a.Err())
	}
	return entries, eof
}

func TestReadDirWhileItChanges(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	ctx := t.Context()
	create := func(name string) {
		t.Helper()
		if _, err := r.vol.Create(ctx, volume.Request{}, volume.Root, name,
			volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded}); err != nil {
			t.Fatal(err)
		}
	}
	var stay []string
	for i := range 300 {
		create(fmt.Sprintf("stay%03d", i))
		create(fmt.Sprintf("go%03d", i))
		stay = append(stay, fmt.Sprintf("stay%03d", i))
	}
	dir := op(xdr.OP_PUTFH, encodeHandle(place{export: Export{ID: volID}, h: volume.Root}))
	var seen []string
	var cookie uint64
	for page := 0; ; page++ {
		entries, eof := h.list(dir, cookie, 700)
		for _, e := range entries {
			if strings.HasPrefix(e.name, "stay") {
				seen = append(seen, e.name)
			}
			cookie = e.cookie
		}
		if eof {
			break
		}
		if page < 300 {
			if _, err := r.vol.Remove(ctx, volume.Request{}, volume.Root, fmt.Sprintf("go%03d", (page*7)%300)); err != nil && page < 42 {
				t.Fatal(err)
			}
			create(fmt.Sprintf("new%03d", page))
		}
	}
	slices.Sort(seen)
	if !slices.Equal(seen, stay) {
		t.Fatalf("saw %d names that stay, want each of %d once", len(seen), len(stay))
	}
}

func TestReadDirLimits(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.open("f", 3, 0)
	readdir := func(cookie uint64, verf byte, room int) arg {
		return op(xdr.OP_READDIR, cookie, [8]byte{verf}, 0, room, xdr.Bitmap{})
	}
	h.in(readdir(0, 0, 40)).want(xdr.OP_READDIR, xdr.NFS4ERR_TOOSMALL)
	h.in(readdir(2, 0, 4096)).want(xdr.OP_READDIR, xdr.NFS4ERR_BAD_COOKIE)
	h.in(readdir(3, 1, 4096)).want(xdr.OP_READDIR, xdr.NFS4ERR_NOT_SAME)
	h.in(op(xdr.OP_LOOKUP, "f"), readdir(0, 0, 4096)).ok(xdr.OP_LOOKUP).want(xdr.OP_READDIR, xdr.NFS4ERR_NOTDIR)
}

func TestVerify(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.open("f", 3, 0)
	typ := xdr.NewBitmap(xdr.FATTR4_TYPE)
	file, dir := []byte{0, 0, 0, xdr.NF4REG}, []byte{0, 0, 0, xdr.NF4DIR}
	h.in(op(xdr.OP_LOOKUP, "f"), op(xdr.OP_VERIFY, typ, file)).ok(xdr.OP_LOOKUP).ok(xdr.OP_VERIFY)
	h.in(op(xdr.OP_VERIFY, typ, file)).want(xdr.OP_VERIFY, xdr.NFS4ERR_NOT_SAME)
	h.in(op(xdr.OP_NVERIFY, typ, dir)).want(xdr.OP_NVERIFY, xdr.NFS4ERR_SAME)
	h.in(op(xdr.OP_NVERIFY, typ, file)).ok(xdr.OP_NVERIFY)
	h.in(op(xdr.OP_VERIFY, xdr.NewBitmap(xdr.FATTR4_ACL), file)).want(xdr.OP_VERIFY, xdr.NFS4ERR_ATTRNOTSUPP)
}

func TestSetAttr(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	set := func(uid uint32, id xdr.Stateid, mask xdr.Bitmap, values []byte) xdr.Status {
		t.Helper()
		h.uid = uid
		defer func() { h.uid = 0 }()
		a := h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_SETATTR, id, mask, values))
		st := a.ok(xdr.OP_PUTFH).result(xdr.OP_SETATTR)
		if got := a.Bitmap(); (st == xdr.NFS4_OK) != (got == mask) || a.Err() != nil {
			t.Fatalf("%v sets %v, said %v", st, mask, got)
		}
		return st
	}
	mode, size, owner := xdr.NewBitmap(xdr.FATTR4_MODE), xdr.NewBitmap(xdr.FATTR4_SIZE), xdr.NewBitmap(xdr.FATTR4_OWNER)
	cases := []struct {
		uid    uint32
		id     xdr.Stateid
		mask   xdr.Bitmap
		values []byte
		want   xdr.Status
	}{
		{0, xdr.StateidAnonymous, mode, []byte{0, 0, 1, 0}, xdr.NFS4_OK},
		{5, xdr.StateidAnonymous, mode, []byte{0, 0, 1, 0}, xdr.NFS4ERR_PERM},
		{0, xdr.StateidAnonymous, mode, []byte{0, 1, 1, 0}, xdr.NFS4ERR_INVAL},
		{0, xdr.StateidAnonymous, mode, []byte{0, 1}, xdr.NFS4ERR_BADXDR},
		{0, id, size, []byte{0, 0, 0, 0, 0, 0, 1, 0}, xdr.NFS4_OK},
		{0, xdr.Stateid{Seqid: 1, Other: [12]byte{1, 2}}, size, make([]byte, 8), xdr.NFS4ERR_BAD_STATEID},
		{0, id, xdr.NewBitmap(xdr.FATTR4_FILEID), make([]byte, 8), xdr.NFS4ERR_INVAL},
		{0, id, xdr.NewBitmap(xdr.FATTR4_ACL), make([]byte, 4), xdr.NFS4ERR_ATTRNOTSUPP},
		{0, id, owner, []byte("\x00\x00\x00\x0277\x00\x00"), xdr.NFS4_OK},
		{0, id, owner, []byte("\x00\x00\x00\x03joe\x00"), xdr.NFS4ERR_BADOWNER},
	}
	for i, c := range cases {
		if st := set(c.uid, c.id, c.mask, c.values); st != c.want {
			t.Errorf("case %d: %v, want %v", i, st, c.want)
		}
	}
	a, err := r.vol.Lookup(t.Context(), volume.Request{}, volume.Root, "f")
	if err != nil || a.UID != 77 || a.Size != 256 || a.Mode != 0o400 {
		t.Fatalf("%+v %v", a, err)
	}
}

func TestAllAttributes(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, _ := h.open("f", 3, 0)
	a := h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_GETATTR, supportedAttrs(2).Without(writeOnlyAttrs)))
	a.ok(xdr.OP_PUTFH).ok(xdr.OP_GETATTR)
	if got := a.Bitmap(); got != readableAttrs {
		t.Fatalf("%v", got)
	}
	// One attribute at a time must give the same bytes.
	whole := a.Opaque(maxFattr)
	var parts []byte
	for n := range xdr.AttrLimit {
		if !readableAttrs.Has(n) {
			continue
		}
		one := h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_GETATTR, xdr.NewBitmap(n)))
		one.ok(xdr.OP_PUTFH).ok(xdr.OP_GETATTR)
		one.Bitmap()
		v := one.Opaque(maxFattr)
		if len(v) == 0 {
			t.Errorf("attribute %d has no value", n)
		}
		parts = append(parts, v...)
	}
	if !bytes.Equal(whole, parts) {
		t.Fatal("attributes differ when asked for together")
	}
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_GETATTR, writeOnlyAttrs)).ok(xdr.OP_PUTFH).want(xdr.OP_GETATTR, xdr.NFS4ERR_INVAL)
}
