// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/gatekeeper/shown"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/pki/transport"
)

// Meter is told what happens. Its methods must not block.
type Meter interface {
	// Asked is told of each request: its method, by whom, what came of it (a code of gRPC), and how
	// long it took. Of a stream it is told when that ends.
	Asked(method string, by pki.Part, outcome codes.Code, took time.Duration)
	// Refused is told of each change or read that was refused: of which kind of record.
	Refused(by pki.Part, kind string)
}

// Config is what a Gatekeeper is made of.
type Config struct {
	// Federation is its name: the prefix of all keys.
	Federation string
	// Etcd is the address, host:port, of the member that it stands beside.
	Etcd string
	// EtcdTLS is the client's side of mutual TLS towards that member; nil only for tests on one
	// machine.
	EtcdTLS *tls.Config
	// Credentials are those towards the federation, of part registry.
	Credentials *pki.Credentials
	// Now is the clock by which purges are due.
	Now func() time.Time
	// Meter may be nil.
	Meter Meter
	// Log has the audit: each refusal, and each request of a person.
	Log *slog.Logger
}

// Gatekeeper is one gatekeeper. Make it with New.
type Gatekeeper struct {
	cfg    Config
	prefix string
	etcd   *grpc.ClientConn
	kv     pb.KVClient
	lease  pb.LeaseClient
	watch  pb.WatchClient
	upkeep pb.MaintenanceClient
	seal   *signed.Seal // to check what others signed
	shown  *shown.Index
	conns  transport.Conns

	listening atomic.Bool
}

// refusalTime is how long a connection stays whose certificate may do nothing here: until the
// answer has arrived that says so. A new connection shows a new certificate, if there is one.
const refusalTime = time.Second

const (
	// listTime is how long etcd may take to say what there is: it may be without a majority.
	listTime = 20 * time.Second
	// listAgain is how long to wait before it is asked again.
	listAgain = time.Second
)

// Bounds of one request: etcd takes 1.5 MiB, and 128 operations.
const (
	maxRequest = 2 << 20
	maxOps     = 128
)

// New prepares a gatekeeper. Nothing is dialled before Serve. The caller closes it.
func New(cfg Config) (*Gatekeeper, error) {
	if err := federation.CheckLabel("federation", cfg.Federation); err != nil {
		return nil, err
	}
	creds := insecure.NewCredentials()
	if cfg.EtcdTLS != nil {
		creds = credentials.NewTLS(cfg.EtcdTLS)
	}
	conn, err := grpc.NewClient("passthrough:///"+cfg.Etcd, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 2 * time.Second,
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}}),
		// etcd allows a ping each 5 s, while there are calls. A member that was stopped is noticed
		// by it.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}))
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", cfg.Etcd, err)
	}
	g := &Gatekeeper{cfg: cfg, prefix: "/weir/" + cfg.Federation + "/", etcd: conn, kv: pb.NewKVClient(conn),
		lease: pb.NewLeaseClient(conn), watch: pb.NewWatchClient(conn), upkeep: pb.NewMaintenanceClient(conn),
		seal: signed.New(cfg.Credentials, nil, nil)}
	g.shown = shown.New(g.prefix, g.kv, g.watch, g.seal, cfg.Log, g.adopt)
	return g, nil
}

// Close ends the connection to etcd.
func (g *Gatekeeper) Close() error { return g.etcd.Close() }

// Ready is nil while the gatekeeper listens.
func (g *Gatekeeper) Ready() error {
	if !g.listening.Load() {
		return fmt.Errorf("the gatekeeper does not listen: etcd at %s did not answer yet", g.cfg.Etcd)
	}
	if s := g.etcd.GetState(); s != connectivity.Ready {
		return fmt.Errorf("etcd at %s cannot be reached (%v)", g.cfg.Etcd, s)
	}
	return nil
}

// Serve answers requests at listeners that listen opens, until ctx ends. While etcd cannot be
// reached it does not listen, so that clients go to another member.
func (g *Gatekeeper) Serve(ctx context.Context, listen func(context.Context) (net.Listener, error)) error {
	for ctx.Err() == nil {
		g.etcd.Connect()
		state := g.etcd.GetState()
		if state == connectivity.Ready {
			if err := g.serve(ctx, listen); err != nil {
				return err
			}
			continue
		}
		g.etcd.WaitForStateChange(ctx, state)
	}
	return nil
}

// serve answers requests until etcd cannot be reached, or ctx ends.
func (g *Gatekeeper) serve(ctx context.Context, listen func(context.Context) (net.Listener, error)) error {
	// Who was expelled is not let in for a moment either.
	reading, done := context.WithTimeout(ctx, listTime)
	err := g.shown.List(reading)
	done()
	if err != nil {
		g.cfg.Log.Warn("the gatekeeper does not listen yet: its etcd does not say what there is", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(listAgain):
		}
		return nil
	}
	l, err := listen(ctx)
	if err != nil {
		return err
	}
	var following sync.WaitGroup
	defer following.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	following.Go(func() { g.shown.Run(ctx) })
	g.listening.Store(true)
	defer g.listening.Store(false)
	g.cfg.Log.Info("the gatekeeper listens", "address", l.Addr().String(), "etcd", g.cfg.Etcd)
	s := grpc.NewServer(grpc.Creds(transport.Server(g.cfg.Credentials, pki.Expect{})),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 2 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second,
			MaxConnectionAge: 30 * time.Minute, MaxConnectionAgeGrace: time.Minute}), // certificates end
		grpc.UnaryInterceptor(g.unary), grpc.StreamInterceptor(g.stream))
	pb.RegisterKVServer(s, &kvServer{g: g})
	pb.RegisterLeaseServer(s, &leaseServer{g: g})
	pb.RegisterWatchServer(s, &watchServer{g: g})
	pb.RegisterMaintenanceServer(s, &upkeepServer{g: g})
	served := make(chan error, 1)
	go func() { served <- s.Serve(g.conns.On(l)) }()
	for state := connectivity.Ready; state == connectivity.Ready && g.etcd.WaitForStateChange(ctx, state); {
		state = g.etcd.GetState()
	}
	s.Stop()
	err = <-served
	if ctx.Err() == nil {
		g.cfg.Log.Warn("the gatekeeper does not listen: its etcd cannot be reached", "etcd", g.cfg.Etcd)
	}
	if errors.Is(err, grpc.ErrServerStopped) {
		err = nil
	}
	return err
}

// asker is who asks, from the certificate of the connection.
func (g *Gatekeeper) asker(ctx context.Context) (pki.Identity, error) {
	from, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return pki.Identity{}, status.Error(codes.Unauthenticated, "call without a connection")
	}
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return pki.Identity{}, status.Error(codes.Unauthenticated, "call without TLS")
	}
	id, err := pki.PeerIdentity(info.State)
	if err != nil {
		return id, status.Error(codes.Unauthenticated, err.Error())
	}
	return id, nil
}

type askerKey struct{}

// who is the asker of a call that passed admit.
func who(ctx context.Context) pki.Identity {
	id, _ := ctx.Value(askerKey{}).(pki.Identity)
	return id
}

// admit is gatekeeper-1 for a call as a whole.
func (g *Gatekeeper) admit(ctx context.Context, method string) (context.Context, error) {
	id, err := g.asker(ctx)
	if err != nil {
		return ctx, err
	}
	if !reads(id.Part) {
		part := string(id.Part)
		if part == "" {
			part = "no part: it is of an earlier release, have it issued again"
		}
		g.conns.CloseSoon(ctx, refusalTime)
		return ctx, g.refuse(id, method, "registry", "certificates of %s have no access to the registry", part)
	}
	if method == "Snapshot" && id.Part != pki.PartAdministrator {
		return ctx, g.refuse(id, method, "registry", "only an administrator takes a snapshot")
	}
	ctx = context.WithValue(ctx, askerKey{}, id)
	md, _ := metadata.FromIncomingContext(ctx)
	for _, k := range []string{"hasleader", "client-api-version"} {
		for _, v := range md.Get(k) {
			ctx = metadata.AppendToOutgoingContext(ctx, k, v)
		}
	}
	return ctx, nil
}

// kinds are what a refusal can be about.
var kinds = []string{"registry", "lease", string(federation.KindControl), string(federation.KindVolume), string(federation.KindSite),
	string(federation.KindAlive), string(federation.KindAdmission), string(federation.KindKeyring), string(federation.KindObserved),
	string(federation.KindClaim), string(federation.KindAttachment), string(federation.KindLost), string(federation.KindPurged), kindName,
	kindGateway, kindNotice, kindTestimony, kindCanary, kindReconciled, kindCharter}

// refuse logs and counts a refusal, and returns it. kind is that of the record.
func (g *Gatekeeper) refuse(id pki.Identity, method, kind, format string, a ...any) error {
	why := fmt.Sprintf(format, a...)
	if !slices.Contains(kinds, kind) {
		kind = "other" // it comes from the asker, and becomes a label
	}
	g.cfg.Log.Warn("refused", "audit", "refused", "identity", id.String(), "part", string(id.Part), "method", method, "kind", kind,
		"why", why)
	if g.cfg.Meter != nil {
		g.cfg.Meter.Refused(id.Part, kind)
	}
	return status.Errorf(codes.PermissionDenied, "%s as %q: %s", id, id.Part, why)
}

// audit logs what a person asks for.
func (g *Gatekeeper) audit(id pki.Identity, method string, writes []write) {
	if id.Part != pki.PartPerson && id.Part != pki.PartAdministrator {
		return
	}
	var keys []string
	for _, w := range writes {
		k := w.key
		if w.prefixed {
			k += "*"
		}
		if w.deletes {
			k = "-" + k
		}
		keys = append(keys, k)
	}
	g.cfg.Log.Info("asked by a person", "audit", "asked", "identity", id.String(), "part", string(id.Part), "method", method, "records",
		strings.Join(keys, " "))
}

func (g *Gatekeeper) asked(ctx context.Context, method string, begun time.Time, err error) {
	if g.cfg.Meter != nil {
		g.cfg.Meter.Asked(method, who(ctx).Part, status.Code(err), time.Since(begun))
	}
}

func methodOf(full string) string { return full[strings.LastIndexByte(full, '/')+1:] }

func (g *Gatekeeper) unary(ctx context.Context, in any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	begun, method := time.Now(), methodOf(info.FullMethod)
	ctx, err := g.admit(ctx, method)
	var out any
	if err == nil {
		err = g.safely(ctx, method, func() (err error) {
			out, err = handle(ctx, in)
			return err
		})
	}
	g.asked(ctx, method, begun, err)
	return out, err
}

// safely runs a handler. What a mistake here ends is one request, and not the gatekeeper.
func (g *Gatekeeper) safely(ctx context.Context, method string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			g.cfg.Log.Error("a mistake in the gatekeeper ended a request: please report it", "identity", who(ctx).String(), "method",
				method,
				"panic", p, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "the gatekeeper made a mistake, which its log has: what came of the request is not known")
		}
	}()
	return f()
}

// admitted is a stream whose asker is known.
type admitted struct {
	grpc.ServerStream
	ctx context.Context
}

func (a *admitted) Context() context.Context { return a.ctx }

func (g *Gatekeeper) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	begun, method := time.Now(), methodOf(info.FullMethod)
	ctx, err := g.admit(ss.Context(), method)
	if err == nil {
		err = g.safely(ctx, method, func() error { return handle(srv, &admitted{ss, ctx}) })
	}
	g.asked(ctx, method, begun, err)
	return err
}
