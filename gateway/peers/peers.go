// SPDX-License-Identifier: Apache-2.0

// Package peers has the connections of one gateway to the others, and identifies its callers.
//
// Every connection uses mutual TLS. A gateway is identified by its certificate, which must match
// the gateway's record in the registry. All methods may be called from many goroutines.
package peers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/pki/transport"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// window is how many bytes may be under way on one connection: more than a gigabit link carries in
// 50 ms.
const window = 8 << 20

// maxMessage is the size of the largest message: a frame of the log and the fields beside it.
const maxMessage = segment.MaxFrame + 1<<20

// Peers are a gateway's connections to other gateways. Make them with New.
type Peers struct {
	federation, gateway string
	creds               *pki.Credentials
	view                *view.View
	watch               Watch
	serial              atomic.Uint64 // of the charter that was told

	mu    sync.Mutex
	conns map[string]connection // for calls, by gateway
}

type connection struct {
	addr string
	*grpc.ClientConn
}

// Watch watches the calls between gateways. Fields may be nil.
type Watch struct {
	Client, Server stats.Handler
	// Refused is told of each call that was refused because of what its caller is.
	Refused func(id pki.Identity, method string)
}

// New returns the connections of a gateway. The view has the others' addresses. Close ends the
// connections.
func New(federation, gateway string, creds *pki.Credentials, v *view.View, watch Watch) *Peers {
	return &Peers{federation: federation, gateway: gateway, creds: creds, view: v, watch: watch, conns: map[string]connection{}}
}

// Dial returns a connection to a gateway, which must present that gateway's certificate. The caller
// closes it.
func (p *Peers) Dial(name string) (*grpc.ClientConn, error) {
	g, site, ok := p.view.Gateway(name)
	if !ok {
		return nil, fmt.Errorf("dial gateway %s: the registry has no such gateway: start it, so that it registers", name)
	}
	want := pki.Expect{Organizations: []string{site.Organization}, Site: site.Name, Gateway: name}
	var more []grpc.DialOption
	if p.watch.Client != nil {
		more = append(more, grpc.WithStatsHandler(p.watch.Client))
	}
	return grpc.NewClient("passthrough:///"+g.Addr, append(more,
		grpc.WithTransportCredentials(transport.Client(p.creds, p.creds.Client(want))),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 2 * time.Second, Timeout: 2 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 2 * time.Second,
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)...)
}

// connect returns the shared connection for calls to a gateway.
func (p *Peers) connect(name string) (*grpc.ClientConn, error) {
	g, _, ok := p.view.Gateway(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	c, have := p.conns[name]
	if have && ok && c.addr != g.Addr {
		_ = c.Close() // its calls end with an unknown outcome and are sent again
		have = false
	}
	if !have {
		conn, err := p.Dial(name)
		if err != nil {
			return nil, err
		}
		c = connection{g.Addr, conn}
		p.conns[name] = c
	}
	return c.ClientConn, nil
}

// Segments returns a client that reads sealed segments from a gateway.
func (p *Peers) Segments(name string) (peerpb.PeerClient, error) {
	c, err := p.connect(name)
	if err != nil {
		return nil, err
	}
	return peerpb.NewPeerClient(c), nil
}

// Outlines returns a client that follows the logs of volumes whose home is at a gateway.
func (p *Peers) Outlines(name string) (peerpb.OutlinesClient, error) {
	c, err := p.connect(name)
	if err != nil {
		return nil, err
	}
	return peerpb.NewOutlinesClient(c), nil
}

// Forward returns a client that sends a gateway operations and questions.
func (p *Peers) Forward(name string) (forwardpb.ForwardClient, error) {
	c, err := p.connect(name)
	if err != nil {
		return nil, err
	}
	return forwardpb.NewForwardClient(c), nil
}

// Adopt takes a charter that the registry has: connections that it does not allow end. One that was
// forged, or is an old one, changes nothing.
func (p *Peers) Adopt(charter string, log *slog.Logger) {
	_, err := p.creds.Adopt(charter)
	if err != nil {
		log.Error("the registry has a charter that is not taken or not kept", "error", err)
	}
	if is, ok := p.creds.Charter(); ok && p.serial.Swap(is.Serial) != is.Serial {
		log.Info("a charter is in force", "serial", is.Serial)
	}
}

// Signed reports whether the charter asks for signatures. Then all processes are of a release that
// knows them, and what came with them.
func (p *Peers) Signed() bool {
	c, ok := p.creds.Charter()
	return ok && !c.SignedSince.IsZero()
}

// Close ends the shared connections.
func (p *Peers) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close() // the process ends
	}
}

// ServerOptions returns the options of the gRPC server that other gateways and operators call.
func (p *Peers) ServerOptions() []grpc.ServerOption {
	var more []grpc.ServerOption
	if p.watch.Server != nil {
		more = append(more, grpc.StatsHandler(p.watch.Server))
	}
	return append(more,
		grpc.Creds(transport.Server(p.creds, pki.Expect{})),
		grpc.ChainUnaryInterceptor(p.unary), grpc.ChainStreamInterceptor(p.stream),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window), grpc.MaxRecvMsgSize(maxMessage),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Second, Timeout: 4 * time.Second}),
	)
}

// Identity returns the identity in a caller's certificate. It must be of this federation.
func (p *Peers) Identity(ctx context.Context) (pki.Identity, error) {
	from, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return pki.Identity{}, fmt.Errorf("call without a connection")
	}
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return pki.Identity{}, fmt.Errorf("call from %s without TLS: use a certificate of federation %s", from.Addr, p.federation)
	}
	id, err := pki.PeerIdentity(info.State)
	if err == nil && id.Federation != p.federation {
		err = fmt.Errorf("certificate is of federation %q and gateway %s of %q: use a certificate of that one",
			id.Federation, p.gateway, p.federation)
	}
	return id, err
}

// Caller returns the name of the gateway that calls. Its certificate must name the organization and
// the site that the registry has for it.
func (p *Peers) Caller(ctx context.Context) (string, error) {
	id, err := p.Identity(ctx)
	if err != nil {
		return "", err
	}
	_, site, ok := p.view.Gateway(id.Gateway)
	switch {
	case !ok:
		return "",
			fmt.Errorf("gateway %q of organization %q is not registered in federation %s: start it with access to the registry first",
				id.Gateway, id.Organization, p.federation)
	case site.Organization != id.Organization || site.Name != id.Site:
		return "", fmt.Errorf("certificate of gateway %q names organization %q and site %q, "+
			"but the registry has it at site %q of organization %q: use the certificate issued for it",
			id.Gateway, id.Organization, id.Site, site.Name, site.Organization)
	}
	return id.Gateway, nil
}
