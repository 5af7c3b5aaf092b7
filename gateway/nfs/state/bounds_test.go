// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/state/statetest"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// newClient returns a client with a session that may open files.
func newClient(t *testing.T, tab *Table, owner string) *Client {
	t.Helper()
	x, st := tab.ExchangeID(ExchangeArgs{Owner: owner})
	if st != xdr.NFS4_OK {
		t.Fatal(st)
	}
	s, st := tab.CreateSession(CreateArgs{ClientID: x.ClientID, Sequence: x.Sequence, Fore: xdr.ChannelAttrs{MaxRequests: 1}})
	if st != xdr.NFS4_OK {
		t.Fatal(st)
	}
	c := tab.Session(s.Session).Client
	if st := tab.ReclaimComplete(c, false); st != xdr.NFS4_OK {
		t.Fatal(st)
	}
	return c
}

func TestStateOfOneClientIsBounded(t *testing.T) {
	tab, err := New(config(&statetest.Store{}))
	if err != nil {
		t.Fatal(err)
	}
	vol := memvol.New(volume.ID{1})
	a, err := vol.Create(t.Context(), volume.Request{}, volume.Root, "f", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	if err != nil {
		t.Fatal(err)
	}
	key := FileKey{vol.ID(), a.Attr.Handle}
	c, other := newClient(t, tab, "a"), newClient(t, tab, "b")
	open := func(c *Client, owner string) (xdr.Stateid, xdr.Status) {
		return tab.Open(OpenArgs{Client: c, Owner: owner, Volume: vol, Handle: key.Handle, Access: 3})
	}
	if _, st := open(c, "o"); st != xdr.NFS4_OK {
		t.Fatal(st)
	}
	c.lockStates = maxStates - 1
	if _, st := open(c, "p"); st != xdr.NFS4ERR_NOSPC {
		t.Errorf("a further open: %v", st)
	}
	id, st := open(c, "o")
	if st != xdr.NFS4_OK {
		t.Errorf("the same open again: %v", st)
	}
	if _, st := open(other, "p"); st != xdr.NFS4_OK {
		t.Errorf("another client: %v", st)
	}
	u, st := tab.BeginLock(c, id, key, "l", volume.LockOwner{Owner: "l"})
	if st != xdr.NFS4_OK {
		t.Fatal(st)
	}
	if st := u.Permits(true, false); st != xdr.NFS4ERR_SERVERFAULT {
		t.Errorf("a further lock-owner: %v", st)
	}
	c.lockStates = 0
	c.ranges = maxRanges
	if st := u.Permits(true, false); st != xdr.NFS4ERR_SERVERFAULT {
		t.Errorf("a further range: %v", st)
	}
	u.Done()
	for i := range maxSessions - 1 {
		if _, st := tab.CreateSession(CreateArgs{ClientID: c.ID, Sequence: c.createSeq,
			Fore: xdr.ChannelAttrs{MaxRequests: 1}}); st != xdr.NFS4_OK {
			t.Fatalf("session %d: %v", i, st)
		}
	}
	if _, st := tab.CreateSession(CreateArgs{ClientID: c.ID, Sequence: c.createSeq,
		Fore: xdr.ChannelAttrs{MaxRequests: 1}}); st != xdr.NFS4ERR_NOSPC {
		t.Errorf("a further session: %v", st)
	}
}

// TestManyRestarts has a client do what Linux does at each restart: it uses its newest
// session, learns of the restart, makes another session and destroys none. At every
// third start it does not come; at every fifth it makes a session without using an
// old one.
func TestManyRestarts(t *testing.T) {
	var store statetest.Store
	var made []xdr.SessionID
	for boot := 1; boot < 3*maxSessions; boot++ {
		cfg := config(&store)
		cfg.Boot = uint64(boot)
		tab, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range made {
			if there := tab.Session(id) != nil; there != (len(made)-i <= maxSessions) {
				t.Fatalf("boot %d: session %d of %d is there: %t", boot, i, len(made), there)
			}
		}
		if boot%3 == 0 {
			continue
		}
		if len(made) > 0 && boot%5 != 0 {
			use, _, st := tab.Begin(made[len(made)-1], "a", 0, 1, 0, 0)
			if st != xdr.NFS4_OK {
				t.Fatalf("boot %d: the session that the client had: %v", boot, st)
			}
			use.Answer(nil)
		}
		x, st := tab.ExchangeID(ExchangeArgs{Owner: "a"})
		if st != xdr.NFS4_OK {
			t.Fatal(st)
		}
		args := CreateArgs{ClientID: x.ClientID, Sequence: x.Sequence, Fore: xdr.ChannelAttrs{MaxRequests: 1}}
		created, st := tab.CreateSession(args)
		if st != xdr.NFS4_OK {
			t.Fatalf("boot %d: a new session: %v", boot, st)
		}
		if again, st := tab.CreateSession(args); st != xdr.NFS4_OK || again != created {
			t.Errorf("boot %d: the same again: %v, %v", boot, again, st)
		}
		made = append(made, created.Session)
		c := tab.Session(created.Session).Client
		if st := tab.ReclaimComplete(c, false); st != xdr.NFS4_OK {
			t.Fatal(st)
		}
		if st := tab.ensureHasState(c); st != xdr.NFS4_OK {
			t.Fatal(st)
		}
	}
}

// TestRoomForASession has a client with the most sessions it may have, of which all
// but one are in use.
func TestRoomForASession(t *testing.T) {
	now := time.Unix(1, 0)
	var store statetest.Store
	cfg := config(&store)
	cfg.Now = func() time.Time { return now }
	var forgotten []string
	cfg.Forget = func(f Forgotten) { forgotten = append(forgotten, f.Prefix) }
	tab, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, tab, "a")
	create := func() (Created, xdr.Status) {
		return tab.CreateSession(CreateArgs{ClientID: c.ID, Sequence: c.createSeq, Fore: xdr.ChannelAttrs{MaxRequests: 1}})
	}
	old, running := c.lastCreated.Session, xdr.SessionID{}
	for range maxSessions - 1 {
		running = c.lastCreated.Session
		if _, st := create(); st != xdr.NFS4_OK {
			t.Fatal(st)
		}
	}
	if _, st := create(); st != xdr.NFS4ERR_NOSPC {
		t.Errorf("all sessions are new: %v", st)
	}
	use, _, st := tab.Begin(old, "a", 0, 1, 0, 0)
	if st != xdr.NFS4_OK {
		t.Fatal(st)
	}
	use2, _, st := tab.Begin(running, "a", 0, 1, 0, 0)
	if st != xdr.NFS4_OK {
		t.Fatal(st)
	}
	now = now.Add(cfg.Lease + 1)
	for id := range c.sessions {
		if id == old || id == running {
			continue
		}
		if use, _, st := tab.Begin(id, "a", 0, 1, 0, 0); st != xdr.NFS4_OK {
			t.Fatal(st)
		} else {
			use.Answer(nil)
		}
	}
	if _, st := create(); st != xdr.NFS4ERR_NOSPC {
		t.Errorf("requests run in all sessions that were not used for a lease: %v", st)
	}
	use.Answer(nil)
	store.Fail = errors.New("full")
	if _, st := create(); st != xdr.NFS4ERR_DELAY || tab.Session(old) == nil {
		t.Errorf("the record cannot be saved: %v", st)
	}
	store.Fail = nil
	made, st := create()
	if st != xdr.NFS4_OK || tab.Session(old) != nil || tab.Session(running) == nil || tab.Session(made.Session) == nil {
		t.Errorf("one session was not used for a lease: %v", st)
	}
	if want := slotPrefix(c.ID, old); len(forgotten) != 1 || forgotten[0] != want {
		t.Errorf("forgotten %q, want %q", forgotten, want)
	}
	use2.Answer(nil)
}

// TestCountsComeBackToZero opens, locks, revokes, frees, downgrades and closes. Then
// all counters must be zero.
func TestCountsComeBackToZero(t *testing.T) {
	tab, err := New(config(&statetest.Store{}))
	if err != nil {
		t.Fatal(err)
	}
	vol := memvol.New(volume.ID{1})
	a, err := vol.Create(t.Context(), volume.Request{}, volume.Root, "f", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	if err != nil {
		t.Fatal(err)
	}
	key := FileKey{vol.ID(), a.Attr.Handle}
	c := newClient(t, tab, "a")
	must := func(st xdr.Status) {
		t.Helper()
		if st != xdr.NFS4_OK {
			t.Fatal(st)
		}
	}
	give := func(e Ended) {
		for _, o := range e.Owners {
			tab.Released(key, o)
		}
	}
	for round := range 3 {
		_, st := tab.Open(OpenArgs{Client: c, Owner: "o", Volume: vol, Handle: key.Handle, Access: 1})
		must(st)
		id, st := tab.Open(OpenArgs{Client: c, Owner: "o", Volume: vol, Handle: key.Handle, Access: 3, Deny: 2})
		must(st)
		for _, name := range []string{"closed", "freed", "revoked"} {
			u, st := tab.BeginLock(c, id, key, name, volume.LockOwner{Owner: name})
			must(st)
			lock, st, _ := u.Granted(0, 100, false)
			must(st)
			u.Done()
			u, st = tab.BeginRelock(c, lock, key)
			must(st)
			lock = u.Released(10, 20)
			u.Done()
			if name == "freed" {
				u, st = tab.BeginRelock(c, lock, key)
				must(st)
				lock = u.Released(0, ^uint64(0))
				u.Done()
				must(tab.Free(c, lock))
			}
		}
		if c.ranges != 4 || c.lockStates != 2 || tab.files[key].denies != 1 {
			t.Fatalf("%d ranges, %d lock stateids, %d denies", c.ranges, c.lockStates, tab.files[key].denies)
		}
		e, ok := tab.RevokeLocks(key, volume.LockOwner{Owner: "revoked"})
		if !ok || len(tab.releasing) != 1 || c.admin != 1 {
			t.Fatalf("%v %v, %d", ok, tab.releasing, c.admin)
		}
		give(e)
		if round == 1 {
			id, st = tab.Downgrade(c, id, key, 1, 0)
			must(st)
			if tab.files[key].denies != 0 {
				t.Fatal("a downgraded open denies")
			}
		}
		if round == 2 {
			tab.mu.Lock()
			ended := tab.endAll(c, xdr.NFS4ERR_EXPIRED)
			tab.mu.Unlock()
			for _, e := range ended {
				give(e)
			}
		} else {
			e, st = tab.Close(c, id, key)
			must(st)
			give(e)
		}
		states, _ := tab.Room()
		if s := fmt.Sprint(c.ranges, c.lockStates, c.admin, len(c.opens), len(tab.releasing), len(tab.files),
			len(tab.stateids), states.Used); s != "0 0 0 0 0 0 0 0" {
			t.Fatalf("round %d leaves %s", round, s)
		}
	}
}

// TestStatesOfAllAreBounded: opens and locks of all clients together are within the bound, an
// address gets its share of it, and what ends makes room.
func TestStatesOfAllAreBounded(t *testing.T) {
	cfg := config(&statetest.Store{})
	cfg.States = 100 * openTakes
	tab, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	vol := memvol.New(volume.ID{1})
	a, err := vol.Create(t.Context(), volume.Request{}, volume.Root, "f", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	if err != nil {
		t.Fatal(err)
	}
	key := FileKey{vol.ID(), a.Attr.Handle}
	fill := func(address string) (ids []xdr.Stateid, c *Client) {
		c = newClient(t, tab, address)
		c.Address = address
		for i := range 1000 {
			id, st := tab.Open(OpenArgs{Client: c, Owner: fmt.Sprint(i), Volume: vol, Handle: key.Handle, Access: 3})
			if st != xdr.NFS4_OK {
				if st != xdr.NFS4ERR_NOSPC {
					t.Fatal(st)
				}
				break
			}
			ids = append(ids, id)
		}
		return ids, c
	}
	first, one := fill("10.0.0.1")
	second, _ := fill("10.0.0.2")
	if len(first) < 60 || len(first) > 67 || len(second) < 15 || len(first)+len(second) > 100 {
		t.Errorf("one address has %d opens, the next one %d", len(first), len(second))
	}
	u, st := tab.BeginLock(one, first[0], key, "l", volume.LockOwner{Owner: "l"})
	if st != xdr.NFS4_OK {
		t.Fatal(st)
	}
	if st := u.Permits(true, false); st != xdr.NFS4ERR_SERVERFAULT {
		t.Errorf("a lock of who has its share: %v", st)
	}
	if st := u.Permits(true, true); st != xdr.NFS4_OK {
		t.Errorf("the same, if it had the lock before a restart: %v", st)
	}
	u.Done()
	if n := tab.Refused()[BoundStates]; n != 3 {
		t.Errorf("%d refusals are counted, want 3", n)
	}
	for _, id := range first {
		if _, st := tab.Close(one, id, key); st != xdr.NFS4_OK {
			t.Fatal(st)
		}
	}
	if third, _ := fill("10.0.0.3"); len(third) < 30 {
		t.Errorf("when others closed, an address gets %d opens", len(third))
	}
}

// TestSilentClientsGiveWay: an address whose clients went silent gets another one. The oldest that
// holds nothing gives way, and no other one does.
func TestSilentClientsGiveWay(t *testing.T) {
	now := time.Unix(1000, 0)
	var store statetest.Store
	cfg := config(&store)
	cfg.Now = func() time.Time { return now }
	tab, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	vol := memvol.New(volume.ID{1})
	a, err := vol.Create(t.Context(), volume.Request{}, volume.Root, "f", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	if err != nil {
		t.Fatal(err)
	}
	oldest := newClient(t, tab, "oldest")
	if _, st := tab.Open(OpenArgs{Client: oldest, Owner: "o", Volume: vol, Handle: a.Attr.Handle, Access: 3}); st != xdr.NFS4_OK {
		t.Fatal(st)
	}
	var all []*Client
	for i := range maxClients - 1 {
		now = now.Add(time.Millisecond)
		all = append(all, newClient(t, tab, fmt.Sprint(i)))
	}
	if _, st := tab.ExchangeID(ExchangeArgs{Owner: "more"}); st != xdr.NFS4ERR_DELAY {
		t.Fatalf("one more, while all have a lease: %v", st)
	}
	if n := tab.Refused()[BoundClients]; n != 1 {
		t.Errorf("%d refusals are counted", n)
	}
	now = now.Add(cfg.Lease + time.Second)
	for i := range 2 * maxClients {
		now = now.Add(time.Millisecond)
		more := newClient(t, tab, fmt.Sprint("more", i))
		if i == 0 && (!all[0].gone || all[1].gone) {
			t.Error("another one than the oldest gave way")
		}
		if more.gone {
			t.Fatal("the new one is gone")
		}
		if i == maxClients-2 {
			break // the next one to give way has a lease
		}
	}
	if oldest.gone {
		t.Error("one that has something open gave way")
	}
	if n := len(tab.clients); n > maxClients {
		t.Errorf("%d clients", n)
	}
	if _, st := tab.ExchangeID(ExchangeArgs{Owner: "last"}); st != xdr.NFS4ERR_DELAY {
		t.Errorf("one more, while all others are new: %v", st)
	}
}

// TestSlotsOfAllAreBounded: the more slots all have, the fewer a new session gets. Who asks for
// more than there are waits, and silent clients give way to it.
func TestSlotsOfAllAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	cfg := config(&statetest.Store{})
	cfg.Now = func() time.Time { return now }
	cfg.Sessions = 1000 * slotTakes
	tab, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	session := func(i int) (slots uint32, st xdr.Status) {
		address := fmt.Sprint("10.0.0.", i)
		x, st := tab.ExchangeID(ExchangeArgs{Owner: "c", Address: address})
		if st != xdr.NFS4_OK {
			t.Fatal(st)
		}
		c, st := tab.CreateSession(CreateArgs{ClientID: x.ClientID, Sequence: x.Sequence, Address: address,
			Fore: xdr.ChannelAttrs{MaxRequests: 64}})
		return c.Fore.MaxRequests, st
	}
	total, last := uint32(0), uint32(64)
	for i := range 1000 {
		n, st := session(i)
		if st == xdr.NFS4ERR_DELAY {
			break
		}
		if st != xdr.NFS4_OK || n > last || n < fewSlots {
			t.Fatalf("session %d has %d slots: %v", i, n, st)
		}
		last = n
		total += n
	}
	if total > 1000 || total < 900 || last > 16 || tab.Refused()[BoundSessions] != 1 {
		t.Errorf("%d slots in all, %d of the last session, %v", total, last, tab.Refused())
	}
	now = now.Add(cfg.Lease + time.Second)
	tab.Sweep()
	if n, st := session(2000); n != 64 {
		t.Errorf("when the others are silent: %d, %v", n, st)
	}
	if _, sessions := tab.Room(); sessions.Used != 64*slotTakes {
		t.Errorf("%+v", sessions)
	}
}
