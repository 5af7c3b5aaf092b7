// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/binary"
	"sync"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

type slotPhase uint8

const (
	slotIdle    slotPhase = iota // seq was answered; in the zero slot that is 0
	slotBusy                     // seq is being executed
	slotUnknown                  // seq may have been executed before a restart, or has no answer
)

// slot is one entry of a session's reply cache.
type slot struct {
	mu          sync.Mutex
	phase       slotPhase
	seq         uint32
	fingerprint uint64        // of the request that has seq
	done        chan struct{} // closed when seq is no longer busy
	reply       []byte        // nil if it is not cached
	filled      bool          // some sequence number was executed
}

// Use is the right to execute one sequence number of a slot. Its owner calls exactly
// one of Answer and Abandon.
type Use struct {
	Session *Session
	Slot    uint32
	Seq     uint32
	Unknown bool // the request may be a repeat of one that an earlier boot executed
	table   *Table
}

// Name is OpID.Slot of the operations that this use executes.
func (u *Use) Name() string {
	return slotPrefix(u.Session.Client.ID, u.Session.ID) + string(binary.BigEndian.AppendUint32(nil, u.Slot))
}

// Begin starts a request that begins with SEQUENCE, and renews the lease (RFC 8881
// section 2.10.6). It returns a Use if the request is to be executed, the cached
// reply if it is a repeat, or a status. While an equal request is being executed, it
// waits for the end of that. from is the client's address. fingerprint differs
// between different requests that wrongly have the same sequence number.
func (t *Table) Begin(id xdr.SessionID, from string, slot, seq, highest uint32, fingerprint uint64) (*Use, []byte, xdr.Status) {
	return t.begin(id, from, slot, seq, highest, fingerprint, true)
}

// BeginAtOnce is Begin. Instead of waiting, it returns NFS4ERR_DELAY.
func (t *Table) BeginAtOnce(id xdr.SessionID, from string, slot, seq, highest uint32, fingerprint uint64) (*Use, []byte, xdr.Status) {
	return t.begin(id, from, slot, seq, highest, fingerprint, false)
}

func (t *Table) begin(id xdr.SessionID, from string, slot, seq, highest uint32, fingerprint uint64, wait bool) (*Use, []byte, xdr.Status) {
	t.mu.Lock()
	s := t.sessions[id]
	if s == nil {
		t.mu.Unlock()
		return nil, nil, xdr.NFS4ERR_BADSESSION
	}
	if slot >= uint32(len(s.slots)) {
		t.mu.Unlock()
		return nil, nil, xdr.NFS4ERR_BADSLOT
	}
	if highest >= uint32(len(s.slots)) {
		t.mu.Unlock()
		return nil, nil, xdr.NFS4ERR_BAD_HIGH_SLOT
	}
	c := s.Client
	now := t.cfg.Now()
	c.renewed, s.used, s.idle, c.from, c.silent = now, now, false, from, false
	c.busy++
	t.mu.Unlock()

	use, reply, st := s.slots[slot].begin(seq, fingerprint, wait)
	if use == nil {
		t.idle(c)
		return nil, reply, st
	}
	use.Session, use.Slot, use.table = s, slot, t
	return use, nil, xdr.NFS4_OK
}

func (t *Table) idle(c *Client) {
	t.mu.Lock()
	c.busy--
	if !c.silent {
		c.renewed = t.cfg.Now()
	}
	t.mu.Unlock()
}

func (s *slot) begin(seq uint32, fingerprint uint64, wait bool) (*Use, []byte, xdr.Status) {
	for {
		s.mu.Lock()
		repeat := s.filled && seq == s.seq
		switch {
		case s.phase == slotUnknown:
			s.start(seq, fingerprint)
			s.mu.Unlock()
			return &Use{Seq: seq, Unknown: true}, nil, xdr.NFS4_OK
		case repeat && fingerprint != s.fingerprint:
			s.mu.Unlock()
			return nil, nil, xdr.NFS4ERR_SEQ_FALSE_RETRY
		case repeat && s.phase == slotBusy && !wait:
			s.mu.Unlock()
			return nil, nil, xdr.NFS4ERR_DELAY
		case repeat && s.phase == slotBusy:
			done := s.done
			s.mu.Unlock()
			<-done
			continue
		case repeat && s.reply == nil:
			s.mu.Unlock()
			return nil, nil, xdr.NFS4ERR_RETRY_UNCACHED_REP
		case repeat:
			defer s.mu.Unlock()
			return nil, s.reply, xdr.NFS4_OK
		case s.phase == slotBusy || seq != s.seq+1:
			s.mu.Unlock()
			return nil, nil, xdr.NFS4ERR_SEQ_MISORDERED
		default:
			s.start(seq, fingerprint)
			s.mu.Unlock()
			return &Use{Seq: seq}, nil, xdr.NFS4_OK
		}
	}
}

func (s *slot) start(seq uint32, fingerprint uint64) {
	s.phase, s.seq, s.fingerprint, s.filled = slotBusy, seq, fingerprint, true
	s.reply, s.done = nil, make(chan struct{})
}

func (s *slot) finish(phase slotPhase, reply []byte) {
	s.mu.Lock()
	s.phase, s.reply = phase, reply
	close(s.done)
	s.mu.Unlock()
}

// Answer ends the use. The slot keeps reply for repeats, and owns the slice from
// then on. A nil reply is not kept.
func (u *Use) Answer(reply []byte) {
	u.Session.slots[u.Slot].finish(slotIdle, reply)
	u.table.idle(u.Session.Client)
}

// Abandon ends the use without an answer. The slot is unknown then: it executes
// whatever comes next, and a repeat gets the same OpIDs (state-3).
func (u *Use) Abandon() {
	u.Session.slots[u.Slot].finish(slotUnknown, nil)
	u.table.idle(u.Session.Client)
}

// StatusFlags returns sr_status_flags for a client (RFC 8881 section 18.46.3).
//
// SEQ4_STATUS_ADMIN_STATE_REVOKED is never set, although the RFC has it say that some
// state was revoked. Linux (nfs4_state_start_reclaim_nograce, seen in 6.1) then
// treats all its locks, on all volumes, as lost, and fails I/O under them. Instead,
// NFS4ERR_ADMIN_REVOKED answers each use of what was revoked, and Linux then recovers
// that alone. SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED has the same effect and is never
// set. SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED is set also if the client has opened
// something after its lease expired, before it heard of that.
func (t *Table) StatusFlags(c *Client) (flags uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.mustReclaim && !c.complete {
		flags |= xdr.SEQ4_STATUS_RESTART_RECLAIM_NEEDED
	}
	if len(c.revoked) > c.admin {
		flags |= xdr.SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED
	}
	return flags
}
