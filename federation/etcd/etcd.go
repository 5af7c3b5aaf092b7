// SPDX-License-Identifier: Apache-2.0

// Package etcd is the registry on an etcd cluster of three or five members at different sites. Keys
// are those of package federation below "/weir/<federation>/". Reads are linearizable; every call
// has its own deadline; a change whose answer did not come is ErrUnknown and is never sent again
// from here.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/internal/records"
	"github.com/weir-storage/weir/federation/internal/sieve"
	"github.com/weir-storage/weir/federation/signed"
)

// Config is how to reach the registry.
type Config struct {
	// Endpoints are URLs, such as https://registry-1.example.org:2379.
	Endpoints []string
	// Federation is its name, a DNS label: the prefix of all keys.
	Federation string
	// TLS is the client's side of mutual TLS; nil only for tests on one machine.
	TLS *tls.Config
	// Transport makes the credentials of connections from TLS; nil: those that gRPC has.
	Transport func(*tls.Config) credentials.TransportCredentials
	// CallTimeout bounds each call; 0: 5 s. The registry answers nothing while its members elect a
	// leader, which takes 2 to 4 s, and as long again when no majority agreed.
	CallTimeout time.Duration
	// After is a timer, as time.After is. It is required.
	After func(time.Duration) <-chan time.Time
	// Guard may be nil: then a registry that went back is not noticed.
	Guard *federation.Guard
	// Seal signs what is written, and checks what is read; nil: nothing is signed, and everything
	// counts.
	Seal *signed.Seal
	// Observe is told when a call of etcd's API begins. What it returns is called when that ends.
	// nil: nobody is told.
	Observe func(method string) (ended func(error))
	// Log hears of lost and regained heartbeats; nil: nobody does.
	Log *slog.Logger
}

// Registry is a connection to the registry.
type Registry struct {
	*records.Registry
	kv *kv
}

var _ federation.Registry = (*Registry)(nil)

const (
	defaultCallTimeout = 5 * time.Second
	// connectTime is how long a member may take until it is connected, at most a call's time.
	connectTime = 5 * time.Second
	// tryTime is how long a read waits for one member before it asks the next one: it may have been
	// stopped, or cut off from the others.
	tryTime = 3 * time.Second
)

// Open prepares a connection. It does not wait for the registry: a gateway starts without it.
func Open(cfg Config) (*Registry, error) {
	if err := federation.CheckLabel("federation", cfg.Federation); err != nil {
		return nil, err
	}
	if len(cfg.Endpoints) == 0 {
		return nil, &federation.Error{Op: "open", Kind: "registry", Err: federation.ErrInvalid,
			Detail: "no endpoints: give the URLs of its members, such as https://registry-1.example.org:2379"}
	}
	if cfg.After == nil {
		return nil, &federation.Error{Op: "open", Kind: "registry", Err: federation.ErrInvalid, Detail: "no timer: give After"}
	}
	if cfg.CallTimeout == 0 {
		cfg.CallTimeout = defaultCallTimeout
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	shakes := &handshakes{}
	dial := []grpc.DialOption{
		// gRPC's own default waits up to two minutes before it tries a registry that was down
		// again.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: min(connectTime, cfg.CallTimeout),
			Backoff: backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}}),
	}
	if cfg.TLS != nil {
		by := credentials.NewTLS
		if cfg.Transport != nil {
			by = cfg.Transport
		}
		dial = append(dial, grpc.WithTransportCredentials(newRecorder(by(cfg.TLS), shakes)))
	}
	if cfg.Observe != nil {
		dial = append(dial, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
			cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ended := cfg.Observe(path.Base(method))
			err := invoke(ctx, method, req, reply, cc, opts...)
			ended(err)
			return err
		}))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		TLS:                  cfg.TLS,
		DialTimeout:          min(connectTime, cfg.CallTimeout),
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		Logger:               zap.NewNop(), // it logs each retry; callers get the errors
		DialOptions:          dial,
	})
	if err != nil {
		return nil, &federation.Error{Op: "open", Kind: "registry", Name: strings.Join(cfg.Endpoints, ","), Err: federation.ErrInvalid,
			Detail: err.Error()}
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &kv{client: client, cfg: cfg, prefix: "/weir/" + cfg.Federation + "/", shakes: shakes, ctx: ctx, stop: stop}
	var over records.KV = c
	if cfg.Seal != nil {
		over = sieve.New(c, cfg.Seal, cfg.Guard)
	}
	return &Registry{records.New(over, cfg.Guard, c.pause), c}, nil
}

// kv implements records.KV.
type kv struct {
	client *clientv3.Client
	cfg    Config
	prefix string
	shakes *handshakes
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
}

// pause waits for a second, before a watch or a heartbeat is tried again.
func (c *kv) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.cfg.After(time.Second):
		return nil
	}
}

func (c *kv) Close() error {
	c.stop()
	if err := c.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close registry: %w", err)
	}
	return nil
}

// readAgain is after how long a read is tried again that met a member which went away: others
// answer.
var readAgain = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, time.Second}

// electing is how often a read is tried again while the members elect a leader.
const electing = 300 * time.Millisecond

// read asks members until one answers, in the time of ctx. Those that are away are asked again as
// readAgain says, and those that have no leader as long as there is time. When one keeps silent,
// the next is asked: later of a long list than of a record.
func (c *kv) read(ctx context.Context, ops []clientv3.Op, long bool) (*clientv3.TxnResponse, error) {
	patience := tryTime
	if long { // it may have much to send
		patience = max(defaultCallTimeout, c.cfg.CallTimeout/3)
	}
	for left := readAgain; ; {
		try, cancel := context.WithTimeout(ctx, patience)
		res, err := c.client.Txn(try).Then(ops...).Commit()
		silent := try.Err() != nil
		cancel()
		switch {
		case err == nil, ctx.Err() != nil:
			return res, err
		case silent:
			continue
		}
		wait := electing
		if !leaderless(err) {
			if len(left) == 0 || !away(err) {
				return res, err
			}
			wait, left = left[0], left[1:]
		}
		select {
		case <-ctx.Done():
		case <-c.cfg.After(wait):
		}
	}
}

func (c *kv) Get(ctx context.Context, reads ...records.Read) ([][]records.Pair, federation.Head, error) {
	call, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	ops := make([]clientv3.Op, len(reads))
	for i, r := range reads {
		var opts []clientv3.OpOption
		if r.Prefix {
			opts = append(opts, clientv3.WithPrefix())
		}
		ops[i] = clientv3.OpGet(c.prefix+r.Key, opts...)
	}
	res, err := c.read(call, ops, slices.ContainsFunc(reads, func(r records.Read) bool { return r.Prefix }))
	if err != nil {
		return nil, federation.Head{}, c.readError(ctx, err)
	}
	out := make([][]records.Pair, len(reads))
	for i, r := range res.Responses {
		for _, p := range r.GetResponseRange().Kvs {
			out[i] = append(out[i], records.Pair{Key: strings.TrimPrefix(string(p.Key), c.prefix), Value: p.Value,
				Revision: federation.Revision(p.ModRevision), Hidden: signed.Hidden(p.Value)})
		}
	}
	return out, federation.Head{Cluster: res.Header.ClusterId, Revision: federation.Revision(res.Header.Revision)}, nil
}

func (c *kv) Commit(ctx context.Context, conds []records.Condition, writes []records.Write) (bool, federation.Head, error) {
	call, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	cmps := make([]clientv3.Cmp, len(conds))
	for i, q := range conds {
		cmps[i] = clientv3.Compare(clientv3.ModRevision(c.prefix+q.Key), "=", int64(q.Revision))
		if q.Prefix {
			cmps[i] = cmps[i].WithPrefix() // etcd compares an empty range as revision 0
		}
	}
	ops := make([]clientv3.Op, len(writes))
	for i, w := range writes {
		switch {
		case w.Delete && w.Prefix:
			ops[i] = clientv3.OpDelete(c.prefix+w.Key, clientv3.WithPrefix())
		case w.Delete:
			ops[i] = clientv3.OpDelete(c.prefix + w.Key)
		default:
			ops[i] = clientv3.OpPut(c.prefix+w.Key, string(w.Value))
		}
	}
	res, err := c.client.Txn(call).If(cmps...).Then(ops...).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) && shows(conds, writes) && c.still(ctx, cmps) {
		return false, federation.Head{}, c.noSpace(federation.ErrUnavailable, err)
	}
	if err != nil {
		return false, federation.Head{}, c.changeError(ctx, err)
	}
	return res.Succeeded, federation.Head{Cluster: res.Header.ClusterId, Revision: federation.Revision(res.Header.Revision)}, nil
}

// shows reports whether a condition no longer holds once the writes are applied.
func shows(conds []records.Condition, writes []records.Write) bool {
	return slices.ContainsFunc(writes, func(w records.Write) bool {
		return !w.Delete && slices.ContainsFunc(conds, func(q records.Condition) bool { return !q.Prefix && q.Key == w.Key })
	})
}

// still reports whether cmps hold. It asks the majority: etcd would answer a transaction that reads
// nothing from one member's memory.
func (c *kv) still(ctx context.Context, cmps []clientv3.Cmp) bool {
	call, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	res, err := c.client.Txn(call).If(cmps...).Then(clientv3.OpGet(c.prefix, clientv3.WithCountOnly())).Commit()
	return err == nil && res.Succeeded
}

func (c *kv) Follow(ctx context.Context, after federation.Revision, fn func(federation.Head, []records.Pair) error) error {
	// Ends with fn's error, with ctx, or with Close. Without a leader the member is cut off: go to
	// another.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	// No WithFragment: a transaction's events arrive in one response.
	for res := range c.client.Watch(ctx, c.prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(after)+1)) {
		if res.CompactRevision != 0 {
			return records.ErrCompacted
		}
		if err := res.Err(); err != nil {
			return c.readError(ctx, err)
		}
		pairs := make([]records.Pair, len(res.Events))
		for i, e := range res.Events {
			pairs[i] = records.Pair{Key: strings.TrimPrefix(string(e.Kv.Key), c.prefix), Value: e.Kv.Value,
				Revision: federation.Revision(e.Kv.ModRevision), Deleted: e.Type == clientv3.EventTypeDelete,
				Hidden: signed.Hidden(e.Kv.Value)}
		}
		if err := fn(federation.Head{Cluster: res.Header.ClusterId, Revision: federation.Revision(res.Header.Revision)},
			pairs); err != nil {
			return err
		}
	}
	if c.ctx.Err() != nil {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.down(errors.New("the watch ended"))
}

// Snapshot returns a snapshot of the whole etcd, as `etcdctl snapshot save` writes it: the database
// and its SHA-256. The caller reads it to the end and closes it. It ends with ctx.
func (r *Registry) Snapshot(ctx context.Context) (io.ReadCloser, error) {
	out, err := r.kv.client.Snapshot(ctx)
	if err != nil {
		return nil, r.kv.readError(ctx, err)
	}
	return out, nil
}
