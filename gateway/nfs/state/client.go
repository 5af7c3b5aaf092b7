// SPDX-License-Identifier: Apache-2.0

package state

import (
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// Client is one incarnation of a client. Fields are guarded by Table.mu, except
// ID and Address, which do not change.
type Client struct {
	ID      uint64
	Address string // from which it first came
	from    string // the address from which it came last; guarded by Table.mu

	boot, serial uint64 // of its confirmation
	owner        string
	verifier     [8]byte
	principal    string
	certificate  string // that it showed; "": none
	confirmed    bool
	loaded       bool // from the store
	gone         bool

	createSeq   uint32 // the csa_sequence that the next CREATE_SESSION must have
	lastCreated Created
	sessions    map[xdr.SessionID]*Session
	volumes     map[volume.ID]volume.Volume // where it changed something

	// lease is how long it may be silent: what this process or a former one told it. A client asks
	// for that when it makes a session.
	lease   time.Duration
	renewed time.Time
	busy    int // compounds that run now
	// silent says that it could have renewed its lease in time and did not. Then the end of a
	// request does not renew it either. Its next request does.
	silent bool

	opens      map[*open]struct{}
	lockStates int
	ranges     int                     // that are locked
	revoked    map[[12]byte]xdr.Status // stateids that were taken away, and why
	admin      int                     // how many of revoked are NFS4ERR_ADMIN_REVOKED

	hasState  bool // as the record says, state-1
	idleSince time.Time
	complete  bool // it sent RECLAIM_COMPLETE
	// presumed says that the client's former incarnation knew that it had lost
	// everything. Then this one has nothing to reclaim and need not send
	// RECLAIM_COMPLETE. Linux 6.1 does not send it when it recovers from
	// SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED, and NFS4ERR_GRACE would make it hang.
	// (Later kernels send it: nfs41_init_clientid.)
	presumed    bool
	mustReclaim bool // it is older than the restart, and must send RECLAIM_COMPLETE again
	mayReclaim  bool
	restarted   bool // it had state when the server restarted
	awaited     bool // grace lasts until it is complete
}

// ExchangeArgs are the arguments of EXCHANGE_ID.
type ExchangeArgs struct {
	Owner     string
	Verifier  [8]byte
	Principal string // who sent it, by the RPC credential
	Update    bool
	Address   string
	// Certificate names the one that the client showed; "": none.
	Certificate string
	// Stranger: no volume admits the client as it is on this connection.
	Stranger bool
}

// Exchanged is the outcome of EXCHANGE_ID.
type Exchanged struct {
	ClientID  uint64
	Sequence  uint32
	Confirmed bool
}

// ExchangeID implements the cases of RFC 8881 section 18.35.4. A client that says another
// address's name is another client (state-8). NFS4ERR_ACCESS, which is none of EXCHANGE_ID's, says
// that a stranger is to be refused.
func (t *Table) ExchangeID(a ExchangeArgs) (Exchanged, xdr.Status) {
	t.admin.Lock()
	defer t.admin.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	key := ownerKey{a.Address, a.Owner}
	o := t.owners[key]
	if o == nil {
		o = &ownerRecord{}
	}
	old := o.confirmed
	if a.Update {
		switch {
		case old == nil:
			return Exchanged{}, xdr.NFS4ERR_NOENT
		case old.verifier != a.Verifier:
			return Exchanged{}, xdr.NFS4ERR_NOT_SAME
		case old.principal != a.Principal:
			return Exchanged{}, xdr.NFS4ERR_PERM
		}
		old.renewed = t.cfg.Now()
		return Exchanged{old.ID, old.createSeq, true}, xdr.NFS4_OK
	}
	if old != nil && old.principal == a.Principal && old.verifier == a.Verifier {
		if o.unconfirmed != nil {
			t.unlink(o.unconfirmed)
			o.unconfirmed = nil
		}
		old.renewed = t.cfg.Now()
		return Exchanged{old.ID, old.createSeq, true}, xdr.NFS4_OK
	}
	if a.Stranger {
		return Exchanged{}, xdr.NFS4ERR_ACCESS
	}
	if old != nil && (old.principal != a.Principal || old.certificate != a.Certificate) {
		if t.holdsState(old) {
			return Exchanged{}, xdr.NFS4ERR_CLID_INUSE
		}
		t.mu.Unlock()
		err := t.drop(old)
		t.mu.Lock()
		if err != nil {
			t.cfg.Log.Error("exchange id: replace a client of another principal", "client", old.Address, "err", err)
			return Exchanged{}, xdr.NFS4ERR_DELAY
		}
		if o = t.owners[key]; o == nil {
			o = &ownerRecord{}
		}
	}
	if o.unconfirmed == nil {
		if !t.roomForClient(a.Address) {
			t.refused[BoundClients]++
			return Exchanged{}, xdr.NFS4ERR_DELAY
		}
		if o = t.owners[key]; o == nil { // who gave way may have been the only one of this name
			o = &ownerRecord{}
		}
	}
	id, err := t.newClientID()
	if err != nil {
		t.cfg.Log.Error("exchange id", "err", err)
		return Exchanged{}, xdr.NFS4ERR_SERVERFAULT
	}
	if o.unconfirmed != nil {
		t.unlink(o.unconfirmed)
	}
	c := &Client{
		ID: id, Address: a.Address, owner: a.Owner, verifier: a.Verifier, principal: a.Principal,
		certificate: a.Certificate, from: a.Address,
		createSeq: 1, lease: t.cfg.Lease, renewed: t.cfg.Now(), sessions: map[xdr.SessionID]*Session{},
	}
	o.unconfirmed = c
	t.owners[key] = o
	t.add(c)
	return Exchanged{id, c.createSeq, false}, xdr.NFS4_OK
}

func (c *Client) key() ownerKey { return ownerKey{c.Address, c.owner} }

// holdsState tells whether c has something to lose and its lease has not expired;
// mu is held.
func (t *Table) holdsState(c *Client) bool {
	return (len(c.opens) > 0 || len(c.sessions) > 0 || c.mustReclaim && !c.complete) && !t.expired(c)
}

func (t *Table) expired(c *Client) bool {
	return c.busy == 0 && t.cfg.Now().Sub(c.renewed) > c.lease
}

// add puts c into the table; mu is held.
func (t *Table) add(c *Client) {
	t.clients[c.ID] = c
	if t.addresses[c.Address] == nil {
		t.addresses[c.Address] = map[*Client]struct{}{}
	}
	t.addresses[c.Address][c] = struct{}{}
	t.known.Add(c.Address, 1)
}

// unlink takes c out of the table; mu is held. The owner's record stays if it
// names another client.
func (t *Table) unlink(c *Client) {
	if c.gone {
		return
	}
	c.gone = true
	delete(t.clients, c.ID)
	if delete(t.addresses[c.Address], c); len(t.addresses[c.Address]) == 0 {
		delete(t.addresses, c.Address)
	}
	t.known.Add(c.Address, -1)
	for _, s := range c.sessions {
		t.forgetSession(s)
	}
	if o := t.owners[c.key()]; o != nil {
		if o.confirmed == c {
			o.confirmed = nil
		}
		if o.unconfirmed == c {
			o.unconfirmed = nil
		}
		if *o == (ownerRecord{}) {
			delete(t.owners, c.key())
		}
	}
	t.stopAwaiting(c)
}

// DestroyClient implements DESTROY_CLIENTID. from is the address of the sender, which has to be the
// client's.
func (t *Table) DestroyClient(id uint64, from string) xdr.Status {
	t.admin.Lock()
	defer t.admin.Unlock()
	t.mu.Lock()
	c := t.clients[id]
	st := xdr.NFS4_OK
	switch {
	case c == nil, c.Address != from && c.from != from:
		st = xdr.NFS4ERR_STALE_CLIENTID
	case len(c.sessions) > 0 || len(c.opens) > 0:
		st = xdr.NFS4ERR_CLIENTID_BUSY
	}
	t.mu.Unlock()
	if st != xdr.NFS4_OK {
		return st
	}
	if err := t.drop(c); err != nil {
		t.cfg.Log.Error("destroy client", "client", c.Address, "err", err)
		return xdr.NFS4ERR_DELAY
	}
	return xdr.NFS4_OK
}

// drop removes c: first its record, then its state, then what volumes recorded for
// it. admin is held and mu is not.
func (t *Table) drop(c *Client) error {
	// A client that is not confirmed may have a record, too: CREATE_SESSION may have
	// failed after it was saved.
	if err := t.cfg.Store.Delete(recordKey(c.ID)); err != nil {
		return err
	}
	t.mu.Lock()
	t.unlink(c)
	ended := t.endAll(c, xdr.NFS4ERR_EXPIRED)
	f := c.forgotten(xdr.SessionID{})
	t.mu.Unlock()
	t.finishGrace()
	t.report(ended, f)
	return nil
}

func (t *Table) report(ended []Ended, f Forgotten) {
	if len(ended) > 0 {
		t.cfg.Ended(ended)
	}
	t.cfg.Forget(f)
}

// forgotten describes the end of c or of one of its sessions; mu is held.
func (c *Client) forgotten(session xdr.SessionID) Forgotten {
	f := Forgotten{Prefix: slotPrefix(c.ID, session), Loaded: c.loaded, Address: c.Address}
	for _, v := range c.volumes {
		f.Volumes = append(f.Volumes, v)
	}
	return f
}

// Changes remembers that c is about to change v. When c ends, Config.Forget gets v.
func (t *Table) Changes(c *Client, v volume.Volume) {
	id := v.ID()
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := c.volumes[id]; !ok {
		if c.volumes == nil {
			c.volumes = map[volume.ID]volume.Volume{}
		}
		c.volumes[id] = v
	}
}

// ClientInfo describes a client to administrators.
type ClientInfo struct {
	ID          uint64
	Address     string
	Owner       string // as the client names itself
	Confirmed   bool
	Sessions    int
	Slots       int // of all sessions
	Executing   int // requests, each in a slot
	Opens       int
	Locks       int
	Reclaiming  bool // the server restarted, and the client has not yet reclaimed everything
	LastRenewal time.Time
}

// Clients lists all clients.
func (t *Table) Clients() []ClientInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]ClientInfo, 0, len(t.clients))
	for _, c := range t.clients {
		info := ClientInfo{
			ID: c.ID, Address: c.Address, Owner: c.owner, Confirmed: c.confirmed, Sessions: len(c.sessions),
			Opens: len(c.opens), Reclaiming: c.mustReclaim && !c.complete, LastRenewal: c.renewed,
		}
		for _, s := range c.sessions {
			info.Slots += len(s.slots)
			info.Executing += s.executing()
		}
		for o := range c.opens {
			for _, l := range o.locks {
				info.Locks += len(l.held)
			}
		}
		out = append(out, info)
	}
	return out
}
