// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// window is how many bytes may be under way on one connection: more than a gigabit link holds at 50 ms.
const window = 8 << 20

// maxMessage is the largest message: a frame of the log and what travels beside it.
const maxMessage = segment.MaxFrame + 1<<20

// peers are the connections to other gateways.
type peers struct {
	creds  *pki.Credentials
	mirror *mirror

	mu    sync.Mutex
	conns map[string]*peerConn // for calls, by gateway
}

type peerConn struct {
	addr string
	conn *grpc.ClientConn
}

func newPeers(creds *pki.Credentials, m *mirror) *peers {
	return &peers{creds: creds, mirror: m, conns: map[string]*peerConn{}}
}

// dial makes a connection to a gateway, whose certificate must be that gateway's.
func (p *peers) dial(name string) (*grpc.ClientConn, error) {
	g, site, ok := p.mirror.gateway(name)
	if !ok {
		return nil, fmt.Errorf("dial gateway %s: the registry has no such gateway: start it, so that it registers", name)
	}
	want := pki.Expect{Organizations: []string{site.Organization}, Site: site.Name, Gateway: name}
	return grpc.NewClient("passthrough:///"+g.Addr,
		grpc.WithTransportCredentials(credentials.NewTLS(p.creds.Client(want))),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 2 * time.Second, Timeout: 2 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 2 * time.Second,
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
}

// call returns the shared connection for calls to a gateway.
func (p *peers) call(name string) (*grpc.ClientConn, error) {
	g, _, ok := p.mirror.gateway(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conns[name]
	if c != nil && ok && c.addr != g.Addr {
		_ = c.conn.Close() // its calls end as unknown and are sent again
		c = nil
	}
	if c == nil {
		conn, err := p.dial(name)
		if err != nil {
			return nil, err
		}
		c = &peerConn{g.Addr, conn}
		p.conns[name] = c
	}
	return c.conn, nil
}

func (p *peers) peerClient(name string) (peerpb.PeerClient, error) {
	c, err := p.call(name)
	if err != nil {
		return nil, err
	}
	return peerpb.NewPeerClient(c), nil
}

func (p *peers) forwardClient(name string) (forwardpb.ForwardClient, error) {
	c, err := p.call(name)
	if err != nil {
		return nil, err
	}
	return forwardpb.NewForwardClient(c), nil
}

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.conn.Close() // the process ends
	}
}

// serverOptions are those of the gRPC server that other gateways and operators call.
func serverOptions(creds *pki.Credentials) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(credentials.NewTLS(creds.Server(pki.Expect{}))),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window), grpc.MaxRecvMsgSize(maxMessage),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Second, Timeout: 4 * time.Second}),
	}
}

// caller is who calls, by certificate: a gateway must belong to the organization that its site is registered with.
func (g *Gateway) caller(ctx context.Context) (string, error) {
	id, err := g.identity(ctx)
	if err != nil {
		return "", err
	}
	_, site, ok := g.mirror.gateway(id.Gateway)
	switch {
	case !ok:
		return "", fmt.Errorf("gateway %q of organization %q is not registered in federation %s: start it with access to the registry first", id.Gateway, id.Organization, g.cfg.Federation)
	case site.Organization != id.Organization || site.Name != id.Site:
		return "", fmt.Errorf("certificate of gateway %q names organization %q and site %q, but the registry has it at site %q of organization %q: use the certificate issued for it",
			id.Gateway, id.Organization, id.Site, site.Name, site.Organization)
	}
	return id.Gateway, nil
}
