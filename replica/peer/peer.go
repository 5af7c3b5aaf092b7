// SPDX-License-Identifier: Apache-2.0

// Package peer carries replica's envelopes between gateways over gRPC with mutual TLS (peerpb/peer.proto).
//
// To each gateway that it has something for, a Transport keeps two connections: one for messages, so that
// promises are never stuck behind data, and one for frames of the log, whose flow control slows the sender to
// what the receiver and the link take. Both only send; the other side has its own two back. A broken stream is
// reported once and opened again by the next send.
//
// The receiver takes a message's sender from the certificate of the connection, not from the message: a message
// that names another gateway is refused.
package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// Dial opens a connection to a gateway by name; two calls give two connections.
type Dial func(gateway string) (*grpc.ClientConn, error)

// Transport implements replica.Transport.
type Transport struct {
	dial   Dial
	down   func(gateway string)
	logger *slog.Logger

	mu    sync.Mutex
	links map[string]*link
	ctx   context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup
}

// link is what there is to one gateway.
type link struct {
	t        *Transport
	gateway  string
	messages chan *peerpb.Envelope

	mu     sync.Mutex // guards frames, and is held while one is sent
	frames grpc.ClientStreamingClient[peerpb.Envelope, peerpb.CarryReply]
	conn   *grpc.ClientConn
}

// New returns a Transport that calls down when a connection broke.
func New(dial Dial, down func(gateway string), logger *slog.Logger) *Transport {
	ctx, stop := context.WithCancel(context.Background())
	return &Transport{dial: dial, down: down, logger: logger, links: map[string]*link{}, ctx: ctx, stop: stop}
}

// Close ends all connections.
func (t *Transport) Close() {
	t.stop()
	t.work.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.links {
		l.mu.Lock()
		if l.conn != nil {
			_ = l.conn.Close() // nothing is under way that its closing could tell us about
		}
		l.mu.Unlock()
	}
}

func (t *Transport) link(gateway string) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.links[gateway]
	if l == nil {
		l = &link{t: t, gateway: gateway, messages: make(chan *peerpb.Envelope, 4096)}
		t.links[gateway] = l
		t.work.Go(l.run)
	}
	return l
}

// Send queues a message; when the queue is full, it is dropped, as the network might.
func (t *Transport) Send(gateway string, e replica.Envelope) {
	if t.ctx.Err() != nil {
		return
	}
	select {
	case t.link(gateway).messages <- encode(e):
	default:
	}
}

// SendFrames sends frames and waits while the receiver's window is full.
func (t *Transport) SendFrames(ctx context.Context, gateway string, e replica.Envelope) error {
	l := t.link(gateway)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.frames == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	if err := l.frames.Send(encode(e)); err != nil {
		_, cause := l.frames.CloseAndRecv()
		l.frames = nil
		return fmt.Errorf("send to gateway %s: %w", gateway, errors.Join(err, cause))
	}
	return nil
}

// open begins the stream for frames; l.mu is held.
func (l *link) open() error {
	if l.conn == nil {
		conn, err := l.t.dial(l.gateway)
		if err != nil {
			return fmt.Errorf("dial gateway %s: %w", l.gateway, err)
		}
		l.conn = conn
	}
	s, err := peerpb.NewPeerClient(l.conn).Carry(l.t.ctx)
	if err != nil {
		return fmt.Errorf("open stream to gateway %s: %w", l.gateway, err)
	}
	l.frames = s
	return nil
}

// run sends messages, over a connection that it opens again whenever it breaks.
func (l *link) run() {
	for l.t.ctx.Err() == nil {
		err := l.session()
		if l.t.ctx.Err() != nil {
			return
		}
		if err != nil {
			l.t.logger.Debug("connection to gateway broke", "gateway", l.gateway, "error", err)
			l.t.down(l.gateway)
			l.drain()
			select {
			case <-time.After(100 * time.Millisecond):
			case <-l.t.ctx.Done():
			}
		}
	}
}

// drain drops what was queued for a connection that is gone.
func (l *link) drain() {
	for {
		select {
		case <-l.messages:
		default:
			return
		}
	}
}

func (l *link) session() error {
	var first *peerpb.Envelope
	select {
	case first = <-l.messages:
	case <-l.t.ctx.Done():
		return nil
	}
	conn, err := l.t.dial(l.gateway)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(l.t.ctx)
	defer cancel()
	s, err := peerpb.NewPeerClient(conn).Carry(ctx)
	if err != nil {
		return err
	}
	broken := make(chan error, 1)
	l.t.work.Go(func() { // the reply only ever comes when the stream has ended
		err := s.RecvMsg(new(peerpb.CarryReply))
		if err == nil {
			err = errors.New("the other side closed the stream")
		}
		broken <- err
	})
	if err := s.Send(first); err != nil {
		return errors.Join(err, <-broken)
	}
	for {
		select {
		case e := <-l.messages:
			if err := s.Send(e); err != nil {
				return errors.Join(err, <-broken)
			}
		case err := <-broken:
			return err
		case <-l.t.ctx.Done():
			return nil
		}
	}
}
