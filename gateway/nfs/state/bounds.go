// SPDX-License-Identifier: Apache-2.0

package state

import (
	"github.com/weir-storage/weir/gateway/nfs/fair"
)

// Bounds on what one client can make the server remember (state-7).
const (
	maxClients  = 256     // of one address
	maxSessions = 32      // of one client, each with its slots and the replies in them
	maxStates   = 1 << 18 // opens and lock stateids of one client, and as many that were taken away
	maxRanges   = 1 << 15 // locked ranges of one client
)

// Bounds on what all clients can make the server remember together, besides Config.States and
// Config.Sessions. Each address gets a fair share of them (package fair).
const maxAllClients = 4096

// What states and slots take of memory, in bytes. An open of its own file was measured to take 750,
// a lock 400. What a volume has of them comes on top. A slot has its reply: usually 400, and at
// most 2 KiB.
const (
	openTakes  = 768
	lockTakes  = 448
	rangeTakes = 64
	slotTakes  = 1024
)

// fewSlots is the least of a session for a client that asks for more. With fewer, it waits.
const fewSlots = 4

// Bound is one of the bounds on what clients can make the server remember.
type Bound uint8

// The bounds.
const (
	BoundClients  Bound = iota // of the address, or of all
	BoundSessions              // of the client, or slots of all
	BoundStates                // opens and locks of the client, or of all
	Bounds                     // their number
)

// Refused counts what was refused for each bound since the start.
func (t *Table) Refused() [Bounds]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused
}

// Room returns how much memory states and sessions take, in bytes, and may take.
func (t *Table) Room() (states, sessions fair.Use) { return t.states.Use(), t.slots.Use() }

// full tells whether c may not open or lock any more; Table.mu is held.
func (c *Client) full() bool { return len(c.opens)+c.lockStates >= maxStates }

// tight tells whether so much is in use that who is silent has to give way early.
func (t *Table) tight() bool {
	for _, u := range []fair.Use{t.known.Use(), t.slots.Use()} {
		if u.Used > u.Limit/4*3 {
			return true
		}
	}
	return false
}

// roomForClient tells whether an address may have another client. The oldest silent one there that
// holds nothing gives way, if there is one. admin and mu are held; mu is unlocked meanwhile.
func (t *Table) roomForClient(address string) bool {
	fits := func() bool { return len(t.addresses[address]) < maxClients && t.known.Left(address) > 0 }
	if fits() {
		return true
	}
	var oldest *Client
	for c := range t.addresses[address] {
		if t.mayGiveWay(c) && (oldest == nil || c.renewed.Before(oldest.renewed)) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	t.mu.Unlock()
	err := t.drop(oldest)
	t.mu.Lock()
	if err != nil {
		t.cfg.Log.Error("drop a silent client, to make room for another one", "client", address, "err", err)
		return false
	}
	return fits()
}

// mayGiveWay tells whether c is silent and has nothing that it could miss but its sessions; mu is
// held.
func (t *Table) mayGiveWay(c *Client) bool { return len(c.opens) == 0 && !c.awaited && t.expired(c) }

// forgetSession takes s out of the table; mu is held.
func (t *Table) forgetSession(s *Session) {
	if t.sessions[s.ID] != s {
		return
	}
	delete(t.sessions, s.ID)
	t.slots.Add(s.Client.Address, -slotTakes*len(s.slots))
}

// keepSession puts s into the table; mu is held.
func (t *Table) keepSession(s *Session) {
	s.Client.sessions[s.ID], t.sessions[s.ID] = s, s
	t.slots.Add(s.Client.Address, slotTakes*len(s.slots))
}

// Live tells whether a session is there and its client has a lease.
func (t *Table) Live(s *Session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sessions[s.ID] == s && !t.expired(s.Client)
}

// takes is what o takes of memory.
func (o *open) takes() int { return openTakes + len(o.owner) }

// takes is what l takes of memory, without its ranges.
func (l *lockState) takes() int { return lockTakes + len(l.name) }
