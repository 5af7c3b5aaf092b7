// SPDX-License-Identifier: Apache-2.0

package state

import (
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// lockState has the locks of one lock-owner on one file. Table.mu guards it. LOCK
// and LOCKU also lock its open's op while they use it.
type lockState struct {
	Owner volume.LockOwner
	name  string
	open  *open
	id    [12]byte
	seq   uint32
	held  ranges
	ended bool // its stateid ended
}

// LockUse is a LOCK or LOCKU that is being executed. Its owner calls the volume, then
// at most one of Granted, Released and Doubtful, and always Done.
type LockUse struct {
	table *Table
	open  *open
	state *lockState // nil until the first lock of a lock-owner is granted
	name  string
	// Owner is the volume's name of the lock-owner.
	Owner volume.LockOwner
}

// BeginLock starts a LOCK with a new lock-owner (open_to_lock_owner4, RFC 8881
// section 18.10.1). owner is its name towards the volume. NFS4ERR_DELAY while the
// volume still releases former locks of owner (state-6).
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
		return nil, xdr.NFS4ERR_DELAY // the late release would take the new lock with it
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

// Permits says whether the client may have a further lock of that kind. It returns
// NFS4ERR_OPENMODE if the open's access forbids it, and NFS4ERR_SERVERFAULT if the
// client, or all together, have too many locks. What a client had before a restart it
// gets back in any case.
func (u *LockUse) Permits(exclusive, reclaim bool) xdr.Status {
	u.table.mu.Lock()
	defer u.table.mu.Unlock()
	need := uint32(xdr.OPEN4_SHARE_ACCESS_READ)
	if exclusive {
		need = xdr.OPEN4_SHARE_ACCESS_WRITE
	}
	if u.open.access&need == 0 {
		return xdr.NFS4ERR_OPENMODE
	}
	c := u.open.client
	tight := !reclaim && u.table.states.Left(c.Address) < lockTakes+len(u.name)
	if c.ranges >= maxRanges || u.state == nil && c.full() || tight {
		u.table.refused[BoundStates]++
		return xdr.NFS4ERR_SERVERFAULT
	}
	return xdr.NFS4_OK
}

// Reclaimed tells whether the client is older than the server's restart and already
// has all of [start, end] locked in that way.
func (u *LockUse) Reclaimed(start, end uint64, exclusive bool) bool {
	u.table.mu.Lock()
	defer u.table.mu.Unlock()
	return u.open.client.restarted && u.state != nil && u.state.held.covers(start, end, exclusive)
}

// Granted records that the volume granted [start, end]. It returns NFS4ERR_EXPIRED
// if the open ended meanwhile, and NFS4ERR_ADMIN_REVOKED if the owner's locks were
// revoked meanwhile. The caller then carries out what Ended says.
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
		t.states.Add(u.open.client.Address, u.state.takes())
		t.stateids[u.state.id] = u.state
	}
	t.change(u.state, func(r *ranges) { r.set(start, end, exclusive) })
	return u.state.next(), xdr.NFS4_OK, Ended{}
}

// lost returns what to do about a lock that was granted too late; mu is held.
func (u *LockUse) lost() Ended {
	e := Ended{Volume: u.open.file.vol, Handle: u.open.file.key.Handle}
	if u.table.mustRelease(u.open, u.name, u.Owner) {
		e.Owners = append(e.Owners, u.Owner)
	}
	return e
}

// Doubtful records that the volume may have granted the lock although it returned an
// error. The lock is released with the open. If the open ended meanwhile, the caller
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

// change changes the ranges of l; mu is held.
func (t *Table) change(l *lockState, f func(*ranges)) {
	before := len(l.held)
	f(&l.held)
	l.open.client.ranges += len(l.held) - before
	t.states.Add(l.open.client.Address, rangeTakes*(len(l.held)-before))
}

// endLock takes l's stateid out of the table; mu is held.
func (t *Table) endLock(l *lockState) {
	l.ended = true
	l.open.client.lockStates--
	l.open.client.ranges -= len(l.held)
	t.states.Add(l.open.client.Address, -l.takes()-rangeTakes*len(l.held))
	delete(t.stateids, l.id)
}

// lockKey names the locks of one lock-owner on one file.
type lockKey struct {
	file  FileKey
	owner volume.LockOwner
}

// mustRelease tells whether the volume must release owner's locks, now that o has ended.
// It must not if the same client has locks of the lock-owner name through another
// open of the file. Until Released, the owner gets no new locks (state-6). mu is
// held.
func (t *Table) mustRelease(o *open, name string, owner volume.LockOwner) bool {
	if f := t.files[o.file.key]; f != nil {
		for k, other := range f.opens {
			if k.client != o.client || other == o {
				continue
			}
			if l := other.locks[name]; l != nil {
				// The other open releases the locks, also if FREE_STATEID comes first.
				other.doubtful = with(other.doubtful, name, owner)
				return false
			}
		}
	}
	t.releasing[lockKey{o.file.key, owner}]++
	return true
}

// Released records that the volume released the locks of owner that Ended named.
func (t *Table) Released(key FileKey, owner volume.LockOwner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := lockKey{key, owner}
	if t.releasing[k]--; t.releasing[k] <= 0 {
		delete(t.releasing, k)
	}
}

// RevokeLocks takes a lock-owner's locks on a file away, because the volume lost
// them. Uses of the stateid are answered NFS4ERR_ADMIN_REVOKED until the client frees
// it or closes the file. ok is false if the owner has no locks there. Else the caller
// carries out what Ended says.
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
		u.table.change(u.state, func(r *ranges) { r.remove(start, end) })
	}
	return u.state.next()
}

func (l *lockState) next() xdr.Stateid {
	l.seq = nextSeqid(l.seq)
	return xdr.Stateid{Seqid: l.seq, Other: l.id}
}

// Done ends the use.
func (u *LockUse) Done() { u.open.op.Unlock() }
