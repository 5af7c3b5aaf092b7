// SPDX-License-Identifier: Apache-2.0

package state

import (
	"time"

	"github.com/weir-storage/weir/gateway/nfs/state/share"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// Session is a session. Its fields do not change, except used and idle.
type Session struct {
	ID     xdr.SessionID
	Client *Client
	Flags  uint32
	Fore   xdr.ChannelAttrs
	Back   xdr.ChannelAttrs
	made   uint32 // csa_sequence of its CREATE_SESSION: the order of a client's sessions
	slots  []slot
	used   time.Time    // guarded by Table.mu
	idle   bool         // loaded, and not used since the start; guarded by Table.mu
	Shares *share.Slots // of the slots
}

func newSession(c *Client, made, flags uint32, fore, back xdr.ChannelAttrs) *Session {
	return &Session{Client: c, Flags: flags, Fore: fore, Back: back, made: made, slots: make([]slot, fore.MaxRequests),
		Shares: share.New(int(fore.MaxRequests))}
}

// busy tells whether s is executing a request.
func (s *Session) busy() bool { return s.executing() > 0 }

// free tells whether s has a slot for another request.
func (s *Session) free() bool { return s.executing() < len(s.slots) }

// executing returns in how many slots a request is being executed.
func (s *Session) executing() (n int) {
	for i := range s.slots {
		sl := &s.slots[i]
		sl.mu.Lock()
		if sl.phase == slotBusy {
			n++
		}
		sl.mu.Unlock()
	}
	return n
}

// Created is the outcome of CREATE_SESSION.
type Created struct {
	Session  xdr.SessionID
	Sequence uint32
	Flags    uint32
	Fore     xdr.ChannelAttrs
	Back     xdr.ChannelAttrs
}

// CreateArgs are the arguments of CREATE_SESSION, with the attributes and flags
// that the server grants.
type CreateArgs struct {
	ClientID  uint64
	Sequence  uint32
	Principal string
	Address   string // of the sender
	Stranger  bool   // as in ExchangeArgs
	Flags     uint32
	Fore      xdr.ChannelAttrs
	Back      xdr.ChannelAttrs
	Invalid   xdr.Status // what is wrong with the arguments; ignored for a replay
}

// CreateSession implements CREATE_SESSION (RFC 8881 section 18.36.4). The session
// is durable when it returns. Others learn a client's id, from the answer that it has a lock, and
// the sequence number can be guessed: so the sender has to have the address that the client has.
// NFS4ERR_ACCESS says that a stranger is to be refused.
func (t *Table) CreateSession(a CreateArgs) (Created, xdr.Status) {
	t.admin.Lock()
	defer t.admin.Unlock()
	t.mu.Lock()
	c := t.clients[a.ClientID]
	st := xdr.NFS4_OK
	switch {
	case c == nil, c.Address != a.Address && c.from != a.Address:
		st = xdr.NFS4ERR_STALE_CLIENTID
	case a.Sequence == c.createSeq-1 && c.lastCreated.Session != (xdr.SessionID{}) && a.Sequence == c.lastCreated.Sequence:
		defer t.mu.Unlock()
		return c.lastCreated, xdr.NFS4_OK
	case a.Sequence != c.createSeq:
		st = xdr.NFS4ERR_SEQ_MISORDERED
	case c.principal != a.Principal:
		st = xdr.NFS4ERR_CLID_INUSE
	case a.Stranger:
		st = xdr.NFS4ERR_ACCESS
	case a.Invalid != xdr.NFS4_OK:
		st = a.Invalid
	}
	var replaced *Session
	if st == xdr.NFS4_OK && len(c.sessions) >= maxSessions {
		if replaced = t.oldestUnused(c); replaced == nil {
			st = xdr.NFS4ERR_NOSPC
			t.refused[BoundSessions]++
		}
	}
	if st != xdr.NFS4_OK {
		t.mu.Unlock()
		return Created{}, st
	}
	if slots, ok := t.grant(c, a.Fore.MaxRequests, replaced); ok {
		a.Fore.MaxRequests = slots
	} else {
		t.refused[BoundSessions]++
		t.mu.Unlock()
		return Created{}, xdr.NFS4ERR_DELAY
	}
	s := newSession(c, a.Sequence, a.Flags, a.Fore, a.Back)
	var err error
	if s.ID, err = t.newSessionID(c); err != nil {
		t.mu.Unlock()
		t.cfg.Log.Error("create session", "client", c.Address, "err", err)
		return Created{}, xdr.NFS4ERR_SERVERFAULT
	}
	t.serial++
	old := t.owners[c.key()].confirmed
	if old != nil && old != c && (old.presumed || len(old.revoked) > old.admin) {
		c.presumed = true
	}
	r := c.recordWithout(replaced)
	if !c.confirmed {
		r.Boot, r.Serial = t.cfg.Boot, t.serial
	}
	r.Sequence++
	r.Lease = t.cfg.Lease
	r.Last = s.ID[:]
	r.Sessions = append(r.Sessions, sessionRecord{s.ID[:], s.made, s.Flags, s.Fore, s.Back})
	t.mu.Unlock()

	if err := t.save(r); err != nil {
		t.cfg.Log.Error("create session", "client", c.Address, "err", err)
		return Created{}, xdr.NFS4ERR_DELAY
	}
	if old != nil && old != c {
		if err := t.drop(old); err != nil {
			t.cfg.Log.Error("create session: end the client's former incarnation", "client", c.Address, "err", err)
			return Created{}, xdr.NFS4ERR_DELAY
		}
	}
	if replaced != nil {
		t.remove(replaced)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.boot, c.serial, c.confirmed = r.Boot, r.Serial, true
	if o := t.owners[c.key()]; o == nil {
		t.owners[c.key()] = &ownerRecord{confirmed: c}
	} else {
		o.confirmed = c
		if o.unconfirmed == c {
			o.unconfirmed = nil
		}
	}
	now := t.cfg.Now()
	t.keepSession(s)
	c.createSeq, c.lease, c.renewed, s.used = r.Sequence, r.Lease, now, now
	c.lastCreated = Created{s.ID, a.Sequence, s.Flags, s.Fore, s.Back}
	return c.lastCreated, xdr.NFS4_OK
}

// grant returns how many of the slots that a client asks for it gets: fewer when all have many. mu
// is held.
func (t *Table) grant(c *Client, asked uint32, replaced *Session) (slots uint32, ok bool) {
	left := t.slots.Left(c.Address) / slotTakes
	if replaced != nil {
		left += len(replaced.slots)
	}
	if left < int(min(asked, fewSlots)) {
		return 0, false
	}
	return min(asked, uint32(left)), true
}

// oldestUnused returns the oldest session that c has replaced by others, or nil; mu
// is held. Linux makes a new session after a restart of the server
// (SEQ4_STATUS_RESTART_RECLAIM_NEEDED) and destroys no old one. They add up while
// the server restarts more often than Sweep removes sessions, and must not keep the
// client from reclaiming its locks.
func (t *Table) oldestUnused(c *Client) (oldest *Session) {
	for _, s := range c.sessions {
		unused := s.idle || t.cfg.Now().Sub(s.used) > t.cfg.Lease
		if unused && !s.busy() && (oldest == nil || s.made < oldest.made) {
			oldest = s
		}
	}
	return oldest
}

// Session returns the session called id, or nil.
func (t *Table) Session(id xdr.SessionID) *Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sessions[id]
}

// DestroySession implements DESTROY_SESSION (RFC 8881 section 18.37). Requests that
// run in the session go on.
func (t *Table) DestroySession(id xdr.SessionID) xdr.Status {
	t.admin.Lock()
	defer t.admin.Unlock()
	return t.destroySession(id)
}

func (t *Table) destroySession(id xdr.SessionID) xdr.Status {
	t.mu.Lock()
	s := t.sessions[id]
	if s == nil {
		t.mu.Unlock()
		return xdr.NFS4ERR_BADSESSION
	}
	c := s.Client
	r := c.recordWithout(s)
	t.mu.Unlock()
	if err := t.save(r); err != nil {
		t.cfg.Log.Error("destroy session", "client", c.Address, "err", err)
		return xdr.NFS4ERR_DELAY
	}
	t.remove(s)
	return xdr.NFS4_OK
}

// remove takes a session out of the table. Its client's record does not have it any
// more. Requests that run in it go on. mu is not held.
func (t *Table) remove(s *Session) {
	t.mu.Lock()
	t.forgetSession(s)
	delete(s.Client.sessions, s.ID)
	f := s.Client.forgotten(s.ID)
	t.mu.Unlock()
	t.report(nil, f)
}
