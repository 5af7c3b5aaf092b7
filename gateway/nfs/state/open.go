// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"sync"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// FileKey names a file on all volumes.
type FileKey struct {
	Volume volume.ID
	Handle volume.Handle
}

// file is a file that at least one client has open. It has one Hold on its volume.
// Table.mu guards it.
type file struct {
	key    FileKey
	vol    volume.Volume
	opens  map[openKey]*open
	denies int // the number of opens that deny something
}

// openKey names an open-owner.
type openKey struct {
	client *Client
	owner  string
}

// open is an open of one open-owner on one file. Table.mu guards its fields, except
// op.
type open struct {
	op     sync.Mutex // locked during LOCK, LOCKU and CLOSE
	client *Client
	owner  string
	file   *file
	id     [12]byte
	seq    uint32
	access uint32
	deny   uint32
	shares uint16 // bit deny*4+access for each combination that was opened
	closed bool
	locks  map[string]*lockState // by lock-owner
	// doubtful has, by name, the lock-owners for whom the volume may keep a lock that
	// they were not granted.
	doubtful map[string]volume.LockOwner
	revoked  [][12]byte // lock stateids in Client.revoked, which end with this open
}

// OpenArgs are the arguments of an open that the file's mode permits.
type OpenArgs struct {
	Client  *Client
	Owner   string
	Volume  volume.Volume
	Handle  volume.Handle
	Access  uint32 // OPEN4_SHARE_ACCESS_*, no want bits
	Deny    uint32
	Reclaim bool
	New     bool // this request created the file, so it may open it in grace
}

func shareBit(access, deny uint32) uint16 { return 1 << (deny*4 + access) }

// conflicts tells whether an open of f other than o forbids access and deny.
func (f *file) conflicts(o *open, access, deny uint32) bool {
	if deny == 0 && f.denies == 0 {
		return false
	}
	for _, other := range f.opens {
		if other != o && (other.deny&access != 0 || deny&other.access != 0) {
			return true
		}
	}
	return false
}

// Open grants an open, or adds access and deny to the one that the owner has on that
// file. The first open of a file makes its Hold. Outcomes: NFS4ERR_SHARE_DENIED,
// NFS4ERR_RECLAIM_CONFLICT, NFS4ERR_STALE, NFS4ERR_GRACE, NFS4ERR_NO_GRACE,
// NFS4ERR_EXPIRED (the client has just ended), NFS4ERR_DELAY, NFS4ERR_NOSPC (the
// client has too much open), NFS4ERR_IO.
func (t *Table) Open(a OpenArgs) (xdr.Stateid, xdr.Status) {
	c, key := a.Client, FileKey{a.Volume.ID(), a.Handle}
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if st := t.admits(a, t.ownOpen(c, a.Owner, key)); st != xdr.NFS4_OK {
			return xdr.Stateid{}, st
		}
		if c.hasState {
			break
		}
		t.mu.Unlock()
		st := t.ensureHasState(c)
		t.mu.Lock()
		if st != xdr.NFS4_OK {
			return xdr.Stateid{}, st
		}
	}
	f, o := t.files[key], t.ownOpen(c, a.Owner, key)
	if f != nil && f.conflicts(o, a.Access, a.Deny) {
		if a.Reclaim {
			return xdr.Stateid{}, xdr.NFS4ERR_RECLAIM_CONFLICT
		}
		return xdr.Stateid{}, xdr.NFS4ERR_SHARE_DENIED
	}
	var made *open
	if o == nil {
		made = &open{client: c, owner: a.Owner, locks: map[string]*lockState{}}
		if !t.roomForOpen(made, a.Reclaim) {
			t.refused[BoundStates]++
			return xdr.Stateid{}, xdr.NFS4ERR_NOSPC
		}
	}
	if f == nil {
		err := a.Volume.Hold(a.Handle)
		if err != nil && made != nil {
			t.states.Add(c.Address, -made.takes())
		}
		switch {
		case err == nil:
		case errors.Is(err, volume.ErrDelay):
			return xdr.Stateid{}, xdr.NFS4ERR_DELAY
		case errors.Is(err, volume.ErrIO):
			return xdr.Stateid{}, xdr.NFS4ERR_IO
		default:
			return xdr.Stateid{}, xdr.NFS4ERR_STALE
		}
		f = &file{key: key, vol: a.Volume, opens: map[openKey]*open{}}
		t.files[key] = f
	}
	if o == nil {
		o = made
		o.file, o.id = f, t.newOther(kindOpen)
		if c.opens == nil {
			c.opens = map[*open]struct{}{}
		}
		f.opens[openKey{c, a.Owner}], c.opens[o] = o, struct{}{}
		t.stateids[o.id] = o
	}
	o.access |= a.Access
	o.setDeny(o.deny | a.Deny)
	o.shares |= shareBit(a.Access, a.Deny)
	o.bump()
	return xdr.Stateid{Seqid: o.seq, Other: o.id}, xdr.NFS4_OK
}

// roomForOpen takes the memory for an open, if the client may have another one. What it had before
// a restart it gets back in any case. mu is held.
func (t *Table) roomForOpen(o *open, reclaim bool) bool {
	if o.client.full() {
		return false
	}
	if reclaim {
		t.states.Add(o.client.Address, o.takes())
		return true
	}
	ok, _ := t.states.Take(o.client.Address, o.takes())
	return ok
}

// admits says whether the grace period permits an open now; mu is held.
func (t *Table) admits(a OpenArgs, own *open) xdr.Status {
	c := a.Client
	switch {
	case c.gone:
		return xdr.NFS4ERR_EXPIRED
	case a.Reclaim && c.restarted && own != nil && own.access&a.Access == a.Access && own.deny&a.Deny == a.Deny:
		// After a restart, a client may always reclaim what it has. For Linux reclaims a
		// second time if an old reply still said RESTART_RECLAIM_NEEDED.
		return xdr.NFS4_OK
	case a.Reclaim && !(t.grace.active && c.mayReclaim && !c.complete):
		return xdr.NFS4ERR_NO_GRACE
	case !a.Reclaim && !a.New && (t.grace.active || !c.done()):
		return xdr.NFS4ERR_GRACE
	}
	return xdr.NFS4_OK
}

// ownOpen returns the open that an owner has on a file, or nil; mu is held.
func (t *Table) ownOpen(c *Client, owner string, key FileKey) *open {
	if f := t.files[key]; f != nil {
		return f.opens[openKey{c, owner}]
	}
	return nil
}

// setDeny sets what o denies to other opens.
func (o *open) setDeny(deny uint32) {
	if o.deny != 0 {
		o.file.denies--
	}
	if deny != 0 {
		o.file.denies++
	}
	o.deny = deny
}

// bump makes the next seqid, which is never 0 (RFC 8881 section 8.2.2).
func (o *open) bump() { o.seq = nextSeqid(o.seq) }

func nextSeqid(s uint32) uint32 {
	if s++; s == 0 {
		s = 1
	}
	return s
}

// end takes o out of the table; mu is held. The caller carries out what Ended says.
func (t *Table) end(o *open) Ended {
	e := Ended{Volume: o.file.vol, Handle: o.file.key.Handle}
	o.closed = true
	o.setDeny(0)
	delete(t.stateids, o.id)
	delete(o.client.opens, o)
	t.states.Add(o.client.Address, -o.takes())
	delete(o.file.opens, openKey{o.client, o.owner})
	for name, l := range o.locks {
		t.endLock(l)
		o.doubtful = with(o.doubtful, name, l.Owner)
	}
	for name, owner := range o.doubtful {
		if t.mustRelease(o, name, owner) {
			e.Owners = append(e.Owners, owner)
		}
	}
	for _, id := range o.revoked {
		o.client.acknowledge(id)
	}
	if len(o.file.opens) == 0 {
		delete(t.files, o.file.key)
		e.Release = true
	}
	return e
}

// Close implements CLOSE. The caller carries out what Ended says.
func (t *Table) Close(c *Client, id xdr.Stateid, key FileKey) (Ended, xdr.Status) {
	o, st := t.lockOpen(c, id, key)
	if st != xdr.NFS4_OK {
		return Ended{}, st
	}
	defer o.op.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, st := t.find(c, id, key); st != xdr.NFS4_OK {
		return Ended{}, st
	}
	return t.end(o), xdr.NFS4_OK
}

// Downgrade implements OPEN_DOWNGRADE.
func (t *Table) Downgrade(c *Client, id xdr.Stateid, key FileKey, access, deny uint32) (xdr.Stateid, xdr.Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, st := t.find(c, id, key)
	if st != xdr.NFS4_OK {
		return xdr.Stateid{}, st
	}
	o, ok := found.(*open)
	if !ok {
		return xdr.Stateid{}, xdr.NFS4ERR_BAD_STATEID
	}
	var gotAccess, gotDeny uint32
	var shares uint16
	for a := uint32(1); a <= 3; a++ {
		for d := uint32(0); d <= 3; d++ {
			if bit := shareBit(a, d); o.shares&bit != 0 && a&^access == 0 && d&^deny == 0 {
				gotAccess, gotDeny, shares = gotAccess|a, gotDeny|d, shares|bit
			}
		}
	}
	if access == 0 || gotAccess != access || gotDeny != deny {
		return xdr.Stateid{}, xdr.NFS4ERR_INVAL
	}
	o.setDeny(deny)
	o.access, o.shares = access, shares
	o.bump()
	return xdr.Stateid{Seqid: o.seq, Other: o.id}, xdr.NFS4_OK
}

// lockOpen finds the open whose stateid is id, and locks its op.
func (t *Table) lockOpen(c *Client, id xdr.Stateid, key FileKey) (*open, xdr.Status) {
	t.mu.Lock()
	found, st := t.find(c, id, key)
	t.mu.Unlock()
	if st != xdr.NFS4_OK {
		return nil, st
	}
	o, ok := found.(*open)
	if !ok {
		return nil, xdr.NFS4ERR_BAD_STATEID
	}
	o.op.Lock()
	return o, xdr.NFS4_OK
}

// MayShare says whether the opens of others permit an open: NFS4ERR_SHARE_DENIED.
func (t *Table) MayShare(c *Client, owner string, key FileKey, access, deny uint32) xdr.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.files[key]
	if f == nil {
		return xdr.NFS4_OK
	}
	if f.conflicts(t.ownOpen(c, owner, key), access, deny) {
		return xdr.NFS4ERR_SHARE_DENIED
	}
	return xdr.NFS4_OK
}
