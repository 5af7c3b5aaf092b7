// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"github.com/weir-storage/weir/gateway/nfs/state"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// opening is an OPEN that is being executed.
type opening struct {
	k      *call
	access uint32
	deny   uint32
	want   uint32
	owner  string

	create bool
	mode   uint32 // createmode4
	args   volume.CreateArgs
	mask   xdr.Bitmap
	attrSt xdr.Status

	claim uint32
	name  string

	attr    volume.Attr
	dir     volume.DirChange
	isNew   bool // created by this request
	checked bool // ignore the mode: the client has just created the file
	set     xdr.Bitmap
}

// decodeOpen reads the arguments of OPEN, RFC 8881 section 18.16.1.
func (k *call) decodeOpen() (*opening, xdr.Status) {
	o := &opening{k: k}
	k.in.Uint32() // seqid, not used since 4.1
	share := k.in.Uint32()
	o.deny = k.in.Uint32()
	k.in.Uint64() // client id; the session has it already
	o.owner = k.in.String(xdr.NFS4_OPAQUE_LIMIT)
	switch k.in.Uint32() {
	case xdr.OPEN4_NOCREATE:
	case xdr.OPEN4_CREATE:
		o.create = true
		o.args.Type = volume.Regular
		switch o.mode = k.in.Uint32(); o.mode {
		case xdr.UNCHECKED4, xdr.GUARDED4:
			o.args.Attr, o.mask, o.attrSt = k.decodeSetAttr()
		case xdr.EXCLUSIVE4:
			o.args.Verf = k.in.Verifier()
		case xdr.EXCLUSIVE4_1:
			o.args.Verf = k.in.Verifier()
			o.args.Attr, o.mask, o.attrSt = k.decodeSetAttr()
		default:
			return nil, xdr.NFS4ERR_BADXDR
		}
		o.args.Mode = [...]volume.CreateMode{volume.Unchecked, volume.Guarded, volume.Exclusive, volume.Exclusive}[o.mode]
	default:
		return nil, xdr.NFS4ERR_BADXDR
	}
	switch o.claim = k.in.Uint32(); o.claim {
	case xdr.CLAIM_NULL, xdr.CLAIM_DELEGATE_PREV:
		o.name = k.in.String(maxString)
	case xdr.CLAIM_PREVIOUS:
		k.in.Uint32() // delegation, of which there are none
	case xdr.CLAIM_DELEGATE_CUR:
		k.in.Stateid()
		o.name = k.in.String(maxString)
	case xdr.CLAIM_DELEG_CUR_FH:
		k.in.Stateid()
	case xdr.CLAIM_FH, xdr.CLAIM_DELEG_PREV_FH:
	default:
		return nil, xdr.NFS4ERR_BADXDR
	}
	if k.in.Err() != nil {
		return nil, xdr.NFS4ERR_BADXDR
	}
	o.access, o.want = share&xdr.OPEN4_SHARE_ACCESS_BOTH, share&xdr.OPEN4_SHARE_ACCESS_WANT_DELEG_MASK
	if o.access == 0 || o.deny > xdr.OPEN4_SHARE_DENY_BOTH {
		return nil, xdr.NFS4ERR_INVAL
	}
	return o, xdr.NFS4_OK
}

// open implements OPEN, RFC 8881 section 18.16. The package comment says what it does in
// grace.
func (k *call) open() xdr.Status {
	o, st := k.decodeOpen()
	if st != xdr.NFS4_OK {
		return st
	}
	switch {
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case o.attrSt != xdr.NFS4_OK:
		return o.attrSt
	case o.create && o.claim != xdr.CLAIM_NULL:
		return xdr.NFS4ERR_INVAL
	case k.cur.pseudo:
		return o.pseudo()
	}
	if o.access&xdr.OPEN4_SHARE_ACCESS_WRITE != 0 || o.create {
		if st := k.writable(k.cur); st != xdr.NFS4_OK {
			return st
		}
	}
	switch o.claim {
	case xdr.CLAIM_NULL:
		st = o.byName()
	case xdr.CLAIM_FH:
		// Linux opens a file so that it has looked up before. The mode is checked as with a
		// name.
		if st = k.s.table.MayOpen(k.client); st == xdr.NFS4_OK {
			o.attr, st = k.attributes()
		}
	case xdr.CLAIM_PREVIOUS:
		st = o.reclaimed()
	default:
		st = xdr.NFS4ERR_NOTSUPP // they need delegations
	}
	if st != xdr.NFS4_OK {
		return st
	}
	return o.grant()
}

// pseudo answers an OPEN in the root that lists volumes.
func (o *opening) pseudo() xdr.Status {
	if o.claim != xdr.CLAIM_NULL {
		return xdr.NFS4ERR_ISDIR
	}
	if st := checkName(o.name); st != xdr.NFS4_OK {
		return st
	}
	for _, x := range o.k.s.cfg.Exports.Exports(o.k.conn.addr) {
		if x.Name == o.name {
			return xdr.NFS4ERR_ISDIR
		}
	}
	if o.create {
		return xdr.NFS4ERR_ROFS
	}
	return xdr.NFS4ERR_NOENT
}

// attributes reads those of the current file.
func (k *call) attributes() (volume.Attr, xdr.Status) {
	a, err := k.cur.vol.GetAttr(k.ctx, k.read(), k.cur.h)
	if err != nil {
		return a, k.status(err)
	}
	return a, xdr.NFS4_OK
}

// reclaimed opens the current file again. Its mode was checked when the client first
// opened it, or the client created it.
func (o *opening) reclaimed() xdr.Status {
	k := o.k
	a, st := k.attributes()
	if st != xdr.NFS4_OK {
		return st
	}
	o.attr, o.checked = a, true
	if a.Type == volume.Regular &&
		(o.access&xdr.OPEN4_SHARE_ACCESS_READ != 0 && !volume.PermitsIO(a, k.caller(), false) ||
			o.access&xdr.OPEN4_SHARE_ACCESS_WRITE != 0 && !volume.PermitsIO(a, k.caller(), true)) {
		return xdr.NFS4ERR_ACCESS
	}
	return xdr.NFS4_OK
}

// byName opens or creates a file in the current directory.
func (o *opening) byName() xdr.Status {
	k := o.k
	k.name = o.name
	if st := checkName(o.name); st != xdr.NFS4_OK {
		if kind := k.notDirectory(); kind != xdr.NFS4_OK {
			return kind
		}
		return st
	}
	mayOpen := k.s.table.MayOpen(k.client)
	if !o.create {
		if mayOpen != xdr.NFS4_OK {
			return mayOpen
		}
		a, err := k.cur.vol.Lookup(k.ctx, k.read(), k.cur.h, o.name)
		if err != nil {
			return k.dirStatus(err)
		}
		o.attr = a
		return xdr.NFS4_OK
	}
	if mayOpen != xdr.NFS4_OK && !k.use.Unknown {
		return mayOpen // the sequence number is new, so nothing was created yet
	}
	if o.mode == xdr.UNCHECKED4 {
		return o.unchecked(mayOpen)
	}
	c, err := k.cur.vol.Create(k.ctx, k.change(0), k.cur.h, o.name, o.args)
	if err != nil {
		return k.dirStatus(err)
	}
	if !c.New && mayOpen != xdr.NFS4_OK {
		return mayOpen // a retry finds the same verifier
	}
	// With an equal verifier, too, this client created the file.
	o.created(c)
	o.checked = true
	return xdr.NFS4_OK
}

func (o *opening) created(c volume.Created) {
	o.attr, o.dir, o.isNew = c.Attr, c.Dir, c.New
	if c.New {
		o.checked = true
		o.set = o.mask
	}
}

// unchecked opens a file or creates it. It truncates an existing file only when it is
// sure that it can be opened.
func (o *opening) unchecked(mayOpen xdr.Status) xdr.Status {
	k := o.k
	size := o.args.Attr.Size
	if !k.use.Unknown {
		a, err := k.cur.vol.Lookup(k.ctx, k.read(), k.cur.h, o.name)
		switch st := k.status(err); st {
		case xdr.NFS4_OK:
			o.attr = a
			o.dir = o.unchanged()
			return o.truncate(size)
		case xdr.NFS4ERR_NOENT:
		default:
			return k.dirStatus(err)
		}
	}
	args := o.args
	if size != nil && *size == 0 {
		args.Attr.Size = nil // a new file is empty anyway; an existing one is truncated later
	}
	c, err := k.cur.vol.Create(k.ctx, k.change(0), k.cur.h, o.name, args)
	if err != nil {
		return k.dirStatus(err)
	}
	o.created(c)
	if c.New {
		return xdr.NFS4_OK
	}
	if mayOpen != xdr.NFS4_OK {
		return mayOpen
	}
	return o.truncate(size)
}

// unchanged is the directory's change attribute when nothing is created.
func (o *opening) unchanged() volume.DirChange {
	k := o.k
	a, err := k.cur.vol.GetAttr(k.ctx, k.read(), k.cur.h)
	if err != nil {
		return volume.DirChange{} // not what the client knows, so it asks for attributes again
	}
	return volume.DirChange{Before: a.Change, After: a.Change}
}

// truncate sets the size of an existing file that can be opened.
func (o *opening) truncate(size *uint64) xdr.Status {
	k := o.k
	if size == nil {
		return xdr.NFS4_OK
	}
	if st := o.permitted(); st != xdr.NFS4_OK {
		return st
	}
	key := state.FileKey{Volume: k.cur.export.ID, Handle: o.attr.Handle}
	if st := k.s.table.MayShare(k.client, o.owner, key, o.access|xdr.OPEN4_SHARE_ACCESS_WRITE, o.deny); st != xdr.NFS4_OK {
		return st
	}
	// Part 1, because part 0 may be the Create of an earlier execution.
	a, err := k.cur.vol.SetAttr(k.ctx, k.change(1), o.attr.Handle, volume.SetAttr{Size: size})
	if err != nil {
		return k.status(err)
	}
	o.attr = a
	o.set.Set(xdr.FATTR4_SIZE)
	return xdr.NFS4_OK
}

// permitted says whether the file's type and mode let the caller open it.
func (o *opening) permitted() xdr.Status {
	if o.attr.Type != volume.Regular {
		return fileStatus(o.attr)
	}
	if o.checked {
		return xdr.NFS4_OK
	}
	c := o.k.caller()
	if o.access&xdr.OPEN4_SHARE_ACCESS_READ != 0 && !volume.Permits(o.attr, c, volume.Read) && !volume.Permits(o.attr, c, volume.Exec) {
		return xdr.NFS4ERR_ACCESS
	}
	if o.access&xdr.OPEN4_SHARE_ACCESS_WRITE != 0 && !volume.Permits(o.attr, c, volume.Write) {
		return xdr.NFS4ERR_ACCESS
	}
	return xdr.NFS4_OK
}

// grant makes the open and answers.
func (o *opening) grant() xdr.Status {
	k := o.k
	if st := o.permitted(); st != xdr.NFS4_OK {
		return st
	}
	id, st := k.s.table.Open(state.OpenArgs{
		Client: k.client, Owner: o.owner, Volume: k.cur.vol, Handle: o.attr.Handle,
		Access: o.access, Deny: o.deny, Reclaim: o.claim == xdr.CLAIM_PREVIOUS, New: o.isNew,
	})
	if st != xdr.NFS4_OK {
		return st
	}
	if o.name != "" {
		k.found(o.name, o.attr.Handle)
	} else {
		k.cur = k.cur.at(o.attr.Handle)
	}
	k.setStateid(id)
	k.out.Stateid(id)
	k.changeInfo(o.dir)
	k.out.Uint32(xdr.OPEN4_RESULT_LOCKTYPE_POSIX)
	k.out.Bitmap(o.set)
	o.noDelegation()
	return xdr.NFS4_OK
}

// noDelegation answers that there is no delegation, and why if the client asked for one.
func (o *opening) noDelegation() {
	out := o.k.out
	if o.want == 0 || o.claim == xdr.CLAIM_PREVIOUS {
		out.Uint32(xdr.OPEN_DELEGATE_NONE)
		return
	}
	out.Uint32(xdr.OPEN_DELEGATE_NONE_EXT)
	switch o.want {
	case xdr.OPEN4_SHARE_ACCESS_WANT_NO_DELEG:
		out.Uint32(xdr.WND4_NOT_WANTED)
	case xdr.OPEN4_SHARE_ACCESS_WANT_CANCEL:
		out.Uint32(xdr.WND4_CANCELLED)
	default:
		out.Uint32(xdr.WND4_RESOURCE)
		out.Bool(false) // the server will not say when it has one
	}
}
