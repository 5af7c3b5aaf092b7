// SPDX-License-Identifier: Apache-2.0

package state

import (
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// LockState is what one lock-owner holds on one file. Guarded by Table.mu, and
// held also by its open's op.
type LockState struct {
	Owner volume.LockOwner
	name  string
	open  *Open
	id    [12]byte
	seq   uint32
	held  ranges
}

// LockUse is a LOCK or LOCKU under way. Its holder calls the volume, then at most
// one of Granted and Released, and always Done.
type LockUse struct {
	table *Table
	open  *Open
	state *LockState // nil until the first lock of a lock-owner is granted
	name  string
	// Owner is the volume's name of the lock-owner.
	Owner volume.LockOwner
}

// BeginLock starts a LOCK of an open-owner's new lock-owner (open_to_lock_owner4).
// owner is what the volume shall call it.
func (t *Table) BeginLock(c *Client, open xdr.Stateid, key FileKey, name string, owner volume.LockOwner) (*LockUse, xdr.Status) {
	o, st := t.lockOpen(c, open, key)
	if st != xdr.NFS4_OK {
		return nil, st
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, st := t.find(c, open, key); st != xdr.NFS4_OK {
		o.op.Unlock()
		return nil, st
	}
	return &LockUse{table: t, open: o, state: o.locks[name], name: name, Owner: owner}, xdr.NFS4_OK
}

// BeginRelock starts a LOCK or LOCKU with a lock stateid.
func (t *Table) BeginRelock(c *Client, lock xdr.Stateid, key FileKey) (*LockUse, xdr.Status) {
	t.mu.Lock()
	s, st := t.find(c, lock, key)
	t.mu.Unlock()
	if st != xdr.NFS4_OK {
		return nil, st
	}
	l, ok := s.(*LockState)
	if !ok {
		return nil, xdr.NFS4ERR_BAD_STATEID
	}
	l.open.op.Lock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, st := t.find(c, lock, key); st != xdr.NFS4_OK {
		l.open.op.Unlock()
		return nil, st
	}
	return &LockUse{table: t, open: l.open, state: l, name: l.name, Owner: l.Owner}, xdr.NFS4_OK
}

// Permits tells whether the open permits a lock of that kind: NFS4ERR_OPENMODE.
func (u *LockUse) Permits(exclusive bool) xdr.Status {
	u.table.mu.Lock()
	defer u.table.mu.Unlock()
	need := uint32(xdr.OPEN4_SHARE_ACCESS_READ)
	if exclusive {
		need = xdr.OPEN4_SHARE_ACCESS_WRITE
	}
	if u.open.access&need == 0 {
		return xdr.NFS4ERR_OPENMODE
	}
	return xdr.NFS4_OK
}

// Reclaimed tells whether the client has been through a restart and holds all of
// [start, end] that way already.
func (u *LockUse) Reclaimed(start, end uint64, exclusive bool) bool {
	u.table.mu.Lock()
	defer u.table.mu.Unlock()
	return u.open.client.restarted && u.state != nil && u.state.held.covers(start, end, exclusive)
}

// Granted records that the volume granted [start, end]. ok is false if the open
// ended meanwhile; the caller then gives the lock up again.
func (u *LockUse) Granted(start, end uint64, exclusive bool) (id xdr.Stateid, ok bool) {
	t := u.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.open.closed {
		return xdr.Stateid{}, false
	}
	if u.state == nil {
		u.state = &LockState{Owner: u.Owner, name: u.name, open: u.open, id: t.newOther(kindLock)}
		u.open.locks[u.name] = u.state
		t.stateids[u.state.id] = u.state
	}
	u.state.held.set(start, end, exclusive)
	return u.state.next(), true
}

// Released records that the volume released [start, end].
func (u *LockUse) Released(start, end uint64) xdr.Stateid {
	u.table.mu.Lock()
	defer u.table.mu.Unlock()
	u.state.held.clear(start, end)
	return u.state.next()
}

func (l *LockState) next() xdr.Stateid {
	l.seq = nextSeqid(l.seq)
	return xdr.Stateid{Seqid: l.seq, Other: l.id}
}

// Done ends the use.
func (u *LockUse) Done() { u.open.op.Unlock() }
