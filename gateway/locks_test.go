// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/gateway/locks"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/volume"
)

func exclusive(owner string, start, end uint64) volume.Lock {
	return volume.Lock{Owner: volume.LockOwner{Gateway: "nfs", Owner: owner}, Start: start, End: end, Exclusive: true}
}

// lock sets a lock once there is no grace period, and fails on any other error.
func lock(t *testing.T, r *routing.Router, h volume.Handle, l volume.Lock) {
	t.Helper()
	if err := tryLock(t, r, h, l); err != nil {
		t.Fatalf("lock at %s: %v", r.ID(), err)
	}
}

func tryLock(t *testing.T, r *routing.Router, h volume.Handle, l volume.Lock) error {
	t.Helper()
	ctx := within(t, hang)
	for {
		err := r.SetLock(ctx, volume.Request{}, h, l, false)
		if !errors.Is(err, volume.ErrGrace) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// locked fails unless another owner has a lock that conflicts with l, as seen from r.
func locked(t *testing.T, r *routing.Router, h volume.Handle, l volume.Lock) {
	t.Helper()
	if err := tryLock(t, r, h, l); !errors.Is(err, volume.ErrLocked) {
		t.Errorf("lock that is held elsewhere, asked for at %s: %v", r.ID(), err)
	}
}

func TestLocksOutliveTheirHome(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	a, b, cc := c.router("a", id), c.router("b", id), c.router("c", id)
	h := file(t, a, &client{name: "a"}, "f")
	lock(t, b, h, exclusive("o", 0, 9))
	lock(t, cc, h, exclusive("o", 10, 19))
	locked(t, cc, h, exclusive("o", 0, 19))
	c.stop("a")
	locked(t, cc, h, exclusive("o", 0, 0))
	locked(t, b, h, exclusive("o", 10, 10))
	if err := b.Unlock(within(t, hang), volume.Request{}, h, exclusive("o", 0, 9)); err != nil {
		t.Fatal(err)
	}
	lock(t, cc, h, exclusive("o", 0, 0))
}

// TestReclaimBeforeRegistration: a client reclaims at once after its gateway restarted, before the
// gateway has registered with the home, and while the home still waits for another gateway.
func TestReclaimBeforeRegistration(t *testing.T) {
	t.Parallel()
	for _, own := range []string{"a", "b"} { // the home and another
		t.Run(own, func(t *testing.T) {
			c := newCluster(t, "a", "b", "c")
			id := c.create("v", manifest("v", 2))
			h := file(t, c.router("a", id), &client{name: "a"}, "f")
			// A gateway that lives and does not register.
			c.with(func(reg federation.Registry) error {
				silent := federation.Gateway{Name: "gsilent", Addr: "127.0.0.1:1", NFSAddr: "127.0.0.1:2",
					Incarnation: "00000000000000000000000000000001"}
				site := federation.Site{Name: "c", Organization: "org-c", WrapKey: c.nodes["c"].key.Public(),
					Gateways: []federation.Gateway{silent}}
				return reg.Register(context.Background(), site)
			})
			silent := c.reg.Client(nil)
			t.Cleanup(func() { _ = silent.Close() })
			if _, err := silent.Heartbeat(context.Background(),
				federation.Alive{Gateway: "gsilent", Site: "c", Incarnation: "00000000000000000000000000000001"}, time.Second); err != nil {
				t.Fatal(err)
			}
			c.stop("a")
			if own == "b" {
				c.stop("b")
				c.start("b")
			}
			c.start("a")
			r := c.router(own, id)
			c.until("the silent gateway is heard of", func() error {
				for _, s := range c.order {
					if !locks.Uses(c.at(s).view, id, "gsilent") {
						return errors.New("not at " + s)
					}
				}
				return nil
			})
			ctx := within(t, hang)
			if err := r.SetLock(ctx, volume.Request{}, h, exclusive("o", 0, 9), true); err != nil {
				t.Fatalf("reclaim: %v", err)
			}
			if err := r.SetLock(ctx, volume.Request{}, h, exclusive("o", 10, 19), false); !errors.Is(err, volume.ErrGrace) {
				t.Fatalf("a new lock in grace: %v", err)
			}
			c.reg.Expire("gsilent")
			lock(t, r, h, exclusive("o", 10, 19))
			locked(t, c.router("c", id), h, exclusive("o", 0, 0))
		})
	}
}

// TestRegistrationWaitsForLocksUnderWay: a registration has all granted locks, or the home would
// drop a lock that is granted meanwhile.
func TestRegistrationWaitsForLocksUnderWay(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	a, b := c.router("a", id), c.router("b", id)
	h := file(t, a, &client{name: "a"}, "f")
	lock(t, b, h, exclusive("first", 0, 0)) // b is registered, and there is no grace
	l := atHome("gb", exclusive("o", 10, 19))
	atHome, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		var once bool
		done <- underRegistration(context.Background(), b, func(ctx context.Context, k forward.Locks) error {
			err := k.SetLock(ctx, volume.Request{}, h, l, false)
			if !once && err == nil {
				once = true
				close(atHome)
				<-goOn
			}
			return err
		}, func() { b.Locks.Granted(h, l) })
	}()
	select {
	case <-atHome:
	case err := <-done:
		t.Fatalf("lock: %v", err)
	}
	reg, _ := b.Locks.Current()
	b.Locks.Void(reg)
	soon, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := b.Locks.Register(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("register while a lock is being granted: %v", err)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := b.Locks.Register(within(t, hang)); err != nil {
		t.Fatal(err)
	}
	locked(t, a, h, exclusive("o", 15, 15))
}

// TestLateLockOperations: an operation that was given up and arrives late does nothing.
func TestLateLockOperations(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	a, b := c.router("a", id), c.router("b", id)
	h := file(t, a, &client{name: "a"}, "f")
	lock(t, b, h, exclusive("o", 0, 9))
	ctx := within(t, hang)
	old, _ := b.Locks.Current()
	at := func(reg forward.Registration) forward.Locks { return a.Copy().Locks.Session("gb", reg, true) }
	late := atHome("gb", exclusive("late", 20, 29))

	// The first attempt's outcome is not known, so b tries again, and then unlocks.
	tries := 0
	err := underRegistration(ctx, b, func(ctx context.Context, k forward.Locks) error {
		if tries++; tries == 1 {
			return volume.ErrUnknown
		}
		return k.SetLock(ctx, volume.Request{}, h, late, false)
	}, func() { b.Locks.Granted(h, late) })
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Unlock(ctx, volume.Request{}, h, exclusive("late", 20, 29)); err != nil {
		t.Fatal(err)
	}
	if err := at(old).SetLock(ctx, volume.Request{}, h, late, false); !errors.Is(err, forward.ErrRegister) {
		t.Errorf("the first attempt, late: %v", err)
	}
	if err := at(old).Unlock(ctx, volume.Request{}, h, atHome("gb", exclusive("o", 0, 9))); !errors.Is(err, forward.ErrRegister) {
		t.Errorf("an unlock, late: %v", err)
	}
	if _, err := at(old).Register(ctx, false, nil); !errors.Is(err, volume.ErrDelay) {
		t.Errorf("a registration, late: %v", err)
	}
	lock(t, a, h, exclusive("a", 20, 29))
	locked(t, a, h, exclusive("a", 0, 9))

	// No gateway can ask in another's name.
	now, _ := b.Locks.Current()
	stolen := volume.Lock{Owner: volume.LockOwner{Gateway: "gc", Owner: "x"}, Start: 30, End: 39, Exclusive: true}
	if err := at(now).SetLock(ctx, volume.Request{}, h, stolen, false); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("lock in the name of another gateway: %v", err)
	}
}

// TestLocksOfAGatewayThatIsGone: its locks are granted to others. If the gateway was only cut off
// from the registry, it learns of the loss and does not get the locks back.
func TestLocksOfAGatewayThatIsGone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	a, b, cc := c.router("a", id), c.router("b", id), c.router("c", id)
	h := file(t, a, &client{name: "a"}, "f")
	lock(t, b, h, exclusive("o", 0, 9))
	lock(t, b, h, exclusive("kept", 20, 29))
	locked(t, cc, h, exclusive("o", 0, 9))
	c.reg.Expire("gb")
	c.until("c gets the lock", func() error { return tryLock(t, cc, h, exclusive("o", 0, 9)) })
	// A reclaim waits for the heartbeat: after NFS4ERR_GRACE, Linux would take the lock for
	// lost.
	reclaimed := make(chan error, 1)
	go func() { reclaimed <- b.SetLock(within(t, hang), volume.Request{}, h, exclusive("o", 60, 69), true) }()
	if err := b.SetLock(within(t, hang), volume.Request{}, h, exclusive("o", 40, 49), false); !errors.Is(err, volume.ErrGrace) {
		t.Errorf("a new lock for a gateway that is taken to be gone: %v", err)
	}
	back := c.reg.Client(nil)
	t.Cleanup(func() { _ = back.Close() })
	if _, err := back.Heartbeat(context.Background(),
		federation.Alive{Gateway: "gb", Site: "b", Incarnation: c.at("b").self.Incarnation}, time.Second); err != nil {
		t.Fatal(err)
	}
	if err := <-reclaimed; err != nil {
		t.Errorf("reclaim of a lock at a gateway whose heartbeat is missed: %v", err)
	}
	c.until("b knows what it has lost, and the home that it is back", func() error {
		if held := b.Locks.Held(); len(held) != 2 || held[0].Lock.Start+held[1].Lock.Start != 20+60 {
			return errors.New("it does not")
		}
		if c.at("a").view.Gone("gb") {
			return errors.New("the home has not heard of it")
		}
		return nil
	})
	if err := cc.Unlock(within(t, hang), volume.Request{}, h, exclusive("o", 0, 9)); err != nil {
		t.Fatal(err)
	}
	lock(t, a, h, exclusive("o", 0, 9))
	locked(t, a, h, exclusive("o", 20, 29))
	lock(t, b, h, exclusive("o", 40, 49))
}

// TestLockThatOthersHadMeanwhile: a lock that others got while a gateway was believed to be gone is
// lost to its clients, even if the others have released it.
func TestLockThatOthersHadMeanwhile(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"lives", "restarted", "did not hear the answer", "gone again while it recovers"} {
		t.Run(how, func(t *testing.T) {
			c := newCluster(t, "a", "b", "c")
			id := c.create("v", manifest("v", 2))
			a, b, cc := c.router("a", id), c.router("b", id), c.router("c", id)
			h := file(t, a, &client{name: "a"}, "f")
			ctx := within(t, hang)
			had := func(l volume.Lock) { // c has it for a while
				c.until("c gets the lock", func() error { return tryLock(t, cc, h, l) })
				if err := cc.Unlock(ctx, volume.Request{}, h, l); err != nil {
					t.Fatal(err)
				}
			}
			back := c.reg.Client(nil)
			t.Cleanup(func() { _ = back.Close() })
			returns := func() {
				if _, err := back.Heartbeat(ctx, federation.Alive{Gateway: "gb", Site: "b",
					Incarnation: c.at("b").self.Incarnation}, time.Second); err != nil {
					t.Fatal(err)
				}
				c.until("the home hears of b", func() error {
					if c.at("a").view.Gone("gb") {
						return errors.New("it does not")
					}
					return nil
				})
			}
			taken, kept := exclusive("o", 0, 9), exclusive("kept", 20, 29)
			lock(t, b, h, taken)
			lock(t, b, h, kept)
			c.reg.Expire("gb")
			had(exclusive("o", 5, 14))
			anew, _ := b.Locks.Current()
			anew.Number += 1000
			at := func() locks.Session { return a.Copy().Locks.Session("gb", anew, true) }
			ask := func(l volume.Lock, reclaim bool) error {
				return at().SetLock(ctx, volume.Request{}, h, atHome("gb", l), reclaim)
			}
			register := func(recovering bool, want []volume.Lock, held ...volume.Lock) {
				t.Helper()
				var all []forward.HeldLock
				for _, l := range held {
					all = append(all, forward.HeldLock{Handle: h, Lock: atHome("gb", l)})
				}
				anew.Number++
				lost, err := at().Register(ctx, recovering, all)
				var got []volume.Lock
				for _, l := range lost {
					got = append(got, l.Lock)
				}
				for i := range want {
					want[i] = atHome("gb", want[i])
				}
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("registration of %v: lost %v, %v; want %v", held, got, err, want)
				}
			}
			reclaim := func(l volume.Lock, want error) {
				t.Helper()
				if err := ask(l, true); !errors.Is(err, want) {
					t.Errorf("reclaim of %v: %v, want %v", l, err, want)
				}
			}
			switch how {
			case "lives":
				returns()
				c.until("b knows what it has lost", func() error {
					if held := b.Locks.Held(); len(held) != 1 || held[0].Lock.Start != 20 {
						return fmt.Errorf("it holds %v", held)
					}
					return nil
				})
				lock(t, a, h, taken)
			case "restarted":
				register(true, nil)
				returns()
				reclaim(taken, volume.ErrNoGrace)
				reclaim(kept, nil)
				register(false, []volume.Lock{exclusive("o", 9, 9)}, kept, exclusive("o", 9, 9))
				reclaim(taken, volume.ErrNoGrace) // another reclaim comes late, too
			case "did not hear the answer":
				returns()
				register(false, []volume.Lock{taken}, taken, kept)
				register(false, []volume.Lock{taken}, taken, kept)
				had(exclusive("n", 40, 49))
				if err := ask(exclusive("n", 40, 49), false); err != nil { // now it has
					t.Error(err)
				}
				register(false, nil, kept, exclusive("n", 40, 49))
			case "gone again while it recovers":
				register(true, nil)
				returns()
				reclaim(kept, nil)
				c.reg.Expire("gb")
				had(kept)
				register(true, nil)
				returns()
				reclaim(taken, volume.ErrNoGrace)
				reclaim(kept, volume.ErrNoGrace)
			}
		})
	}
}

// TestClientIsToldOfALostLock: the client does not go on writing under the lock.
func TestClientIsToldOfALostLock(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	a, b := c.router("a", id), c.router("b", id)
	h := file(t, a, &client{name: "a"}, "f")
	ctx := within(t, hang)
	nfs, f := c.locking(ctx, "b", id)
	c.reg.Expire("gb")
	c.until("a gets the lock", func() error { return tryLock(t, a, h, exclusive("o", 0, 9)) })
	back := c.reg.Client(nil)
	t.Cleanup(func() { _ = back.Close() })
	if _, err := back.Heartbeat(ctx, federation.Alive{Gateway: "gb", Site: "b", Incarnation: c.at("b").self.Incarnation},
		time.Second); err != nil {
		t.Fatal(err)
	}
	id4, ok := f.LockStateid("o")
	if !ok {
		t.Fatal("the client has no lock")
	}
	c.until("the client can not write under its lock any more", func() error {
		if _, err := nfs.Write(ctx, f.FH(), id4, []byte("x"), 0, xdr.FILE_SYNC4); !errors.Is(err, xdr.NFS4ERR_ADMIN_REVOKED) {
			return errors.Join(errors.New("it writes"), err)
		}
		return nil
	})
	if flags, err := nfs.Renew(ctx); err != nil || flags != 0 { // Linux would take all its locks for lost
		t.Errorf("flags %#x, %v", flags, err)
	}
	locked(t, b, h, exclusive("other", 0, 9))
	if err := f.Close(ctx); err != nil {
		t.Errorf("its open: %v", err)
	}
}

// TestLocksOfASiteThatIsNotAdmittedAnyMore: the home releases them when their gateway has to
// register anew. It asks the registry first.
func TestLocksOfASiteThatIsNotAdmittedAnyMore(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	c.stop("a")
	c.late = new(sync.Mutex)
	c.start("a")
	id := c.createAt("v", manifest("v", 1), []string{"a"})
	a := c.router("a", id)
	h := file(t, a, &client{name: "a"}, "f")
	c.admit("b", id)
	b := c.router("b", id)
	lock(t, b, h, exclusive("o", 0, 9))
	lock(t, b, h, exclusive("other", 20, 29))
	spoil := func() {
		reg, _ := b.Locks.Current()
		b.Locks.Void(reg)
	}
	put := func(admitted bool) {
		c.with(func(reg federation.Registry) error {
			if admitted {
				return reg.PutAdmission(context.Background(),
					federation.Admission{Volume: id, Site: "b", Client: "127.0.0.1", Access: federation.ReadWrite})
			}
			return reg.DeleteAdmission(context.Background(), id, "b", "127.0.0.1")
		})
	}
	hears := func(admitted bool, sites ...string) {
		c.until("the admission or its end is heard of", func() error {
			for _, s := range sites {
				if c.at(s).view.MayUse(id, "b") != admitted {
					return errors.New("not yet at " + s)
				}
			}
			return nil
		})
	}

	// The home's watch is late with an admission that was removed and added again.
	put(false)
	hears(false, "a", "b")
	c.late.Lock()
	put(true)
	hears(true, "b")
	spoil()
	if err := b.Locks.Register(within(t, hang)); !errors.Is(err, volume.ErrDelay) {
		t.Errorf("register with a home that has not heard of the admission: %v", err)
	}
	c.late.Unlock()
	hears(true, "a")
	if err := b.Locks.Register(within(t, hang)); err != nil {
		t.Fatal(err)
	}
	locked(t, a, h, exclusive("o", 0, 0))
	locked(t, a, h, exclusive("o", 29, 29))

	put(false)
	hears(false, "a", "b")
	spoil()
	if err := b.Unlock(within(t, hang), volume.Request{}, h, exclusive("o", 0, 9)); err != nil {
		t.Errorf("unlock: %v", err)
	}
	if held := b.Locks.Held(); len(held) != 0 {
		t.Errorf("b takes %v to be held", held)
	}
	lock(t, a, h, exclusive("o", 0, 29))
}
