// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/replica/protocol"
)

// beats are those of n volumes at time now.
func beats(n int, now time.Duration) (all []replica.Envelope) {
	for v := range n {
		all = append(all, replica.Envelope{Volume: fmt.Sprintf("aa010000-0000-4000-8000-%012d", v), Message: protocol.Message{
			Kind: protocol.Beat, From: protocol.Member{Gateway: "a", Site: "s", Incarnation: "i", Log: fmt.Sprint("log", v)}, Epoch: 3,
			Stamp: now, Echo: now - time.Second, Grant: time.Second, Commit: protocol.Position{Seq: 5, Off: uint64(v)}, Current: true}})
	}
	return all
}

// pair is both ends of a connection.
func pair() (*encoder, *decoder) {
	return newEncoder(true), &decoder{slots: map[uint32]replica.Envelope{}}
}

// carry takes envelopes through a connection, and returns what arrives, and how many bytes that
// took.
func carry(t *testing.T, c *encoder, d *decoder, all []replica.Envelope) (out []replica.Envelope, bytes int) {
	t.Helper()
	for _, m := range c.encode(all) {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		bytes += len(raw)
		var x peerpb.Envelope
		if err := proto.Unmarshal(raw, &x); err != nil {
			t.Fatal(err)
		}
		got, err := d.decode(&x)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, got...)
	}
	return out, bytes
}

// Beats in which only the time is new take as many bytes for ten thousand volumes as for one.
func TestRepeatedBeatsAreSmall(t *testing.T) {
	const volumes = 10_000
	c, d := pair()
	if got, bytes := carry(t, c, d, beats(volumes, time.Hour)); !reflect.DeepEqual(got, beats(volumes, time.Hour)) {
		t.Fatalf("%d came, in %d bytes", len(got), bytes)
	}
	for i := range 3 {
		now := time.Hour + time.Duration(i+1)*time.Second
		got, bytes := carry(t, c, d, beats(volumes, now))
		if !reflect.DeepEqual(got, beats(volumes, now)) {
			t.Fatalf("%d came", len(got))
		}
		if bytes > 64 {
			t.Errorf("%d bytes", bytes)
		}
	}
	some := beats(volumes, 2*time.Hour)
	some[17].Message.Commit.Off++ // one volume was written
	got, bytes := carry(t, c, d, some)
	if len(got) != volumes || bytes > 400 {
		t.Errorf("%d came, in %d bytes", len(got), bytes)
	}
}

// However messages come in batches: of each volume they arrive as they were sent, in order.
func TestBatchesKeepWhatIsSent(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	c, d := pair()
	sent, came := map[string][]replica.Envelope{}, map[string][]replica.Envelope{}
	state := beats(9, time.Hour)
	for range 2000 {
		var all []replica.Envelope
		for range rnd.IntN(30) {
			e := state[rnd.IntN(len(state))]
			e.Message.Kind = []protocol.Kind{protocol.Beat, protocol.Ack, protocol.Advance, protocol.Hello, protocol.Welcome}[rnd.IntN(5)]
			e.Message.Stamp += time.Duration(rnd.IntN(3))
			e.Message.Commit.Seq += uint64(rnd.IntN(6) / 5)
			switch e.Message.Kind {
			case protocol.Hello:
				for i := range rnd.IntN(4) {
					e.Message.Epochs = append(e.Message.Epochs, log.EpochStart{Epoch: uint64(i)})
				}
			case protocol.Welcome:
				e.Proof = []byte{1}
			case protocol.Ack:
				e.Message.Reads = rnd.IntN(8) / 7
			}
			all = append(all, e)
			sent[e.Volume] = append(sent[e.Volume], e)
		}
		got, _ := carry(t, c, d, all)
		for _, e := range got {
			came[e.Volume] = append(came[e.Volume], e)
		}
	}
	if !reflect.DeepEqual(sent, came) {
		t.Fatal("something else came than was sent")
	}
}

// A greeting goes with its newest epochs only, unless a follower asked for all; an earlier release,
// which would take them for all, gets them all.
func TestOnlyTheNewestEpochs(t *testing.T) {
	hello := beats(1, time.Hour)[0]
	hello.Message.Kind = protocol.Hello
	for i := range 5000 {
		hello.Message.Epochs = append(hello.Message.Epochs, log.EpochStart{Epoch: uint64(i + 1), Salt: [32]byte{byte(i), byte(i >> 8)}})
	}
	c, d := pair()
	got, bytes := carry(t, c, d, []replica.Envelope{hello})
	if m := got[0].Message; !m.Part || len(m.Epochs) > 16 || m.Epochs[len(m.Epochs)-1].Epoch != 5000 || bytes > 2000 {
		t.Errorf("%d epochs came, in %d bytes; part %t", len(m.Epochs), bytes, m.Part)
	}
	whole := hello
	whole.Message.Whole = true
	if got, _ := carry(t, c, d, []replica.Envelope{whole}); !reflect.DeepEqual(got, []replica.Envelope{whole}) {
		t.Errorf("%d epochs came", len(got[0].Message.Epochs))
	}
	c.batches = false
	if got, _ := carry(t, c, d, []replica.Envelope{hello}); !reflect.DeepEqual(got, []replica.Envelope{hello}) {
		t.Errorf("%d epochs came at an earlier release", len(got[0].Message.Epochs))
	}
}

// To a receiver that does not say that it takes batches, messages go one by one.
func TestEarlierReleasesGetNoBatches(t *testing.T) {
	c, _ := pair()
	c.batches = false
	for _, m := range c.encode(append(beats(3, time.Hour), beats(3, time.Hour)...)) {
		if m.GetBatch() != nil || m.GetSlot() != 0 || m.GetVolume() == "" {
			t.Fatalf("%v", m)
		}
	}
	if n := len(c.encode(beats(3, time.Hour))); n != 3 {
		t.Fatalf("%d messages", n)
	}
}

// A batch that no encoder makes ends the connection, with a word why. So does one with a message of
// another gateway among its repeats.
func TestWrongBatches(t *testing.T) {
	c, _ := pair()
	first, again := c.encode(beats(2, time.Hour))[0], c.encode(beats(2, 2*time.Hour))[0]
	foreign := beats(1, time.Hour)
	foreign[0].Message.From.Gateway = "c"
	for name, s := range map[string]struct {
		all  []*peerpb.Envelope
		want codes.Code
	}{
		"never filled": {[]*peerpb.Envelope{again}, codes.InvalidArgument},
		"too high": {[]*peerpb.Envelope{{Batch: &peerpb.Batch{Envelopes: []*peerpb.Envelope{{Slot: maxSlots + 1}}}}},
			codes.InvalidArgument},
		"too many": {[]*peerpb.Envelope{first, {Batch: &peerpb.Batch{Repeats: func() (all []*peerpb.Repeat) {
			for range 2*maxSlots + 1 {
				all = append(all, &peerpb.Repeat{First: 1, Count: 1})
			}
			return all
		}()}}}, codes.InvalidArgument},
		"foreign": {[]*peerpb.Envelope{{Batch: &peerpb.Batch{Envelopes: []*peerpb.Envelope{encode(foreign[0])}}}}, codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			x := begin(&Server{Caller: fromA, Deliver: func([]replica.Envelope) {}}, messages)
			wait(t, "header", x.header)
			for _, m := range s.all {
				x.in <- m
			}
			if err := wait(t, "end", x.ended); status.Code(err) != s.want {
				t.Fatalf("ended with %v", err)
			}
		})
	}
}

// earlier is a server of a release that takes no batches.
type earlier struct {
	peerpb.UnimplementedPeerServer
	got chan *peerpb.Envelope
}

func (s *earlier) Carry(x grpc.ClientStreamingServer[peerpb.Envelope, peerpb.CarryReply]) error {
	if err := x.SendHeader(nil); err != nil {
		return err
	}
	for {
		e, err := x.Recv()
		if err != nil {
			return err
		}
		s.got <- e
	}
}

// The receiver's header decides, over a real connection.
func TestHeaderSaysWhetherBatchesAreTaken(t *testing.T) {
	r := newRig(t)
	old := &earlier{got: make(chan *peerpb.Envelope, 100)}
	addr, _ := r.serve("b", old)
	r.transport("org-a", addr).Transport.Send("b", beats(3, time.Hour))
	for v := range 3 {
		if e := wait(t, "message", old.got); e.GetBatch() != nil || e.GetVolume() != beats(3, 0)[v].Volume {
			t.Fatalf("%v came", e)
		}
	}
	in, calls := newInbox(), 0
	addr, _ = r.serve("b", &Server{Caller: caller, Deliver: func(all []replica.Envelope) { calls++; in.deliver(all) }})
	r.transport("org-a", addr).Transport.Send("b", beats(3, time.Hour))
	in.stamps(t, protocol.Beat, 3)
	if calls != 1 {
		t.Errorf("they came in %d messages", calls)
	}
}
