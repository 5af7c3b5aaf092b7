// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/locks"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// TestChangesUnderWay: a registration ends the changes under earlier registrations, and a reign
// those of earlier reigns.
func TestChangesUnderWay(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.create("v", manifest("v", 1))
	l := c.router("a", id).Copy().Locks
	b := c.router("b", id)
	ctx := within(t, hang)
	file(t, b, &client{name: "b"}, "f") // so that it is registered
	reg, _ := b.Locks.Current()
	at := func(n uint64) locks.Session {
		return l.Session("gb", forward.Registration{Incarnation: reg.Incarnation, Number: reg.Number + n}, true)
	}
	register := func(n uint64) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := at(n).Register(ctx, false, nil)
			done <- err
		}()
		return done
	}
	enter := func(n uint64, want error) (context.Context, func()) {
		t.Helper()
		ctx, leave, err := at(n).Enter(ctx)
		if !errors.Is(err, want) {
			t.Fatalf("a change of registration %d: %v, want %v", n, err, want)
		}
		return ctx, leave
	}
	under := func(done chan error) {
		t.Helper()
		select {
		case err := <-done:
			t.Fatalf("it ends with %v while a change of before runs", err)
		case <-time.After(50 * time.Millisecond): // in which it would end, if it did not wait
		}
	}

	enter(1, forward.ErrRegister)
	if err := <-register(1); err != nil {
		t.Fatal(err)
	}
	enter(0, forward.ErrRegister)
	running, leave := enter(1, nil)
	second := register(2)
	<-running.Done()
	enter(1, forward.ErrRegister)
	under(second)
	leave()
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	if err := <-register(1); !errors.Is(err, volume.ErrDelay) {
		t.Errorf("a registration that is late: %v", err)
	}
	zombie := l.Session("gb", forward.Registration{Incarnation: "of a pool that was lost", Number: 1 << 60}, true)
	if _, err := zombie.Register(ctx, false, nil); !errors.Is(err, volume.ErrDelay) {
		t.Errorf("a registration of another process of the name: %v", err)
	}

	running, leave = enter(2, nil)
	reign, _ := c.at("a").copies.Copy(id).Leading()
	begun := make(chan error, 1)
	go func() { begun <- l.Begin(ctx, reign) }()
	<-running.Done()
	enter(2, journal.ErrNotHome)
	if err := <-register(3); !errors.Is(err, journal.ErrNotHome) {
		t.Errorf("a registration between reigns: %v", err)
	}
	under(begun)
	leave()
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	enter(2, forward.ErrRegister)
}

// TestChangesOfAnOlderProgram: a gateway whose program does not register changes is served, until
// its program is the new one.
func TestChangesOfAnOlderProgram(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.create("v", manifest("v", 1))
	ctx := within(t, hang)
	b, cl := c.router("b", id), &client{name: "b"}
	h := file(t, b, cl, "f")
	reg, _ := b.Locks.Current()
	home, err := c.at("b").peers.Forward("ga")
	if err != nil {
		t.Fatal(err)
	}
	call := func(q *forwardpb.CallRequest) uint32 {
		t.Helper()
		q.Volume = id
		reply, err := home.Call(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetOutcome()
	}
	write := func() uint32 {
		return call(&forwardpb.CallRequest{Method: forwardpb.Method_METHOD_WRITE, Handle: &forwardpb.Handle{Ino: h.Ino, Gen: h.Gen},
			Data: []byte("old!"), Flag: true})
	}
	// After another outcome, an older program that believes to be registered would repeat at once.
	delay := forward.Refused(volume.ErrDelay).GetOutcome()
	if n := write(); n != delay {
		t.Errorf("a change without a registration: outcome %d, want %d", n, delay)
	}
	if n := call(&forwardpb.CallRequest{Method: forwardpb.Method_METHOD_REGISTER_LOCKS, Incarnation: reg.Incarnation,
		Registration: reg.Number + 1}); n != 0 {
		t.Fatalf("register: outcome %d", n)
	}
	if n := write(); n != 0 {
		t.Errorf("a change of an older program: outcome %d", n)
	}
	if _, err := b.Write(ctx, cl.next(), h, 0, content, true); err != nil {
		t.Fatal(err)
	}
	if n := write(); n != delay {
		t.Errorf("a change without a registration, after the newer program has begun: outcome %d, want %d", n, delay)
	}
	readable(t, c.router("a", id), h)
}
