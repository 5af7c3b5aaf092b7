// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// maxFetch bounds one Fetch.
const maxFetch = 4 << 20

// Server receives what other gateways' Transports send.
type Server struct {
	peerpb.UnimplementedPeerServer
	// Caller returns the gateway that a call comes from, by its certificate.
	Caller func(ctx context.Context) (gateway string, err error)
	// Deliver accepts envelopes, in order. If one has frames, Deliver may wait, which slows the
	// sender. It is called for one lane of one gateway one call at a time.
	Deliver func([]replica.Envelope)
	// Fetched reads a range of a segment from this gateway's pool or store.
	Fetched func(ctx context.Context, volume, segment string, off int64, p []byte) error
	// Newest returns the newest checkpoint of a volume that is committed, as far as is known here.
	Newest func(ctx context.Context, volume string) (*peerpb.CheckpointReply, error)
	// Objects calls send with the pieces of an object of a checkpoint of a volume.
	Objects func(ctx context.Context, volume, name string, send func(piece []byte) error) error
	// Told calls send with what a log lists that begins with the newest checkpoint of a volume.
	Told func(ctx context.Context, volume string, send func(*peerpb.PastReply) error) error
	// May reports whether a gateway may have segments of a volume.
	May func(volume, gateway string) bool

	mu    sync.Mutex
	gates map[string]*gate // by caller and lane
}

// gate lets only the newest connection of a lane deliver.
type gate struct {
	turn   chan struct{} // buffer of one, full while a connection delivers or begins
	newest uint64        // used only by the goroutine that has the turn
}

func (s *Server) gate(caller, lane string) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gates == nil {
		s.gates = map[string]*gate{}
	}
	key := caller + " " + lane
	if s.gates[key] == nil {
		s.gates[key] = &gate{turn: make(chan struct{}, 1)}
	}
	return s.gates[key]
}

// enter waits for the turn.
func (g *gate) enter(ctx context.Context) error {
	select {
	case g.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (g *gate) leave() { <-g.turn }

// begin puts earlier connections out of use and returns the number of this one.
func (g *gate) begin(ctx context.Context) (uint64, error) {
	if err := g.enter(ctx); err != nil {
		return 0, err
	}
	defer g.leave()
	g.newest++
	return g.newest, nil
}

// deliver calls f unless there is a newer connection than number.
func (g *gate) deliver(ctx context.Context, number uint64, f func()) error {
	if err := g.enter(ctx); err != nil {
		return err
	}
	defer g.leave()
	if g.newest != number {
		return status.Error(codes.Aborted, "a newer connection of the same gateway took over; nothing to do")
	}
	f()
	return nil
}

// Carry implements the service.
func (s *Server) Carry(stream grpc.ClientStreamingServer[peerpb.Envelope, peerpb.CarryReply]) error {
	ctx := stream.Context()
	caller, err := s.Caller(ctx)
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	lane := metadata.ValueFromIncomingContext(ctx, laneKey)
	if len(lane) != 1 || lane[0] != messages && lane[0] != frames {
		return status.Errorf(codes.InvalidArgument, "%s %q: give %q or %q: check the release that gateway %q runs", laneKey, lane,
			messages, frames, caller)
	}
	gate := s.gate(caller, lane[0])
	number, err := gate.begin(ctx)
	if err != nil {
		return err
	}
	if err := stream.SendHeader(metadata.Pairs(takesKey, batches)); err != nil {
		return err
	}
	d := decoder{slots: map[uint32]replica.Envelope{}}
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&peerpb.CarryReply{})
		}
		if err != nil {
			return err
		}
		all, err := d.decode(e)
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "message of gateway %q: %v", caller, err)
		}
		for _, env := range all {
			if env.Message.From.Gateway != caller {
				return status.Errorf(codes.PermissionDenied,
					"message of gateway %q came with the certificate of gateway %q: check which certificate that gateway was started with",
					env.Message.From.Gateway, caller)
			}
		}
		if err := gate.deliver(ctx, number, func() { s.Deliver(all) }); err != nil {
			return err
		}
	}
}

// Fetch implements the service.
func (s *Server) Fetch(ctx context.Context, q *peerpb.FetchRequest) (*peerpb.FetchReply, error) {
	if err := s.allowed(ctx, q.GetVolume()); err != nil {
		return nil, err
	}
	if q.GetLength() <= 0 || q.GetLength() > maxFetch || q.GetOffset() < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "length %d at offset %d: ask for 1 to %d bytes", q.GetLength(),
			q.GetOffset(), maxFetch)
	}
	p := make([]byte, q.GetLength())
	if err := s.Fetched(ctx, q.GetVolume(), q.GetSegment(), q.GetOffset(), p); err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	return &peerpb.FetchReply{Data: p}, nil
}

// allowed returns an error of the service if the caller may not have segments of a volume.
func (s *Server) allowed(ctx context.Context, volume string) error {
	from, err := s.Caller(ctx)
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if !s.May(volume, from) {
		return status.Errorf(codes.PermissionDenied, "volume %s: the site of gateway %s has no copy of it, and no client that is "+
			"admitted to it, as far as is known here", volume, from)
	}
	return nil
}

// Checkpoint implements the service.
func (s *Server) Checkpoint(ctx context.Context, q *peerpb.CheckpointRequest) (*peerpb.CheckpointReply, error) {
	if err := s.allowed(ctx, q.GetVolume()); err != nil {
		return nil, err
	}
	r, err := s.Newest(ctx, q.GetVolume())
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	return r, nil
}

// Object implements the service.
func (s *Server) Object(q *peerpb.ObjectRequest, out grpc.ServerStreamingServer[peerpb.FetchReply]) error {
	ctx := out.Context()
	if err := s.allowed(ctx, q.GetVolume()); err != nil {
		return err
	}
	err := s.Objects(ctx, q.GetVolume(), q.GetName(), func(p []byte) error { return out.Send(&peerpb.FetchReply{Data: p}) })
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	return nil
}

// Past implements the service.
func (s *Server) Past(q *peerpb.PastRequest, out grpc.ServerStreamingServer[peerpb.PastReply]) error {
	ctx := out.Context()
	if err := s.allowed(ctx, q.GetVolume()); err != nil {
		return err
	}
	if err := s.Told(ctx, q.GetVolume(), out.Send); err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	return nil
}

// Source reads sealed segments of one volume from another gateway: it is an engine/log Source.
type Source struct {
	Gateway string
	Volume  string
	Client  func(gateway string) (peerpb.PeerClient, error)
}

// String names the source.
func (s Source) String() string { return "gateway " + s.Gateway }

// ReadSegment fills p from the named segment.
func (s Source) ReadSegment(ctx context.Context, name string, off int64, p []byte) error {
	c, err := s.Client(s.Gateway)
	if err != nil {
		return err
	}
	for len(p) > 0 {
		n := min(len(p), maxFetch)
		r, err := c.Fetch(ctx, &peerpb.FetchRequest{Volume: s.Volume, Segment: name, Offset: off, Length: int32(n)})
		if err != nil {
			return err
		}
		if len(r.GetData()) != n {
			return io.ErrUnexpectedEOF
		}
		copy(p, r.GetData())
		p, off = p[n:], off+int64(n)
	}
	return nil
}
