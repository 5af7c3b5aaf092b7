// SPDX-License-Identifier: Apache-2.0

// Package peer carries replica's envelopes between gateways over gRPC with mutual TLS
// (peerpb/peer.proto).
//
// Messages of one call, and those that wait meanwhile, travel as a batch to a receiver that says in
// its header that it takes batches (ADR 44). Its release then also knows greetings that have only
// the newest epochs.
//
// A Transport keeps two lanes to each gateway that it sends to, each with its own connection. One
// lane carries messages, so that promises are never stuck behind data. The other carries frames of
// the log; its flow control slows the sender to what the receiver and the link can take. Both lanes
// only send; the other gateway has two lanes back. A lane's connection is watched even while there
// is nothing to send: nobody but the sender can notice that frames under way were lost. A break is
// reported once. The next envelope begins another connection, to the address that the gateway has
// by then.
//
// # Order
//
//   - The certificate of the connection says who the sender is. A message that names another
//     gateway is refused.
//   - After the first envelope of a lane's new connection, nothing from an earlier connection is
//     delivered, even if the receiver has buffered it. The receiver answers a connection with a
//     header once it has put the earlier one out of use, and the sender sends nothing before that
//     header. So a connection that arrives after its successor carries nothing. It ends the
//     successor, which begins again.
package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// Dial opens a connection to a gateway by name; two calls give two connections.
type Dial func(gateway string) (*grpc.ClientConn, error)

// Transport implements replica.Transport.
type Transport struct {
	dial   Dial
	down   func(gateway string)
	timers clockwork.Clock
	logger *slog.Logger

	mu     sync.Mutex
	links  map[string]*link
	closed bool
	ctx    context.Context
	stop   context.CancelFunc
	work   sync.WaitGroup
}

// link has the two lanes to one gateway.
type link struct{ messages, frames *lane }

// The lanes' names, sent in the metadata at the beginning of each connection.
const (
	laneKey  = "weir-lane"
	messages = "messages"
	frames   = "frames"
)

// lane sends the parcels in its queue, in order, over its own connection.
type lane struct {
	t       *Transport
	gateway string
	name    string
	queue   chan parcel
	waiting atomic.Int64 // envelopes in the queue; of the lane of messages
}

type parcel struct {
	envelopes []replica.Envelope
	sent      chan error // buffer of one; nil: nobody waits
}

// maxWaiting is how many envelopes may wait in a lane of messages, unless one call brings more.
const maxWaiting = 1 << 16

// The receiver's header says whether it takes batches.
const (
	takesKey = "weir-takes"
	batches  = "batches"
)

func (p parcel) done(err error) {
	if p.sent != nil {
		p.sent <- err
	}
}

// errClosed reports that the Transport was closed.
var errClosed = errors.New("transport between gateways is closed")

// reconnectAfter is how long a lane waits after its connection broke.
const reconnectAfter = 100 * time.Millisecond

// New returns a Transport that calls down when a connection broke. timers times the wait before a
// new attempt.
func New(dial Dial, down func(gateway string), timers clockwork.Clock, logger *slog.Logger) *Transport {
	ctx, stop := context.WithCancel(context.Background())
	return &Transport{dial: dial, down: down, timers: timers, logger: logger, links: map[string]*link{}, ctx: ctx, stop: stop}
}

// Close ends all connections and waits until their goroutines have ended. What is sent afterwards
// is lost.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.stop()
	t.work.Wait()
}

// link returns the link to a gateway, nil after Close.
func (t *Transport) link(gateway string) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	l := t.links[gateway]
	if l == nil {
		l = &link{
			messages: &lane{t: t, gateway: gateway, name: messages, queue: make(chan parcel, 4096)},
			frames:   &lane{t: t, gateway: gateway, name: frames, queue: make(chan parcel)},
		}
		t.links[gateway] = l
		t.work.Go(l.messages.run)
		t.work.Go(l.frames.run)
	}
	return l
}

// Send queues messages. If the queue is full, they are dropped, as the network might drop them.
func (t *Transport) Send(gateway string, all []replica.Envelope) {
	l := t.link(gateway)
	if l == nil {
		return
	}
	m, n := l.messages, int64(len(all))
	if now := m.waiting.Add(n); now > n && now > maxWaiting {
		m.waiting.Add(-n)
		return
	}
	select {
	case m.queue <- parcel{envelopes: all}:
	default:
		m.waiting.Add(-n)
	}
}

// SendFrames sends frames and waits while the receiver's window is full. If ctx ends before, the
// frames may still arrive.
func (t *Transport) SendFrames(ctx context.Context, gateway string, e replica.Envelope) error {
	l := t.link(gateway)
	if l == nil {
		return fmt.Errorf("send to gateway %s: %w", gateway, errClosed)
	}
	p := parcel{envelopes: []replica.Envelope{e}, sent: make(chan error, 1)}
	select {
	case l.frames.queue <- p:
	case <-ctx.Done():
		return ctx.Err()
	case <-t.ctx.Done():
		return fmt.Errorf("send to gateway %s: %w", gateway, errClosed)
	}
	select {
	case err := <-p.sent:
		if err != nil {
			return fmt.Errorf("send to gateway %s: %w", gateway, err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.ctx.Done():
		return fmt.Errorf("send to gateway %s: %w", gateway, errClosed)
	}
}

// run begins a connection whenever there is something to send and the last one broke.
func (l *lane) run() {
	for {
		var first parcel
		select {
		case first = <-l.queue:
			l.took(first)
		case <-l.t.ctx.Done():
			return
		}
		err := l.session(first)
		if l.t.ctx.Err() != nil {
			return
		}
		l.t.logger.Debug("connection to gateway broke", "gateway", l.gateway, "lane", l.name, "error", err)
		l.t.down(l.gateway)
		l.drain(err)
		select {
		case <-l.t.timers.After(reconnectAfter):
		case <-l.t.ctx.Done():
			return
		}
	}
}

// took counts a parcel that was taken out of the queue.
func (l *lane) took(p parcel) { l.waiting.Add(-int64(len(p.envelopes))) }

// drain drops what was queued for a connection that is gone.
func (l *lane) drain(why error) {
	for {
		select {
		case p := <-l.queue:
			l.took(p)
			p.done(why)
		default:
			return
		}
	}
}

// session sends first and then the queued parcels, until the connection breaks or the Transport is
// closed.
func (l *lane) session(first parcel) error {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(l.t.ctx, laneKey, l.name))
	defer cancel()
	s, c, end, err := l.open(ctx)
	if err != nil {
		first.done(err)
		return err
	}
	defer end()
	broken := make(chan error, 1)
	l.t.work.Go(func() { // the reply only ever comes when the stream has ended
		err := s.RecvMsg(new(peerpb.CarryReply))
		if err == nil {
			err = errors.New("the other side closed the stream")
		}
		broken <- err
	})
	for p := first; ; {
		for _, e := range c.encode(l.gather(p, c)) {
			if err := s.Send(e); err != nil {
				err = errors.Join(err, <-broken)
				p.done(err)
				return err
			}
		}
		p.done(nil)
		select {
		case p = <-l.queue:
			l.took(p)
		case err := <-broken:
			return err
		case <-l.t.ctx.Done():
			return nil
		}
	}
}

// gather returns the envelopes of p, and with them those that wait and can travel with it: nobody
// waits for them.
func (l *lane) gather(p parcel, c *encoder) []replica.Envelope {
	all := p.envelopes
	for c.batches && p.sent == nil && len(all) < maxWaiting {
		select {
		case more := <-l.queue:
			l.took(more)
			all = append(all, more.envelopes...)
		default:
			return all
		}
	}
	return all
}

// open connects, and returns when the receiver has put earlier connections of the lane out of use.
func (l *lane) open(ctx context.Context) (s carrying, c *encoder, end func(), err error) {
	conn, err := l.t.dial(l.gateway)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("dial gateway %s: %w", l.gateway, err)
	}
	end = func() { _ = conn.Close() } // its error would report nothing that matters here
	s, err = peerpb.NewPeerClient(conn).Carry(ctx)
	var header metadata.MD
	if err == nil {
		header, err = accepted(s)
	}
	if err != nil {
		end()
		return nil, nil, nil, fmt.Errorf("open stream to gateway %s: %w", l.gateway, err)
	}
	c = newEncoder(l.name == messages && slices.Contains(header.Get(takesKey), batches))
	return s, c, end, nil
}

// carrying is the sender's end of a connection.
type carrying = grpc.ClientStreamingClient[peerpb.Envelope, peerpb.CarryReply]

// accepted waits for the receiver's header. If none comes, it returns the error that ended the
// stream.
func accepted(s carrying) (metadata.MD, error) {
	header, err := s.Header()
	if err != nil || header != nil {
		return header, err
	}
	if err := s.RecvMsg(new(peerpb.CarryReply)); err != nil {
		return nil, err
	}
	return nil, errors.New("the other side closed the stream")
}
