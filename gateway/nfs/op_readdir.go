// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"context"
	"sync"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// batch is how many entries one call of Volume.ReadDir returns.
const batch = 128

// listing is a READDIR that is being executed.
type listing struct {
	k        *call
	mask     xdr.Bitmap
	dirCount uint32 // room for names and cookies, a hint; 0: none
	dirUsed  uint32
	room     int // of the reply in bytes, for entries
	start    int
	some     bool
}

// readDir implements READDIR, RFC 8881 section 18.23. Cookies are the volume's (nfs-1),
// so they never become invalid, and the verifier is always 0.
func (k *call) readDir() xdr.Status {
	after := k.in.Uint64()
	verf := k.in.Verifier()
	dirCount, maxCount := k.in.Uint32(), k.in.Uint32()
	mask := k.in.Bitmap()
	switch {
	case k.in.Err() != nil:
		return xdr.NFS4ERR_BADXDR
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case !mask.And(writeOnlyAttrs).Empty():
		return xdr.NFS4ERR_INVAL
	}
	if st := k.notDirectory(); st != xdr.NFS4_OK {
		if st == xdr.NFS4ERR_SYMLINK {
			return xdr.NFS4ERR_NOTDIR
		}
		return st
	}
	switch {
	case after == 1 || after == 2:
		return xdr.NFS4ERR_BAD_COOKIE
	case verf != [8]byte{}:
		return xdr.NFS4ERR_NOT_SAME
	}
	const tail = 8 // the end of the list, and eof
	room := min(int(maxCount), k.limit-(k.out.Len()-k.base)) - 8 - tail
	if room <= 0 {
		return xdr.NFS4ERR_TOOSMALL
	}
	if !k.roomFor(room) {
		return xdr.NFS4ERR_DELAY
	}
	k.out.Verifier([8]byte{})
	l := &listing{k: k, mask: mask, dirCount: dirCount, room: room, start: k.out.Len()}
	eof, st := l.entries(after)
	if st != xdr.NFS4_OK {
		return st
	}
	if !l.some && !eof {
		return xdr.NFS4ERR_TOOSMALL
	}
	k.out.Bool(false)
	k.out.Bool(eof)
	return xdr.NFS4_OK
}

// entries appends the entries that fit. eof tells whether they are the last.
func (l *listing) entries(after uint64) (eof bool, st xdr.Status) {
	if l.k.cur.pseudo {
		return l.exports(after)
	}
	for {
		list, eof, err := l.k.cur.vol.ReadDir(l.k.ctx, l.k.read(), l.k.cur.h, after, batch)
		if err != nil {
			return false, l.k.dirStatus(err)
		}
		for _, e := range list {
			d, err := l.k.describeAttr(l.k.cur, e.Attr, l.mask)
			if err != nil {
				return false, l.k.status(err)
			}
			if !l.add(e.Name, e.Cookie, d, l.mask) {
				return false, xdr.NFS4_OK
			}
			after = e.Cookie
		}
		if eof {
			return true, xdr.NFS4_OK
		}
	}
}

// exports lists the volumes in the pseudo root.
func (l *listing) exports(after uint64) (eof bool, st xdr.Status) {
	var list []Export
	for _, x := range listed(l.k.s.cfg.Exports, l.k.conn.addr) {
		if mountFileid(x.ID) > after && len(list) < batch {
			list = append(list, x)
		}
	}
	all := l.k.describeRoots(list, l.mask)
	for i, x := range list {
		cookie, mask := mountFileid(x.ID), l.mask
		d, err := all[i].described, all[i].err
		if err != nil {
			if !mask.Has(xdr.FATTR4_RDATTR_ERROR) {
				continue // a volume that does not answer must not hide the others
			}
			st, _ := statusOf(err)
			d = described{minor: l.k.minor, rdattr: st, mountedOn: cookie}
			mask = mask.And(rdattrAttrs)
		}
		if !l.add(x.Name, cookie, d, mask) {
			return false, xdr.NFS4_OK
		}
	}
	return len(list) < batch, xdr.NFS4_OK
}

// rootWait is how long a listing of the pseudo root waits for volumes whose home does not answer.
const rootWait = time.Second

// describedRoot is what is known of a volume's root.
type describedRoot struct {
	described
	err error
}

// describeRoots reads the attributes of volumes' roots, at the same time. One that does not answer
// soon is ErrDelay.
func (k *call) describeRoots(list []Export, mask xdr.Bitmap) []describedRoot {
	wait, done := context.WithTimeout(k.ctx, rootWait)
	defer done()
	out := make([]describedRoot, len(list))
	var all sync.WaitGroup
	for i, x := range list {
		all.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					k.panicked(xdr.OP_READDIR, v)
					out[i].err = volume.ErrIO
				}
			}()
			v, _, err := k.s.cfg.Exports.Open(k.conn.addr, x.ID)
			if err == nil {
				err = x.admits(k.conn)
			}
			if err != nil {
				out[i].err = err
				return
			}
			a, err := v.GetAttr(k.ctx, volume.Request{Caller: x.IDs.Caller(k.sent), Yield: wait}, volume.Root)
			if err == nil {
				out[i].described, err = k.describeAttr(place{set: true, vol: v, export: x, h: volume.Root}, a, mask)
			}
			out[i].err = err
		})
	}
	all.Wait()
	return out
}

// add appends an entry, and tells whether it fitted.
func (l *listing) add(name string, cookie uint64, d described, mask xdr.Bitmap) bool {
	out := l.k.out
	before := out.Mark()
	used := uint32(16 + len(name))
	if l.some && l.dirCount > 0 && l.dirUsed+used > l.dirCount {
		return false
	}
	out.Bool(true)
	out.Uint64(cookie)
	out.String(name)
	l.k.attrs(d, mask)
	if out.Len()-l.start > l.room {
		out.Truncate(before)
		return false
	}
	l.some = true
	l.dirUsed += used
	return true
}
