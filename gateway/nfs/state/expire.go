// SPDX-License-Identifier: Apache-2.0

package state

import (
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// forgetAfter is the number of leases for which the sessions of an expired client
// are kept, so that repeats of its requests are still recognized. sessionIdle is the
// number of leases for which a session is kept that its client has replaced.
const (
	forgetAfter = 30
	sessionIdle = 10
)

// Sweep ends leases, grace, unconfirmed clients and unused sessions whose time is
// over. The server calls it a few times per lease.
func (t *Table) Sweep() {
	t.admin.Lock()
	defer t.admin.Unlock()
	now, tight := t.cfg.Now(), t.tight()
	var drop, expire, stateless []*Client
	var unused []xdr.SessionID
	t.mu.Lock()
	for _, c := range t.clients {
		age, lease := now.Sub(c.renewed), c.lease
		if len(c.opens) > 0 {
			c.idleSince = now
		}
		switch {
		case c.busy > 0:
			if age > lease { // its requests may wait for a home that does not come, and it may be gone
				c.hurry(now, age > lease+lease/4)
			}
		case !c.confirmed && age > lease, age > forgetAfter*lease, tight && t.mayGiveWay(c):
			drop = append(drop, c)
		case age > lease && (c.hasState || len(c.opens) > 0):
			expire = append(expire, c)
		case c.hasState && c.complete && now.Sub(c.idleSince) > lease:
			stateless = append(stateless, c)
		}
		if len(c.sessions) > 1 && c.busy == 0 {
			for id, s := range c.sessions {
				if now.Sub(s.used) > sessionIdle*lease && s.used.Before(c.renewed) && id != c.lastCreated.Session {
					unused = append(unused, id)
				}
			}
		}
	}
	t.mu.Unlock()
	for _, c := range drop {
		if err := t.drop(c); err != nil {
			t.cfg.Log.Error("drop silent client", "client", c.Address, "err", err)
		}
	}
	for _, c := range expire {
		t.expire(c)
	}
	for _, c := range stateless {
		t.recordIdle(c)
	}
	for _, id := range unused {
		_ = t.destroySession(id) // it logs its error, and the next sweep tries again
	}
	t.finishGrace()
}

// hurry asks the requests of a client that was silent for a whole lease to give up. Those that go
// on are ended if revoke is set and the client could have renewed: then it loses its state when the
// last one has ended, and not before. What they changed so far comes before all that others do
// under the locks that it loses (volume.Request.Revoked). mu is held.
func (c *Client) hurry(now time.Time, revoke bool) {
	free := false
	for _, s := range c.sessions {
		free = free || s.free()
	}
	c.silent = free
	for _, s := range c.sessions {
		s.Shares.GiveUp(now)
		if free && revoke {
			s.Shares.Revoke(now)
		}
	}
}

// expire takes the opens and locks of a silent client away. Its record says so first
// (state-1).
func (t *Table) expire(c *Client) {
	t.mu.Lock()
	r := c.record()
	r.HasState = false
	t.mu.Unlock()
	if err := t.save(r); err != nil {
		t.cfg.Log.Error("expire lease: the client keeps its state", "client", c.Address, "err", err)
		return
	}
	t.mu.Lock()
	if !t.expired(c) { // it came back while its record was saved
		t.mu.Unlock()
		r.HasState = true
		if err := t.save(r); err != nil {
			t.cfg.Log.Error("keep lease: a restart would lose the client's state", "client", c.Address, "err", err)
		}
		return
	}
	ended := t.endAll(c, xdr.NFS4ERR_EXPIRED)
	c.hasState, c.mayReclaim = false, false
	t.stopAwaiting(c)
	t.mu.Unlock()
	t.cfg.Log.Warn("lease expired: the client was silent and loses its opens and locks",
		"client", c.Address, "lease", c.lease, "opens", len(ended))
	if len(ended) > 0 {
		t.cfg.Ended(ended)
	}
}

// recordIdle records that c has had no state for a while, so that grace after a restart
// does not wait for it.
func (t *Table) recordIdle(c *Client) {
	t.mu.Lock()
	if len(c.opens) > 0 || !c.hasState {
		t.mu.Unlock()
		return
	}
	r := c.record()
	r.HasState = false
	// An open that comes now records it again, after this: ensureHasState waits for
	// admin.
	c.hasState = false
	t.mu.Unlock()
	if err := t.save(r); err != nil {
		t.cfg.Log.Error("record that a client holds no state", "client", c.Address, "err", err)
		t.mu.Lock()
		c.hasState = true
		t.mu.Unlock()
	}
}

// endAll takes all opens and locks of c away; mu is held. Later uses of their
// stateids are answered why.
func (t *Table) endAll(c *Client, why xdr.Status) []Ended {
	var ended []Ended
	for o := range c.opens {
		c.revokeAll(o, why)
		ended = append(ended, t.end(o))
	}
	return ended
}

// Expel takes from clients their opens and locks on a volume that they may not use
// any more. refused tells that for the address from which a client came last. Later
// uses of the stateids are answered NFS4ERR_ADMIN_REVOKED, unless the volume is gone:
// then its file handles are stale, and no such use can come. The caller carries out
// what Ended says.
func (t *Table) Expel(id volume.ID, gone bool, refused func(client string) bool) []Ended {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ended []Ended
	for _, c := range t.clients {
		var opens []*open
		for o := range c.opens {
			if o.file.key.Volume == id {
				opens = append(opens, o)
			}
		}
		if len(opens) == 0 || !refused(c.from) {
			continue
		}
		for _, o := range opens {
			if !gone {
				c.revokeAll(o, xdr.NFS4ERR_ADMIN_REVOKED)
			}
			ended = append(ended, t.end(o))
		}
	}
	return ended
}
