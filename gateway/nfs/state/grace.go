// SPDX-License-Identifier: Apache-2.0

package state

import (
	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// InGrace tells whether the grace period lasts, in which clients reclaim (state-4).
func (t *Table) InGrace() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.grace.active
}

// MayOpen says whether c may make new opens and locks now. It returns NFS4_OK, or
// NFS4ERR_GRACE in grace and before c has sent RECLAIM_COMPLETE.
func (t *Table) MayOpen(c *Client) xdr.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.grace.active || !c.done() {
		return xdr.NFS4ERR_GRACE
	}
	return xdr.NFS4_OK
}

// done tells whether c has nothing more to reclaim; Table.mu is held.
func (c *Client) done() bool { return c.complete || c.presumed }

// MayReclaim says whether c may reclaim opens and locks now. It returns NFS4_OK or
// NFS4ERR_NO_GRACE.
func (t *Table) MayReclaim(c *Client) xdr.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.grace.active && c.mayReclaim && !c.complete {
		return xdr.NFS4_OK
	}
	return xdr.NFS4ERR_NO_GRACE
}

// ReclaimComplete implements RECLAIM_COMPLETE for all file systems (RFC 8881 section
// 18.51). unknown says that the request came on an unknown slot (state-5).
func (t *Table) ReclaimComplete(c *Client, unknown bool) xdr.Status {
	t.admin.Lock()
	defer t.admin.Unlock()
	t.mu.Lock()
	if c.complete {
		t.mu.Unlock()
		if unknown {
			return xdr.NFS4_OK
		}
		return xdr.NFS4ERR_COMPLETE_ALREADY
	}
	if c.mustReclaim && unknown {
		t.mu.Unlock()
		return xdr.NFS4_OK
	}
	r := c.record()
	r.Complete = true
	t.mu.Unlock()
	if err := t.save(r); err != nil {
		t.cfg.Log.Error("reclaim complete", "client", c.Address, "err", err)
		return xdr.NFS4ERR_DELAY
	}
	t.mu.Lock()
	if !c.complete {
		c.complete = true
		t.stopAwaiting(c)
	}
	t.mu.Unlock()
	t.finishGrace()
	return xdr.NFS4_OK
}

// finishGrace ends grace if it waits for no client any more, or if its time is over;
// admin is held and mu is not. First it records that clients which did not come back
// may not reclaim. If that fails, grace goes on.
func (t *Table) finishGrace() {
	t.mu.Lock()
	var late []record
	var lateClients []*Client
	over := t.grace.active && (t.grace.waiting <= 0 || t.cfg.Now().After(t.grace.until))
	if over {
		for _, c := range t.clients {
			if c.awaited {
				r := c.record()
				// Opens that were reclaimed stay, also without RECLAIM_COMPLETE.
				r.HasState = len(c.opens) > 0
				late, lateClients = append(late, r), append(lateClients, c)
			}
		}
	}
	t.mu.Unlock()
	if !over {
		return
	}
	for _, r := range late {
		if err := t.save(r); err != nil {
			t.cfg.Log.Error("end grace: grace goes on", "client", r.Address, "err", err)
			return
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range lateClients {
		t.stopAwaiting(c)
		c.mayReclaim, c.hasState = false, late[i].HasState
		t.cfg.Log.Warn("grace ended before a client had reclaimed its locks: what it did not reclaim is lost to it", "client", c.Address)
	}
	t.grace.active = false
}

// stopAwaiting ends that grace waits for c; mu is held.
func (t *Table) stopAwaiting(c *Client) {
	if c.awaited {
		c.awaited = false
		t.grace.waiting--
	}
}

// ensureHasState records that c may have state, before it gets any (state-1).
func (t *Table) ensureHasState(c *Client) xdr.Status {
	t.mu.Lock()
	ok := c.hasState
	t.mu.Unlock()
	if ok {
		return xdr.NFS4_OK
	}
	t.admin.Lock()
	defer t.admin.Unlock()
	t.mu.Lock()
	if c.hasState || c.gone {
		t.mu.Unlock()
		return xdr.NFS4_OK
	}
	r := c.record()
	r.HasState = true
	t.mu.Unlock()
	if err := t.save(r); err != nil {
		t.cfg.Log.Error("record that a client holds state", "client", c.Address, "err", err)
		return xdr.NFS4ERR_DELAY
	}
	t.mu.Lock()
	c.hasState = true
	t.mu.Unlock()
	return xdr.NFS4_OK
}
