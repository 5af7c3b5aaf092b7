// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/report"
)

// fakeGateway answers as told.
type fakeGateway struct {
	forwardpb.UnimplementedForwardServer
	status report.VolumeStatus
	reply  *forwardpb.FailoverReply
	err    error

	mu    sync.Mutex
	asked []*forwardpb.FailoverRequest
}

func (f *fakeGateway) Status(_ context.Context, q *forwardpb.StatusRequest) (*forwardpb.StatusReply, error) {
	f.status.UUID = q.GetVolume()
	b, err := json.Marshal([]report.VolumeStatus{f.status})
	return &forwardpb.StatusReply{Json: b}, err
}

func (f *fakeGateway) Failover(_ context.Context, q *forwardpb.FailoverRequest) (*forwardpb.FailoverReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, q)
	return f.reply, f.err
}

// serve runs fakes, by gateway, that the bench dials; a gateway that is nil does not answer.
func (b *bench) serve(all map[string]*fakeGateway) {
	b.t.Helper()
	listeners := map[string]*bufconn.Listener{}
	for name, f := range all {
		l := bufconn.Listen(1 << 16)
		s := grpc.NewServer()
		forwardpb.RegisterForwardServer(s, f)
		go func() { _ = s.Serve(l) }() // ends with Stop
		b.t.Cleanup(s.Stop)
		listeners[name] = l
	}
	b.dial = func(_ federation.Site, g federation.Gateway) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///"+g.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				if l := listeners[g.Name]; l != nil {
					return l.DialContext(ctx)
				}
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: net.UnknownNetworkError("refused " + addr)}
			}))
	}
}

func TestFailover(t *testing.T) {
	b := newBench(t)
	home, fra := b.site("ams", "SURF"), b.site("fra", "DFN")
	b.want(exitOK, "created", strings.Replace(manifest, "[fra]", "[ams]", 1), "volume", "create", "-f", "-", "--wait", "0")
	v, _, err := b.registry.FindVolume(t.Context(), "data")
	if err != nil {
		t.Fatal(err)
	}
	control := federation.Control{Volume: v.UUID, Epoch: 1, Home: home, Members: []federation.Member{home, fra}}
	if _, err := b.registry.SwapControl(t.Context(), v.UUID, 0, control); err != nil {
		t.Fatal(err)
	}
	replicas := []federation.ObservedReplica{{Gateway: "ams-1", Site: "ams", State: federation.ReplicaHome}, {Gateway: "fra-1", Site: "fra", State: federation.ReplicaMember}}
	at := &fakeGateway{status: report.VolumeStatus{Role: "Home", Epoch: 1, Serving: true, Replicas: replicas}, reply: &forwardpb.FailoverReply{Home: "fra-1", Epoch: 2}}
	there := &fakeGateway{status: report.VolumeStatus{Role: "Follower", Epoch: 1}}
	b.serve(map[string]*fakeGateway{"ams-1": at, "fra-1": there})
	b.want(exitOK, "data    Ready  ams-1 (ams)  1", "", "status", "data")
	b.want(exitOK, "volume data: home is fra-1 (fra), epoch 2, after 0.0 s", "", "failover", "data", "--to", "fra")
	if len(at.asked) != 1 || at.asked[0].GetVolume() != v.UUID || at.asked[0].GetTo() != "fra-1" || at.asked[0].GetAcceptLoss() || len(there.asked) != 0 {
		t.Errorf("the home was asked %v, the other %v", at.asked, there.asked)
	}
	b.want(exitError, "there is no site of this name", "", "failover", "data", "--to", "nowhere")

	// A refusal is told in the gateway's own words, and nothing else.
	const words = "volume data: gateway ams-1 is not its home, fra-1 is: ask that one"
	at.err = status.Error(codes.FailedPrecondition, words)
	if _, _, errs := b.run("", "failover", "data"); !strings.HasSuffix(errs, "\nweir: "+words+"\n") {
		t.Errorf("got %q", errs)
	}

	// A home whose heartbeat is there, and that nobody hears.
	b.serve(map[string]*fakeGateway{"fra-1": there})
	b.want(exitError, "gateway ams-1 at ams-1:7400 does not answer: transport: Error while dialing: dial tcp: ", "", "failover", "data", "--timeout", "500ms")
	if len(there.asked) != 0 {
		t.Errorf("the other was asked %v", there.asked)
	}
}

// A home that is lost is not asked; the target is, with the person's word.
func TestFailoverWithLoss(t *testing.T) {
	b := newBench(t)
	b.site("ams", "SURF")
	b.site("fra", "DFN")
	b.want(exitOK, "created", manifest, "volume", "create", "-f", "-", "--wait", "0")
	v, _, err := b.registry.FindVolume(t.Context(), "data")
	if err != nil {
		t.Fatal(err)
	}
	lost := federation.Member{Gateway: "ams-1", Site: "ams", Incarnation: "old"}
	if _, err := b.registry.SwapControl(t.Context(), v.UUID, 0, federation.Control{Volume: v.UUID, Epoch: 4, Home: lost, Members: []federation.Member{lost}}); err != nil {
		t.Fatal(err)
	}
	there := &fakeGateway{status: report.VolumeStatus{Role: "Follower", Epoch: 4}, reply: &forwardpb.FailoverReply{Home: "fra-1", Epoch: 5}}
	b.serve(map[string]*fakeGateway{"fra-1": there})
	b.want(exitOK, "    weir failover data --to fra --accept-loss\n", "", "status", "data")
	b.want(exitOK, "home is fra-1 (fra), epoch 5", "", "failover", "data", "--to", "fra", "--accept-loss")
	if len(there.asked) != 1 || !there.asked[0].GetAcceptLoss() || there.asked[0].GetTo() != "fra-1" {
		t.Errorf("asked %v", there.asked)
	}
}
