// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"encoding/binary"
	"errors"

	"github.com/weir-storage/weir/gateway/nfs/state"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// lockOwner is a lock-owner's name towards volumes: client id ‖ the client's own name.
func (k *call) lockOwner(name string) volume.LockOwner {
	return volume.LockOwner{
		Gateway: k.s.cfg.Gateway,
		Owner:   string(binary.BigEndian.AppendUint64(nil, k.client.ID)) + name,
	}
}

// lockRange converts offset and length to the first and last byte of a range, RFC 8881
// section 18.10.3.
func lockRange(off, n uint64) (start, end uint64, st xdr.Status) {
	switch {
	case n == 0:
		return 0, 0, xdr.NFS4ERR_INVAL
	case n == ^uint64(0):
		return off, ^uint64(0), xdr.NFS4_OK
	case n > ^uint64(0)-off:
		return 0, 0, xdr.NFS4ERR_INVAL
	}
	return off, off + n - 1, xdr.NFS4_OK
}

func lockType(t uint32) (exclusive bool, st xdr.Status) {
	switch t {
	case xdr.READ_LT, xdr.READW_LT:
		return false, xdr.NFS4_OK
	case xdr.WRITE_LT, xdr.WRITEW_LT:
		return true, xdr.NFS4_OK
	}
	return false, xdr.NFS4ERR_BADXDR
}

// denied answers a conflict with LOCK4denied, RFC 8881 section 18.10.2.
func (k *call) denied(err error) xdr.Status {
	var conflict *volume.LockConflict
	switch {
	case errors.As(err, &conflict):
	case errors.Is(err, volume.ErrLocked): // the answer must name a lock, although err does not
		conflict = &volume.LockConflict{Held: volume.Lock{End: ^uint64(0), Exclusive: true}}
	default:
		return k.status(err)
	}
	h := conflict.Held
	k.out.Uint64(h.Start)
	if h.End == ^uint64(0) {
		k.out.Uint64(^uint64(0))
	} else {
		k.out.Uint64(h.End - h.Start + 1)
	}
	if h.Exclusive {
		k.out.Uint32(xdr.WRITE_LT)
	} else {
		k.out.Uint32(xdr.READ_LT)
	}
	// An owner of this gateway has a client id and a name; others have only a name.
	var id uint64
	name := h.Owner.Gateway + ":" + h.Owner.Owner
	if h.Owner.Gateway == k.s.cfg.Gateway && len(h.Owner.Owner) >= 8 {
		id = binary.BigEndian.Uint64([]byte(h.Owner.Owner[:8]))
		name = h.Owner.Owner[8:]
	}
	k.out.Uint64(id)
	room := max(k.limit-(k.out.Len()-k.base)-4, 0) &^ 3
	k.out.String(name[:min(len(name), xdr.NFS4_OPAQUE_LIMIT, room)])
	return xdr.NFS4ERR_DENIED
}

// lock implements LOCK, RFC 8881 section 18.10. A conflict is denied at once, also if
// the client would wait: it asks again.
func (k *call) lock() xdr.Status {
	exclusive, tst := lockType(k.in.Uint32())
	reclaim := k.in.Bool()
	off, n := k.in.Uint64(), k.in.Uint64()
	isNew := k.in.Bool()
	var id xdr.Stateid
	var ist xdr.Status
	var name string
	if isNew {
		k.in.Uint32() // open seqid
		id, ist = k.stateid()
		k.in.Uint32() // lock seqid
		k.in.Uint64() // client id
		name = k.in.String(xdr.NFS4_OPAQUE_LIMIT)
	} else {
		id, ist = k.stateid()
		k.in.Uint32()
	}
	if k.in.Err() != nil || tst != xdr.NFS4_OK {
		return xdr.NFS4ERR_BADXDR
	}
	if st := k.lockable(); st != xdr.NFS4_OK {
		return st
	}
	if ist != xdr.NFS4_OK {
		return ist
	}
	start, end, st := lockRange(off, n)
	if st != xdr.NFS4_OK {
		return st
	}
	var use *state.LockUse
	if isNew {
		use, st = k.s.table.BeginLock(k.client, id, k.cur.key(), name, k.lockOwner(name))
	} else {
		use, st = k.s.table.BeginRelock(k.client, id, k.cur.key())
	}
	if st != xdr.NFS4_OK {
		return st
	}
	defer use.Done()
	return k.setLock(use, volume.Lock{Owner: use.Owner, Start: start, End: end, Exclusive: exclusive}, reclaim)
}

func (k *call) setLock(use *state.LockUse, l volume.Lock, reclaim bool) xdr.Status {
	st, asked := k.s.table.MayOpen(k.client), reclaim
	if reclaim {
		st = k.s.table.MayReclaim(k.client)
		if st != xdr.NFS4_OK && use.Reclaimed(l.Start, l.End, l.Exclusive) {
			st = xdr.NFS4_OK // nfs-8: it already has the lock
			reclaim = false
		}
	}
	if st != xdr.NFS4_OK {
		return st
	}
	if st := use.Permits(l.Exclusive, asked); st != xdr.NFS4_OK {
		return st
	}
	h := k.cur.h
	if err := k.cur.vol.SetLock(k.ctx, k.change(0), h, l, reclaim); err != nil {
		if reclaim && (errors.Is(err, volume.ErrLocked) || errors.Is(err, volume.ErrNoGrace)) {
			// Others have the lock, or had it meanwhile. After NFS4ERR_NO_GRACE, Linux would
			// stop to reclaim on all volumes (nfs4_recovery_handle_error, seen in 6.1).
			return xdr.NFS4ERR_RECLAIM_CONFLICT
		}
		st := k.denied(err)
		if asked && st == xdr.NFS4ERR_GRACE {
			// After NFS4ERR_GRACE, Linux would treat the lock as lost (nfs4_reclaim_locks,
			// seen in 6.1).
			st = xdr.NFS4ERR_DELAY
		}
		if k.drop || st == xdr.NFS4ERR_IO || st == xdr.NFS4ERR_SERVERFAULT {
			k.s.release(use.Doubtful())
		}
		return st
	}
	id, st, lost := use.Granted(l.Start, l.End, l.Exclusive)
	if st != xdr.NFS4_OK {
		k.s.release(lost) // the open or its locks ended meanwhile
		return st
	}
	k.setStateid(id)
	k.out.Stateid(id)
	return xdr.NFS4_OK
}

// lockable says whether the current file handle can be locked.
func (k *call) lockable() xdr.Status {
	if st := k.file(); st != xdr.NFS4_OK {
		return st
	}
	a, err := k.cur.vol.GetAttr(k.ctx, k.read(), k.cur.h)
	if err != nil {
		return k.status(err)
	}
	if a.Type != volume.Regular {
		return fileStatus(a)
	}
	return xdr.NFS4_OK
}

// lockTest implements LOCKT, RFC 8881 section 18.11.
func (k *call) lockTest() xdr.Status {
	exclusive, tst := lockType(k.in.Uint32())
	off, n := k.in.Uint64(), k.in.Uint64()
	k.in.Uint64() // client id
	name := k.in.String(xdr.NFS4_OPAQUE_LIMIT)
	if k.in.Err() != nil || tst != xdr.NFS4_OK {
		return xdr.NFS4ERR_BADXDR
	}
	if st := k.lockable(); st != xdr.NFS4_OK {
		return st
	}
	start, end, st := lockRange(off, n)
	if st != xdr.NFS4_OK {
		return st
	}
	if k.s.table.InGrace() {
		return xdr.NFS4ERR_GRACE
	}
	l := volume.Lock{Owner: k.lockOwner(name), Start: start, End: end, Exclusive: exclusive}
	if err := k.cur.vol.TestLock(k.ctx, k.read(), k.cur.h, l); err != nil {
		return k.denied(err)
	}
	return xdr.NFS4_OK
}

// unlock implements LOCKU, RFC 8881 section 18.12.
func (k *call) unlock() xdr.Status {
	_, tst := lockType(k.in.Uint32())
	k.in.Uint32() // seqid
	id, ist := k.stateid()
	off, n := k.in.Uint64(), k.in.Uint64()
	if k.in.Err() != nil || tst != xdr.NFS4_OK {
		return xdr.NFS4ERR_BADXDR
	}
	if st := k.file(); st != xdr.NFS4_OK {
		return st
	}
	if ist != xdr.NFS4_OK {
		return ist
	}
	start, end, st := lockRange(off, n)
	if st != xdr.NFS4_OK {
		return st
	}
	use, st := k.s.table.BeginRelock(k.client, id, k.cur.key())
	if st != xdr.NFS4_OK {
		return st
	}
	defer use.Done()
	l := volume.Lock{Owner: use.Owner, Start: start, End: end}
	if err := k.cur.vol.Unlock(k.ctx, k.change(0), k.cur.h, l); err != nil {
		return k.status(err)
	}
	next := use.Released(start, end)
	k.setStateid(next)
	k.out.Stateid(next)
	return xdr.NFS4_OK
}

// maxTested bounds the stateids of one TEST_STATEID.
const maxTested = 4096

// testStateid implements TEST_STATEID, RFC 8881 section 18.48.
func (k *call) testStateid() xdr.Status {
	n := k.in.Count(maxTested, 16)
	results := make([]xdr.Status, 0, n)
	for range n {
		id := k.in.Stateid()
		if id == xdr.StateidCurrent && k.cur.hasID {
			id = k.cur.id
		}
		results = append(results, k.s.table.Test(k.client, id))
	}
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	k.out.Uint32(uint32(n))
	for _, st := range results {
		k.out.Uint32(uint32(st))
	}
	return xdr.NFS4_OK
}

// freeStateid implements FREE_STATEID, RFC 8881 section 18.38.
func (k *call) freeStateid() xdr.Status {
	id, ist := k.stateid()
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	if ist != xdr.NFS4_OK {
		return ist
	}
	return k.s.table.Free(k.client, id)
}

// delegReturn implements DELEGRETURN, RFC 8881 section 18.6. There are no delegations.
func (k *call) delegReturn() xdr.Status {
	k.in.Stateid()
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	if !k.cur.set {
		return xdr.NFS4ERR_NOFILEHANDLE
	}
	return xdr.NFS4ERR_BAD_STATEID
}
