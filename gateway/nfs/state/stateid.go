// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/binary"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// find looks up a stateid that is not special (RFC 8881 section 8.2.4); mu is held.
// The zero key means any file. The answer to a stateid from before a restart is
// NFS4ERR_DELAY as long as the client can still reclaim. Linux then waits, and
// repeats the request with the stateid that it got from reclaiming.
func (t *Table) find(c *Client, id xdr.Stateid, key FileKey) (any, xdr.Status) {
	s, ok := t.stateids[id.Other]
	if !ok {
		if st, ok := c.revoked[id.Other]; ok {
			return nil, st
		}
		if !t.ourBoot(id.Other) && t.grace.active && c.mayReclaim && !c.complete && binary.BigEndian.Uint32(id.Other[:]) != 0 {
			return nil, xdr.NFS4ERR_DELAY
		}
		return nil, xdr.NFS4ERR_BAD_STATEID
	}
	var o *open
	var seq uint32
	switch s := s.(type) {
	case *open:
		o, seq = s, s.seq
	case *lockState:
		o, seq = s.open, s.seq
	}
	switch {
	case o.client != c, key != (FileKey{}) && o.file.key != key:
		return nil, xdr.NFS4ERR_BAD_STATEID
	case id.Seqid == 0 || id.Seqid == seq:
		return s, xdr.NFS4_OK
	case int32(id.Seqid-seq) < 0:
		return nil, xdr.NFS4ERR_OLD_STATEID
	default:
		return nil, xdr.NFS4ERR_BAD_STATEID
	}
}

// revoke remembers that a stateid was taken away; Table.mu is held.
func (c *Client) revoke(id [12]byte, why xdr.Status) {
	if c.revoked == nil {
		c.revoked = map[[12]byte]xdr.Status{}
	}
	c.acknowledge(id)
	if len(c.revoked) >= maxStates {
		return // its use is then answered NFS4ERR_BAD_STATEID
	}
	c.revoked[id] = why
	if why == xdr.NFS4ERR_ADMIN_REVOKED {
		c.admin++
	}
}

// revokeAll remembers that an open was taken away with its locks; Table.mu is held.
func (c *Client) revokeAll(o *open, why xdr.Status) {
	c.revoke(o.id, why)
	for _, l := range o.locks {
		c.revoke(l.id, why)
	}
}

// acknowledge forgets that a stateid was taken away; Table.mu is held.
func (c *Client) acknowledge(id [12]byte) {
	if c.revoked[id] == xdr.NFS4ERR_ADMIN_REVOKED {
		c.admin--
	}
	delete(c.revoked, id)
}

// CheckIO says whether the stateid of an open or a lock permits access to key. The
// access is that of the open. Outcomes: NFS4ERR_BAD_STATEID, NFS4ERR_OLD_STATEID,
// NFS4ERR_OPENMODE, NFS4ERR_DELAY (from before a restart), NFS4ERR_EXPIRED,
// NFS4ERR_ADMIN_REVOKED.
func (t *Table) CheckIO(c *Client, id xdr.Stateid, key FileKey, access uint32) xdr.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, st := t.find(c, id, key)
	if st != xdr.NFS4_OK {
		return st
	}
	o, ok := s.(*open)
	if !ok {
		o = s.(*lockState).open
	}
	// Reading through an open for writing is allowed, RFC 8881 section 9.1.2.
	if access == xdr.OPEN4_SHARE_ACCESS_WRITE && o.access&access == 0 {
		return xdr.NFS4ERR_OPENMODE
	}
	return xdr.NFS4_OK
}

// CheckAnonymous says whether key may be read or written without an open. It returns
// NFS4ERR_LOCKED if an open denies it, and NFS4ERR_GRACE while clients may still
// reclaim opens that deny it. With bypass, reading is always permitted.
func (t *Table) CheckAnonymous(key FileKey, access uint32, bypass bool) xdr.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	if bypass && access == xdr.OPEN4_SHARE_ACCESS_READ {
		return xdr.NFS4_OK
	}
	if f := t.files[key]; f != nil && f.conflicts(nil, access, 0) {
		return xdr.NFS4ERR_LOCKED
	}
	if t.grace.active {
		return xdr.NFS4ERR_GRACE
	}
	return xdr.NFS4_OK
}

// Test implements TEST_STATEID for one stateid.
func (t *Table) Test(c *Client, id xdr.Stateid) xdr.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	if special(id) {
		return xdr.NFS4ERR_BAD_STATEID
	}
	_, st := t.find(c, id, FileKey{})
	if st == xdr.NFS4ERR_DELAY {
		return xdr.NFS4ERR_STALE_STATEID
	}
	return st
}

func special(id xdr.Stateid) bool {
	return id.Other == xdr.StateidAnonymous.Other || id.Other == xdr.StateidBypass.Other
}

// Free implements FREE_STATEID (RFC 8881 section 18.38). It forgets a stateid that
// was taken away, or ends a lock stateid without locks.
func (t *Table) Free(c *Client, id xdr.Stateid) xdr.Status {
	t.mu.Lock()
	if _, ok := c.revoked[id.Other]; ok {
		c.acknowledge(id.Other)
		t.mu.Unlock()
		return xdr.NFS4_OK
	}
	s, st := t.find(c, id, FileKey{})
	t.mu.Unlock()
	if st == xdr.NFS4ERR_DELAY {
		st = xdr.NFS4ERR_BAD_STATEID
	}
	if st != xdr.NFS4_OK {
		return st
	}
	l, ok := s.(*lockState)
	if !ok {
		return xdr.NFS4ERR_LOCKS_HELD
	}
	l.open.op.Lock() // a LOCK of this owner may be under way
	defer l.open.op.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.open.closed || l.open.locks[l.name] != l {
		return xdr.NFS4ERR_BAD_STATEID
	}
	if len(l.held) > 0 {
		return xdr.NFS4ERR_LOCKS_HELD
	}
	delete(l.open.locks, l.name)
	t.endLock(l)
	return xdr.NFS4_OK
}
