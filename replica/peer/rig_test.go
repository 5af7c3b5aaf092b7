// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"github.com/jonboulle/clockwork"

	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"

	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/replica/protocol"
)

// rig has gateways a, b, … with certificates of one federation, real gRPC over loopback, and relays
// between them that can be cut and held.
type rig struct {
	*testing.T
	ca *pki.Authority
}

// hangs is how long a wait may take. It is only a guard against hanging.
const hangs = 30 * time.Second

func newRig(t *testing.T) *rig {
	t.Helper()
	ca, err := pki.NewAuthority("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, ca}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) credentials(gateway, organization string) *pki.Credentials {
	r.Helper()
	pair, err := r.ca.Issue(pki.Identity{Federation: "test", Organization: organization, Site: "s-" + gateway, Gateway: gateway},
		[]string{"127.0.0.1"}, time.Now(), time.Hour)
	r.must(err)
	root, err := r.ca.Pair()
	r.must(err)
	c, err := pki.Load(root.Cert, pair, time.Now)
	r.must(err)
	return c
}

// caller returns the gateway that calls. Its certificate must be of its own organization: org-x for
// gateway x.
func caller(ctx context.Context) (string, error) {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return "", errors.New("no peer")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return "", errors.New("no TLS")
	}
	id, err := pki.PeerIdentity(info.State)
	if err == nil && id.Organization != "org-"+id.Gateway {
		err = fmt.Errorf("gateway %s is not of organization %s", id.Gateway, id.Organization)
	}
	return id.Gateway, err
}

// inbox keeps the envelopes that a gateway received.
type inbox struct {
	mu   sync.Mutex
	all  []replica.Envelope
	came chan struct{}
	gate func(replica.Envelope) // before each
}

func newInbox() *inbox { return &inbox{came: make(chan struct{}, 1)} }

func (b *inbox) deliver(all []replica.Envelope) {
	for _, e := range all {
		if b.gate != nil {
			b.gate(e)
		}
		b.mu.Lock()
		b.all = append(b.all, e)
		b.mu.Unlock()
		select {
		case b.came <- struct{}{}:
		default:
		}
	}
}

// stamps waits until there are n envelopes of a kind and returns their stamps.
func (b *inbox) stamps(t *testing.T, kind protocol.Kind, n int) []int {
	t.Helper()
	end := time.After(hangs)
	for {
		b.mu.Lock()
		var out []int
		for _, e := range b.all {
			if e.Message.Kind == kind {
				out = append(out, int(e.Message.Stamp))
			}
		}
		b.mu.Unlock()
		if len(out) >= n {
			return out
		}
		select {
		case <-b.came:
		case <-end:
			t.Fatalf("%d envelopes came, not %d", len(out), n)
		}
	}
}

// serve starts a gateway's server and returns its address.
func (r *rig) serve(gateway string, s peerpb.PeerServer) (addr string, stop func()) {
	r.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(r.credentials(gateway, "org-"+gateway).Server(pki.Expect{}))),
		grpc.InitialWindowSize(1<<16), grpc.InitialConnWindowSize(1<<16), grpc.MaxRecvMsgSize(8<<20))
	peerpb.RegisterPeerServer(server, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }() // ends with Stop
	stop = sync.OnceFunc(func() { server.Stop(); <-done })
	r.Cleanup(stop)
	return l.Addr().String(), stop
}

// transport is a Transport of a, to the single gateway b at an address that may change.
type transport struct {
	*Transport
	mu   sync.Mutex
	addr string
	down chan string
}

func (t *transport) to(addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addr = addr
}

// transport returns a Transport with the certificate of gateway a of an organization.
func (r *rig) transport(organization, addr string) *transport {
	r.Helper()
	creds := r.credentials("a", organization)
	out := &transport{addr: addr, down: make(chan string, 1000)}
	dial := func(name string) (*grpc.ClientConn, error) {
		out.mu.Lock()
		defer out.mu.Unlock()
		return grpc.NewClient("passthrough:///"+out.addr,
			grpc.WithTransportCredentials(credentials.NewTLS(creds.Client(pki.Expect{Gateway: name}))))
	}
	out.Transport = New(dial, func(g string) { out.down <- g }, clockwork.NewRealClock(), slog.New(slog.DiscardHandler))
	r.Cleanup(func() { within(r.T, "close of the transport", out.Close) })
	return out
}

func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(hangs):
		panic(what + " hangs") // so that all goroutines are shown
	}
}

// wait returns what comes from c.
func wait[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case x := <-c:
		return x
	case <-time.After(hangs):
		t.Fatalf("%s: never", what)
		panic("not reached")
	}
}

func message(n int) replica.Envelope {
	return replica.Envelope{Volume: "v", Message: protocol.Message{Kind: protocol.Beat, From: protocol.Member{Gateway: "a"},
		Stamp: protocol.Time(n)}}
}

func batch(n, size int) replica.Envelope {
	e := message(n)
	e.Message.Kind, e.Frames = protocol.Append, make([]byte, size)
	return e
}

// Send sends one message.
func (t *transport) Send(gateway string, e replica.Envelope) {
	t.Transport.Send(gateway, []replica.Envelope{e})
}

// send sends frames again and again until they are taken, as the replicas do.
func (t *transport) send(r *rig, e replica.Envelope) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	for t.SendFrames(ctx, "b", e) != nil {
		if ctx.Err() != nil {
			r.Fatal("frames are not taken")
		}
	}
}

func ascend(s []int) bool { return slices.IsSorted(s) }
