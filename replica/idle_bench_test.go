// SPDX-License-Identifier: Apache-2.0

package replica_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// counted counts what is sent and what has come, on the wire.
type counted struct{ sent, came, bytes atomic.Int64 }

func (*counted) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*counted) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*counted) HandleConn(context.Context, stats.ConnStats)                       {}
func (c *counted) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.OutPayload:
		c.sent.Add(1)
		c.bytes.Add(int64(s.WireLength))
	case *stats.InPayload:
		c.came.Add(1)
	}
}

const fromKey = "from"

// overConnections returns a fleet's transports: real ones, over connections in memory.
func overConnections(c *counted) func(f *fleet, gateway string) replica.Transport {
	listeners := map[string]*bufconn.Listener{}
	return func(f *fleet, gateway string) replica.Transport {
		l := bufconn.Listen(1 << 20)
		listeners[gateway] = l
		server := grpc.NewServer(grpc.StatsHandler(c), grpc.MaxRecvMsgSize(16<<20))
		f.Cleanup(server.Stop)
		dial := func(to string) (*grpc.ClientConn, error) {
			return grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(c),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listeners[to].DialContext(ctx) }),
				grpc.WithStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string,
					next grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
					return next(metadata.AppendToOutgoingContext(ctx, fromKey, gateway), d, conn, method, o...)
				}))
		}
		var node func() *replica.Node
		t := peer.New(dial, func(name string) { node().PeerDown(name) }, clockwork.NewRealClock(), slog.New(slog.DiscardHandler))
		f.Cleanup(t.Close)
		node = func() *replica.Node { return f.nodes[gateway] }
		s := &peer.Server{Caller: func(ctx context.Context) (string, error) {
			from := metadata.ValueFromIncomingContext(ctx, fromKey)
			if len(from) != 1 {
				return "", errors.New("no sender")
			}
			return from[0], nil
		}}
		s.Deliver = func(all []replica.Envelope) { node().Deliver(all) }
		peerpb.RegisterPeerServer(server, s)
		go func() { _ = server.Serve(l) }() // ends with Stop
		return t
	}
}

// quiet waits until all that was sent has come and been handled.
func (f *fleet) quiet(c *counted) {
	for last, n := int64(-1), 0; n < 3; {
		time.Sleep(200 * time.Microsecond)
		if sent := c.sent.Load(); sent == last && sent == c.came.Load() && !f.busy() {
			n++
		} else {
			last, n = sent, 0
		}
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // never fails
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// What idle volumes cost, of all gateways together, for each second of their time. An iteration is
// a heartbeat.
func BenchmarkIdle(b *testing.B) {
	for _, c := range []struct{ volumes, gateways, holders int }{{1000, 50, 50}, {2000, 50, 50}, {1000, 50, 10}, {1000, 25, 25}} {
		b.Run(fmt.Sprintf("volumes=%d/gateways=%d/holders=%d", c.volumes, c.gateways, c.holders), func(b *testing.B) {
			n := &counted{}
			f := newFleet(b, c.gateways, c.holders, c.volumes, overConnections(n))
			f.settle = func() { f.quiet(n) }
			f.begin()
			sent, bytes, used := n.sent.Load(), n.bytes.Load(), cpu()
			b.ResetTimer()
			beats := 0
			for b.Loop() {
				beats++
				f.beat()
			}
			seconds := float64(beats) * fleetBeat.Seconds()
			if v := f.lapsed(); v >= 0 {
				b.Fatalf("a promise for volume %d lapsed", v)
			}
			b.ReportMetric(float64(n.sent.Load()-sent)/seconds, "messages/s")
			b.ReportMetric(float64(n.bytes.Load()-bytes)/seconds, "bytes/s")
			b.ReportMetric((cpu()-used).Seconds()/seconds, "cpu-s/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
