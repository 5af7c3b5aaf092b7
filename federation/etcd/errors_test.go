// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd/etcdtest"
	"github.com/weir-storage/weir/federation/internal/records"
)

// TestWhatWasRefused: of a change that etcd answers with "no space" nobody knows whether it was
// applied. One that it had no time for was not.
func TestWhatWasRefused(t *testing.T) {
	c := &kv{ctx: t.Context(), cfg: Config{Endpoints: []string{"https://r:2379"}}}
	for err, want := range map[error]error{
		rpctypes.ErrNoSpace:         federation.ErrUnknown,
		rpctypes.ErrTooManyRequests: federation.ErrUnavailable,
	} {
		if got := c.changeError(t.Context(), err); !errors.Is(got, want) {
			t.Errorf("%v is %v, want %v", err, got, want)
		}
	}
}

// TestSwapIntoABlackHole: a registry that takes what it gets and never answers did not get a swap,
// because that reads first. The caller's patience ends before the call's.
func TestSwapIntoABlackHole(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}()
	r, err := Open(Config{Federation: "test", Endpoints: []string{"http://" + l.Addr().String()}, After: time.After})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = r.SwapControl(ctx, "v1", 0, federation.Control{Volume: "v1", Epoch: 1})
	if !errors.Is(err, federation.ErrUnavailable) || errors.Is(err, federation.ErrUnknown) {
		t.Errorf("the swap ends with %v", err)
	}
}

// TestChangeWithoutSpace: what an etcd without space refused is known not to have been made. What
// it had made before it answered is not known to the caller.
func TestChangeWithoutSpace(t *testing.T) {
	server := etcdtest.Start(t, nil)
	r, err := Open(Config{Federation: "test", Endpoints: []string{server.Endpoint}, After: time.After})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	c := r.kv
	put := func(rev federation.Revision) (federation.Head, error) {
		_, h, err := c.Commit(t.Context(), []records.Condition{{Key: "k", Revision: rev}}, []records.Write{{Key: "k", Value: []byte("x")}})
		return h, err
	}
	h, err := put(0)
	if err != nil {
		t.Fatal(err)
	}
	at := func(rev federation.Revision) []clientv3.Cmp {
		return []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(c.prefix+"k"), "=", int64(rev))}
	}
	if !c.still(t.Context(), at(h.Revision)) || c.still(t.Context(), at(0)) {
		t.Error("it is not seen whether a change was made")
	}
	alarm := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE}
	if _, err := etcdserverpb.NewMaintenanceClient(c.client.ActiveConnection()).Alarm(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	if _, err := put(h.Revision); !errors.Is(err, federation.ErrUnavailable) || !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a change without space ends with %v", err)
	}
	if _, _, err := c.Commit(t.Context(), nil, []records.Write{{Key: "k", Value: []byte("y")}}); !errors.Is(err, federation.ErrUnknown) {
		t.Errorf("a change of which nothing shows whether it was made ends with %v", err)
	}
}

// electorate is an etcd without a leader, for some requests.
type electorate struct {
	etcdserverpb.UnimplementedKVServer
	left atomic.Int64
}

// Txn implements etcdserverpb.KVServer.
func (e *electorate) Txn(context.Context, *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	switch n := e.left.Add(-1); {
	case n < 0:
		return &etcdserverpb.TxnResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 1},
			Responses: []*etcdserverpb.ResponseOp{{Response: &etcdserverpb.ResponseOp_ResponseRange{
				ResponseRange: &etcdserverpb.RangeResponse{}}}}}, nil
	case n%2 == 0:
		return nil, rpctypes.ErrGRPCLeaderChanged
	default:
		return nil, rpctypes.ErrGRPCNoLeader
	}
}

// TestReadWaitsForALeader: a read is asked again while members elect a leader, more often than it
// would be of a member that went away; and no longer than a call may take.
func TestReadWaitsForALeader(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := new(electorate)
	s := grpc.NewServer()
	etcdserverpb.RegisterKVServer(s, e)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	var waited []time.Duration
	r := open(t, Config{Endpoints: []string{"http://" + l.Addr().String()}, CallTimeout: time.Minute})
	r.kv.cfg.After = func(d time.Duration) <-chan time.Time {
		waited = append(waited, d)
		return time.After(0)
	}
	e.left.Store(10)
	if _, _, err := r.GetControl(t.Context(), "v"); !errors.Is(err, federation.ErrNotFound) || len(waited) != 10 {
		t.Errorf("error %v, after %v", err, waited)
	}
	e.left.Store(1 << 40)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := r.GetControl(ctx, "v"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the end of time", err)
	}
}
