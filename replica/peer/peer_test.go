// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/protocol"
)

func TestCarries(t *testing.T) {
	r := newRig(t)
	in := newInbox()
	addr, _ := r.serve("b", &Server{Caller: caller, Deliver: in.deliver})
	a := r.transport("org-a", addr)
	whole := replica.Envelope{Volume: "v", Proof: []byte("proof"), Message: protocol.Message{
		Kind: protocol.Hello, From: protocol.Member{Gateway: "a", Site: "s", Incarnation: "i"}, Epoch: 3, Stamp: 4, Echo: 5,
		Epochs: []log.EpochStart{{Epoch: 1}, {Epoch: 3, Salt: [32]byte{1, 31: 9}, Start: protocol.Position{Seq: 6, Off: 7}}},
		Start:  protocol.Position{Seq: 8, Off: 9}, End: protocol.Position{Seq: 10, Off: 11},
		Commit: protocol.Position{Seq: 12, Off: 13}, Grant: 14 * time.Second, Current: true, Reads: 15}}
	a.Send("b", whole)
	in.stamps(t, protocol.Hello, 1)
	if !reflect.DeepEqual(in.all[0], whole) {
		t.Fatalf("sent %+v\ncame %+v", whole, in.all[0])
	}
	for i := range 100 {
		a.Send("b", message(i))
		a.send(r, batch(i, 1000))
	}
	if s := in.stamps(t, protocol.Beat, 100); !ascend(s) || len(s) != 100 {
		t.Fatalf("messages came as %v", s)
	}
	if s := in.stamps(t, protocol.Append, 100); !ascend(s) || len(s) != 100 {
		t.Fatalf("frames came as %v", s)
	}
}

// A caller without a certificate of the right organization, or with another gateway's messages, is
// refused with an error.
func TestStrangersAreRefused(t *testing.T) {
	for name, send := range map[string]struct {
		organization string
		from         string
	}{"other organization": {"org-b", "a"}, "other gateway": {"org-a", "c"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			in := newInbox()
			addr, _ := r.serve("b", &Server{Caller: caller, Deliver: in.deliver})
			a := r.transport(send.organization, addr)
			m := message(1)
			m.Message.From.Gateway = send.from
			a.Send("b", m)
			if g := wait(t, "report", a.down); g != "b" {
				t.Fatalf("%s is down", g)
			}
			m.Message.Kind, m.Frames = protocol.Append, []byte{1}
			_ = a.SendFrames(context.Background(), "b", m) // taken by the connection, or not
			wait(t, "report of the frames", a.down)
			if len(in.all) > 0 {
				t.Fatalf("delivered: %+v", in.all)
			}
		})
	}
}

// The receiver must be the gateway that is called. Nothing is sent if its address now belongs to
// another gateway.
func TestAnotherGatewayAnswers(t *testing.T) {
	r := newRig(t)
	in := newInbox()
	addr, _ := r.serve("c", &Server{Caller: caller, Deliver: in.deliver})
	a := r.transport("org-a", addr)
	a.Send("b", message(1))
	wait(t, "report", a.down)
	if err := a.SendFrames(context.Background(), "b", batch(1, 10)); err == nil || len(in.all) > 0 {
		t.Fatalf("%v, delivered %v", err, in.all)
	}
}

// Only the sender can notice that frames were lost with their connection, and it may have nothing
// more to send for a long time. The break is reported all the same, once for each lane.
func TestBreakWithoutTraffic(t *testing.T) {
	r := newRig(t)
	in := newInbox()
	addr, _ := r.serve("b", &Server{Caller: caller, Deliver: in.deliver})
	x := r.relay(addr)
	a := r.transport("org-a", x.addr())
	a.send(r, batch(1, 10))
	in.stamps(t, protocol.Append, 1)
	x.cut()
	wait(t, "report", a.down)
	a.send(r, batch(2, 10))
	a.Send("b", message(3))
	in.stamps(t, protocol.Append, 2)
	in.stamps(t, protocol.Beat, 1)
	x.cut()
	wait(t, "report of one lane", a.down)
	wait(t, "report of the other", a.down)
}

// Each new connection goes to where the gateway is by then, frames too.
func TestGatewayMoves(t *testing.T) {
	r := newRig(t)
	first, second := newInbox(), newInbox()
	addr, stop := r.serve("b", &Server{Caller: caller, Deliver: first.deliver})
	a := r.transport("org-a", addr)
	a.send(r, batch(1, 10))
	a.Send("b", message(1))
	first.stamps(t, protocol.Append, 1)
	first.stamps(t, protocol.Beat, 1)
	addr, _ = r.serve("b", &Server{Caller: caller, Deliver: second.deliver})
	a.to(addr)
	stop()
	wait(t, "report", a.down)
	wait(t, "report", a.down)
	a.send(r, batch(2, 10))
	a.Send("b", message(2))
	second.stamps(t, protocol.Append, 1)
	second.stamps(t, protocol.Beat, 1)
}

// A receiver that takes no frames slows the sender of frames, and nobody else.
func TestBackpressure(t *testing.T) {
	r := newRig(t)
	in := newInbox()
	gate := make(chan struct{})
	in.gate = func(e replica.Envelope) {
		if len(e.Frames) > 0 {
			<-gate
		}
	}
	addr, _ := r.serve("b", &Server{Caller: caller, Deliver: in.deliver})
	a := r.transport("org-a", addr)
	const n, size = 64, 1 << 20
	var sent atomic.Int64
	done := make(chan error, 1)
	go func() {
		for i := range n {
			if err := a.SendFrames(context.Background(), "b", batch(i, size)); err != nil {
				done <- err
				return
			}
			sent.Add(1)
		}
		done <- nil
	}()
	for i := range 50 {
		a.Send("b", message(i))
	}
	in.stamps(t, protocol.Beat, 50)
	// Another's patience ends while the lane is stuck.
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	other := batch(n, size)
	other.Message.Kind = protocol.Advance
	go func() { gone <- a.SendFrames(ctx, "b", other) }()
	cancel()
	if err := wait(t, "end of a wait", gone); err != nil && !errors.Is(err, context.Canceled) { // nil: it was taken at once
		t.Fatal(err)
	}
	if k := sent.Load(); k > n/2 {
		t.Fatalf("%d of %d MiB were taken from the sender, and none by the receiver", k, n)
	}
	close(gate)
	r.must(wait(t, "frames", done))
	if s := in.stamps(t, protocol.Append, n); !ascend(s) {
		t.Fatalf("frames came as %v", s)
	}
}

// What is too big for the receiver breaks the connection, and nothing else.
func TestBigBatches(t *testing.T) {
	r := newRig(t)
	in := newInbox()
	addr, _ := r.serve("b", &Server{Caller: caller, Deliver: in.deliver})
	a := r.transport("org-a", addr)
	a.send(r, batch(1, 7<<20))
	in.stamps(t, protocol.Append, 1)
	_ = a.SendFrames(context.Background(), "b", batch(2, 9<<20)) // an error or not: the receiver refuses it
	wait(t, "report", a.down)
	a.send(r, batch(3, 10))
	if s := in.stamps(t, protocol.Append, 2); s[1] != 3 {
		t.Fatalf("came: %v", s)
	}
}

// A link that hangs blocks nobody for ever: messages are dropped, and Close returns.
func TestHalfOpen(t *testing.T) {
	r := newRig(t)
	in := newInbox()
	addr, _ := r.serve("b", &Server{Caller: caller, Deliver: in.deliver})
	x := r.relay(addr)
	a := r.transport("org-a", x.addr())
	a.Send("b", message(1))
	in.stamps(t, protocol.Beat, 1)
	a.send(r, batch(1, 10))
	in.stamps(t, protocol.Append, 1)
	x.hold()
	within(t, "messages into the void", func() {
		for i := range 20_000 {
			a.Send("b", message(i))
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		for {
			if err := a.SendFrames(ctx, "b", batch(9, 1<<20)); err != nil {
				done <- err
				return
			}
		}
	}()
	cancel()
	if err := wait(t, "end of a wait", done); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	within(t, "close", a.Close)
	a.Send("b", message(2)) // is lost
	if err := a.SendFrames(context.Background(), "b", batch(2, 10)); !errors.Is(err, errClosed) {
		t.Fatalf("after close: %v", err)
	}
	within(t, "second close", a.Close)
}
