// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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
	// Deliver takes in an envelope. If it has frames, Deliver may wait, which slows the sender.
	Deliver func(replica.Envelope)
	// Fetched reads a range of a sealed segment from this gateway's pool or store.
	Fetched func(ctx context.Context, volume, segment string, off int64, p []byte) error
}

// Carry implements the service.
func (s *Server) Carry(stream grpc.ClientStreamingServer[peerpb.Envelope, peerpb.CarryReply]) error {
	caller, err := s.Caller(stream.Context())
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&peerpb.CarryReply{})
		}
		if err != nil {
			return err
		}
		env := decode(e)
		if env.Message.From.Gateway != caller {
			return status.Errorf(codes.PermissionDenied, "message of gateway %q came with the certificate of gateway %q: check which certificate that gateway was started with",
				env.Message.From.Gateway, caller)
		}
		s.Deliver(env)
	}
}

// Fetch implements the service.
func (s *Server) Fetch(ctx context.Context, q *peerpb.FetchRequest) (*peerpb.FetchReply, error) {
	if _, err := s.Caller(ctx); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	if q.GetLength() <= 0 || q.GetLength() > maxFetch || q.GetOffset() < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "length %d at offset %d: ask for 1 to %d bytes", q.GetLength(), q.GetOffset(), maxFetch)
	}
	p := make([]byte, q.GetLength())
	if err := s.Fetched(ctx, q.GetVolume(), q.GetSegment(), q.GetOffset(), p); err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	return &peerpb.FetchReply{Data: p}, nil
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
