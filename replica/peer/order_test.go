// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/replica/protocol"
)

// stream is a connection whose arrivals the test decides.
type stream struct {
	grpc.ServerStream
	ctx    context.Context
	in     chan *peerpb.Envelope
	header chan struct{} // closed when the server has answered
	ended  chan error
}

func (s *stream) Context() context.Context              { return s.ctx }
func (s *stream) SendHeader(metadata.MD) error          { close(s.header); return nil }
func (s *stream) SendAndClose(*peerpb.CarryReply) error { return nil }

func (s *stream) Recv() (*peerpb.Envelope, error) {
	if e, ok := <-s.in; ok {
		return e, nil
	}
	return nil, io.EOF
}

func begin(s *Server, lane string) *stream {
	x := &stream{ctx: metadata.NewIncomingContext(context.Background(), metadata.Pairs(laneKey, lane)), in: make(chan *peerpb.Envelope, 16),
		header: make(chan struct{}), ended: make(chan error, 1)}
	go func() { x.ended <- s.Carry(x) }()
	return x
}

func fromA(context.Context) (string, error) { return "a", nil }

// What is still buffered from an old connection is never delivered once there is a new one.
func TestOldConnectionIsSilent(t *testing.T) {
	for _, lane := range []string{messages, frames} {
		t.Run(lane, func(t *testing.T) {
			in := newInbox()
			s := &Server{Caller: fromA, Deliver: in.deliver}
			old := begin(s, lane)
			wait(t, "header", old.header)
			old.in <- encode(message(1))
			in.stamps(t, protocol.Beat, 1)
			fresh := begin(s, lane)
			wait(t, "header", fresh.header)
			old.in <- encode(message(2)) // had been in its buffers
			if err := wait(t, "end of the old", old.ended); status.Code(err) != codes.Aborted {
				t.Fatalf("the old one ended with %v", err)
			}
			fresh.in <- encode(message(3))
			if got := in.stamps(t, protocol.Beat, 2); fmt.Sprint(got) != "[1 3]" {
				t.Fatalf("delivered: %v", got)
			}
			close(fresh.in)
			if err := wait(t, "end", fresh.ended); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The new connection begins only after an envelope of the old one that is just being delivered, and
// waits for room.
func TestNewConnectionWaitsForTheOldOne(t *testing.T) {
	in := newInbox()
	reached, gate := make(chan struct{}), make(chan struct{})
	in.gate = func(e replica.Envelope) {
		if e.Message.Stamp == 1 {
			close(reached)
			<-gate
		}
	}
	s := &Server{Caller: fromA, Deliver: in.deliver}
	old := begin(s, frames)
	wait(t, "header", old.header)
	old.in <- encode(batch(1, 10))
	old.in <- encode(batch(2, 10))
	wait(t, "delivery", reached)
	fresh := begin(s, frames)
	fresh.in <- encode(batch(3, 10)) // only an unruly sender would, before the header
	other := begin(s, messages)      // lanes do not wait for each other
	wait(t, "header", other.header)
	select {
	case <-fresh.header:
		t.Fatal("the new connection begins while an envelope of the old one is under way")
	default:
	}
	// A sender that gives up meanwhile leaves nothing behind.
	ctx, cancel := context.WithCancel(metadata.NewIncomingContext(context.Background(), metadata.Pairs(laneKey, frames)))
	third := &stream{ctx: ctx, ended: make(chan error, 1), header: make(chan struct{})}
	go func() { third.ended <- s.Carry(third) }()
	cancel()
	if err := wait(t, "end of the third", third.ended); status.Code(err) != codes.Canceled {
		t.Fatalf("the third ended with %v", err)
	}
	close(gate)
	wait(t, "header", fresh.header)
	got := in.stamps(t, protocol.Append, 2)
	if got[0] != 1 || got[len(got)-1] != 3 || !ascend(got) {
		t.Fatalf("delivered: %v", got)
	}
	close(fresh.in)
	close(other.in)
	old.in <- encode(batch(4, 10))
	if err := wait(t, "end of the old", old.ended); err == nil {
		t.Error("the old ended without a word")
	}
	if got := in.stamps(t, protocol.Append, 2); got[len(got)-1] != 3 {
		t.Fatalf("delivered: %v", got)
	}
}

// silent takes connections, answers them only with an end, and takes no envelope.
type silent struct {
	peerpb.UnimplementedPeerServer
	came chan struct{}
	end  chan struct{}
}

func (s *silent) Carry(grpc.ClientStreamingServer[peerpb.Envelope, peerpb.CarryReply]) error {
	s.came <- struct{}{}
	<-s.end
	return status.Error(codes.Unavailable, "test")
}

// Nothing is sent before the receiver has put the earlier connection out of use.
func TestNothingBeforeTheHeader(t *testing.T) {
	r := newRig(t)
	s := &silent{came: make(chan struct{}, 100), end: make(chan struct{})}
	addr, _ := r.serve("b", s)
	a := r.transport("org-a", addr)
	done := make(chan error, 1)
	go func() { done <- a.SendFrames(context.Background(), "b", batch(1, 10)) }()
	wait(t, "connection", s.came)
	close(s.end)
	if err := wait(t, "outcome", done); err == nil {
		t.Fatal("frames went to a connection that was never taken")
	}
}

func TestUnknownLane(t *testing.T) {
	s := &Server{Caller: fromA, Deliver: func([]replica.Envelope) { t.Error("delivered") }}
	x := begin(s, "other")
	if err := wait(t, "end", x.ended); status.Code(err) != codes.InvalidArgument {
		t.Fatalf("ended with %v", err)
	}
}

// Over real connections that break at any time, what comes of each lane is in order, without
// repeats.
func TestBreaksKeepTheOrder(t *testing.T) {
	r := newRig(t)
	in := newInbox()
	addr, _ := r.serve("b", &Server{Caller: caller, Deliver: in.deliver})
	x := r.relay(addr)
	a := r.transport("org-a", x.addr())
	for n := range 6 {
		for i := range 200 {
			a.Send("b", message(1000*n+i))
		}
		a.send(r, batch(1000*n, 1<<18))
		if n%2 == 0 {
			x.hold()
			a.Send("b", message(1000*n+300))
		}
		x.cut()
		x.release()
	}
	end := time.After(hangs)
	for n := 9999; ; n++ { // a connection that is just found to be broken may accept one
		a.send(r, batch(n, 10))
		if got := in.stamps(t, protocol.Append, 0); len(got) > 0 && got[len(got)-1] >= 9999 {
			break
		}
		select {
		case <-in.came:
		case <-time.After(time.Millisecond):
		case <-end:
			t.Fatal("nothing comes after the breaks")
		}
	}
	for _, k := range []protocol.Kind{protocol.Beat, protocol.Append} {
		got := in.stamps(t, k, 0)
		for i := 1; i < len(got); i++ {
			if got[i] <= got[i-1] {
				t.Fatalf("kind %d came as %v", k, got)
			}
		}
	}
}
