// SPDX-License-Identifier: Apache-2.0

package statuscmd

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weir-storage/weir/gateway/report"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/cmd/weir/volumecmd"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// tree has the commands that these tests run.
func tree(sh *cli.Shell, connect access.Connector) []*cobra.Command {
	return []*cobra.Command{volumecmd.Command(sh, connect), Command(sh, connect), FailoverCommand(sh, connect)}
}

// fakeGateway gives the answers that a test has set.
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

func TestFailover(t *testing.T) {
	b := clitest.New(t, tree)
	home, fra := b.Site("ams", "SURF"), b.Site("fra", "DFN")
	b.Want(cli.ExitOK, "created", strings.Replace(clitest.Manifest, "[fra]", "[ams]", 1), "volume", "create", "-f", "-", "--wait", "0")
	v, _, err := b.Registry.FindVolume(t.Context(), "data")
	if err != nil {
		t.Fatal(err)
	}
	control := federation.Control{Volume: v.UUID, Epoch: 1, Home: home, Members: []federation.Member{home, fra}}
	if _, err := b.Registry.SwapControl(t.Context(), v.UUID, 0, control); err != nil {
		t.Fatal(err)
	}
	replicas := []federation.ObservedReplica{{Gateway: "ams-1", Site: "ams", State: federation.ReplicaHome},
		{Gateway: "fra-1", Site: "fra", State: federation.ReplicaMember}}
	at := &fakeGateway{status: report.VolumeStatus{Role: "Home", Epoch: 1, Serving: true, Replicas: replicas},
		reply: &forwardpb.FailoverReply{Home: "fra-1", Epoch: 2}}
	there := &fakeGateway{status: report.VolumeStatus{Role: "Follower", Epoch: 1}}
	b.Serve(map[string]forwardpb.ForwardServer{"ams-1": at, "fra-1": there})
	b.Want(cli.ExitOK, "data    Ready  ams-1 (ams)  1", "", "status", "data")
	b.Want(cli.ExitOK, "volume data: home is fra-1 (fra), epoch 2, after 0.0 s", "", "failover", "data", "--to", "fra")
	if len(at.asked) != 1 || at.asked[0].GetVolume() != v.UUID || at.asked[0].GetTo() != "fra-1" || at.asked[0].GetAcceptLoss() ||
		len(there.asked) != 0 {
		t.Errorf("the home was asked %v, the other %v", at.asked, there.asked)
	}
	b.Want(cli.ExitError, "there is no site of this name", "", "failover", "data", "--to", "nowhere")

	// The command prints a refusal in the gateway's own words, and nothing else.
	const words = "volume data: gateway ams-1 is not its home, fra-1 is: ask that one"
	at.err = status.Error(codes.FailedPrecondition, words)
	if _, _, errs := b.Run("", "failover", "data"); !strings.HasSuffix(errs, "\nweir: "+words+"\n") {
		t.Errorf("got %q", errs)
	}

	// Nobody reaches this home, whose heartbeat is in the registry.
	b.Serve(map[string]forwardpb.ForwardServer{"fra-1": there})
	b.Want(cli.ExitError, "gateway ams-1 at ams-1:7400 does not answer: transport: Error while dialing: dial tcp: ", "", "failover",
		"data", "--timeout", "500ms")
	if len(there.asked) != 0 {
		t.Errorf("the other was asked %v", there.asked)
	}
}

// The command does not ask a home that is lost. It asks the target, with the person's consent.
func TestFailoverWithLoss(t *testing.T) {
	b := clitest.New(t, tree)
	b.Site("ams", "SURF")
	b.Site("fra", "DFN")
	b.Want(cli.ExitOK, "created", clitest.Manifest, "volume", "create", "-f", "-", "--wait", "0")
	v, _, err := b.Registry.FindVolume(t.Context(), "data")
	if err != nil {
		t.Fatal(err)
	}
	lost := federation.Member{Gateway: "ams-1", Site: "ams", Incarnation: "old"}
	if _, err := b.Registry.SwapControl(t.Context(), v.UUID, 0,
		federation.Control{Volume: v.UUID, Epoch: 4, Home: lost, Members: []federation.Member{lost}}); err != nil {
		t.Fatal(err)
	}
	there := &fakeGateway{status: report.VolumeStatus{Role: "Follower", Epoch: 4},
		reply: &forwardpb.FailoverReply{Home: "fra-1", Epoch: 5}}
	b.Serve(map[string]forwardpb.ForwardServer{"fra-1": there})
	b.Want(cli.ExitOK, "    weir failover data --to fra --accept-loss\n", "", "status", "data")
	b.Want(cli.ExitOK, "home is fra-1 (fra), epoch 5", "", "failover", "data", "--to", "fra", "--accept-loss")
	word := fmt.Sprintf("{Volume:%s Gateway:fra-1 Epoch:4 Change:1}", v.UUID)
	if len(there.asked) != 1 || !there.asked[0].GetAcceptLoss() || there.asked[0].GetTo() != "fra-1" || there.asked[0].GetWord() != word {
		t.Errorf("asked %v", there.asked)
	}
}
