// SPDX-License-Identifier: Apache-2.0

package state

import (
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// lockState is what one lock-owner holds on one file. Guarded by Table.mu, and
// held also by its open's op.
type lockState struct {
	Owner volume.LockOwner
	name  string
	open  *open
	id    [12]byte
	seq   uint32
	held  ranges
	ended bool // it has no stateid any more
}

// LockUse is a LOCK or LOCKU under way. Its holder calls the volume, then at most
// one of Granted, Released and Doubtful, and always Done.
type LockUse struct {
	table *Table
	open  *open
	state *lockState // nil until the first lock of a lock-owner is granted
	name  string
	// Owner is the volume's name of the lock-owner.
	Owner volume.LockOwner
}

// BeginLock starts a LOCK of an open-owner's new lock-owner (open_to_lock_owner4).
// owner is what the volume shall call it. NFS4ERR_DELAY while former locks of owner
// are being given up.
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
	if t.releasing[lockKey{key, owner}] > 0 {
		o.op.Unlock()
		return nil, xdr.NFS4ERR_DELAY // what is given up late must not take the new lock with it
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
	l, ok := s.(*lockState)
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

// Permits tells whether the open permits a lock of that kind: NFS4ERR_OPENMODE;
// NFS4ERR_SERVERFAULT if the client holds too many.
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
	if c := u.open.client; c.ranges >= maxRanges || u.state == nil && c.full() {
		return xdr.NFS4ERR_SERVERFAULT
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

// Granted records that the volume granted [start, end]. If the open ended
// meanwhile (NFS4ERR_EXPIRED) or the owner's locks were revoked
// (NFS4ERR_ADMIN_REVOKED), the caller carries out what Ended says.
func (u *LockUse) Granted(start, end uint64, exclusive bool) (xdr.Stateid, xdr.Status, Ended) {
	t := u.table
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case u.open.closed:
		return xdr.Stateid{}, xdr.NFS4ERR_EXPIRED, u.lost()
	case u.state != nil && u.state.ended:
		return xdr.Stateid{}, xdr.NFS4ERR_ADMIN_REVOKED, u.lost()
	case u.state == nil:
		u.state = &lockState{Owner: u.Owner, name: u.name, open: u.open, id: t.newOther(kindLock)}
		u.open.locks[u.name] = u.state
		u.open.client.lockStates++
		t.stateids[u.state.id] = u.state
	}
	u.state.change(func(r *ranges) { r.set(start, end, exclusive) })
	return u.state.next(), xdr.NFS4_OK, Ended{}
}

// lost is the lock that was granted too late; mu is held.
func (u *LockUse) lost() Ended {
	e := Ended{Volume: u.open.file.vol, Handle: u.open.file.key.Handle}
	if u.table.giveUp(u.open, u.name, u.Owner) {
		e.Owners = append(e.Owners, u.Owner)
	}
	return e
}

// Doubtful records that the volume may have granted the lock although it did not
// say so: it is given up with the open. If that ended meanwhile, the caller
// carries out what Ended says.
func (u *LockUse) Doubtful() Ended {
	t := u.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.open.closed {
		return u.lost()
	}
	u.open.doubtful = with(u.open.doubtful, u.name, u.Owner)
	return Ended{}
}

func with(m map[string]volume.LockOwner, name string, owner volume.LockOwner) map[string]volume.LockOwner {
	if m == nil {
		m = map[string]volume.LockOwner{}
	}
	m[name] = owner
	return m
}

// change changes what is held; mu is held.
func (l *lockState) change(f func(*ranges)) {
	before := len(l.held)
	f(&l.held)
	l.open.client.ranges += len(l.held) - before
}

// endLock takes l's stateid out of the table; mu is held.
func (t *Table) endLock(l *lockState) {
	l.ended = true
	l.open.client.lockStates--
	l.open.client.ranges -= len(l.held)
	delete(t.stateids, l.id)
}

// lockKey names what one lock-owner holds on one file.
type lockKey struct {
	file  FileKey
	owner volume.LockOwner
}

// giveUp says whether owner's locks are to be given up now that o has ended. They
// are not if the same client has locks of the lock-owner name through another open
// of the file. Until Released, the owner gets no new ones. mu is held.
func (t *Table) giveUp(o *open, name string, owner volume.LockOwner) bool {
	if f := t.files[o.file.key]; f != nil {
		for k, other := range f.opens {
			if k.client != o.client || other == o {
				continue
			}
			if l := other.locks[name]; l != nil {
				other.doubtful = with(other.doubtful, name, owner) // FREE_STATEID may come first
				return false
			}
		}
	}
	t.releasing[lockKey{o.file.key, owner}]++
	return true
}

// Released says that what Ended told to give up of owner was given up.
func (t *Table) Released(key FileKey, owner volume.LockOwner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := lockKey{key, owner}
	if t.releasing[k]--; t.releasing[k] <= 0 {
		delete(t.releasing, k)
	}
}

// RevokeLocks takes away what one lock-owner holds on a file because the volume
// lost it. The client is told by NFS4ERR_ADMIN_REVOKED until it frees the stateid
// or closes the file. ok is false if there is nothing; else the caller carries out
// what Ended says.
func (t *Table) RevokeLocks(key FileKey, owner volume.LockOwner) (e Ended, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.files[key]
	if f == nil {
		return Ended{}, false
	}
	for _, o := range f.opens {
		for name, l := range o.locks {
			if l.Owner != owner {
				continue
			}
			ok = true
			t.endLock(l)
			delete(o.locks, name)
			o.client.revoke(l.id, xdr.NFS4ERR_ADMIN_REVOKED)
			o.revoked = append(o.revoked, l.id)
		}
	}
	if !ok {
		return Ended{}, false
	}
	t.releasing[lockKey{key, owner}]++
	return Ended{Volume: f.vol, Handle: key.Handle, Owners: []volume.LockOwner{owner}}, true
}

// Released records that the volume released [start, end].
func (u *LockUse) Released(start, end uint64) xdr.Stateid {
	u.table.mu.Lock()
	defer u.table.mu.Unlock()
	if !u.state.ended {
		u.state.change(func(r *ranges) { r.remove(start, end) })
	}
	return u.state.next()
}

func (l *lockState) next() xdr.Stateid {
	l.seq = nextSeqid(l.seq)
	return xdr.Stateid{Seqid: l.seq, Other: l.id}
}

// Done ends the use.
func (u *LockUse) Done() { u.open.op.Unlock() }
