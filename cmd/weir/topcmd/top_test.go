// SPDX-License-Identifier: Apache-2.0

package topcmd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/cmd/weir/topcmd"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// fake is a gateway that says what it was told to say, one answer after the other.
type fake struct {
	forwardpb.UnimplementedForwardServer
	asked    atomic.Int32
	activity []string
	status   string
}

func (f *fake) Activity(context.Context, *forwardpb.ActivityRequest) (*forwardpb.ActivityReply, error) {
	n := int(f.asked.Add(1)) - 1
	if len(f.activity) == 0 {
		return nil, status.Error(codes.PermissionDenied, "not for you")
	}
	return &forwardpb.ActivityReply{Json: []byte(f.activity[min(n, len(f.activity)-1)])}, nil
}

func (f *fake) Status(context.Context, *forwardpb.StatusRequest) (*forwardpb.StatusReply, error) {
	return &forwardpb.StatusReply{Json: []byte(f.status)}, nil
}

const v1, v2 = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

func bench(t *testing.T) *clitest.Bench {
	b := clitest.New(t, func(sh *cli.Shell, connect access.Connector) []*cobra.Command {
		return []*cobra.Command{topcmd.Command(sh, connect)}
	})
	for _, s := range []string{"ams", "utr", "del"} {
		b.Site(s, "SURF")
	}
	did := func(client, volume string, reads, writes, read, written, took int) string {
		return fmt.Sprintf(`{"client":%q,"volume":%q,"operations":[%d,%d,0,0],"read":%d,"written":%d,"took":%d}`,
			client, volume, reads, writes, read, written, took)
	}
	list := func(all ...string) string { return "[" + strings.Join(all, ",") + "]" }
	b.Serve(map[string]forwardpb.ForwardServer{
		"ams-1": &fake{activity: []string{
			list(did("10.0.0.1", v1, 1000, 0, 5000, 0, 1e9), did("10.0.0.2", v1, 7, 0, 9, 0, 1)),
			list(did("10.0.0.1", v1, 1100, 0, 5000+100<<20, 0, 2e9), did("10.0.0.2", v1, 7, 0, 9, 0, 1)),
			list(did("10.0.0.1", v1, 50, 0, 1<<20, 0, 1e9)), // it started again
		}, status: `[{"name":"team.one","uuid":"` + v1 + `","home":"ams-1","replicas":[{"lagSeconds":0},{"lagSeconds":72.5,` +
			`"progress":{"copied":5,"total":10,"bytesPerSecond":1048576,"secondsLeft":5}}]},` +
			`{"name":"team.two","uuid":"` + v2 + `","home":"utr-1"}]`},
		"utr-1": &fake{activity: []string{"[]", list(did("10.0.1.1", v1, 0, 10, 0, 1<<20, 1e6))},
			status: `[{"name":"team.one","uuid":"` + v1 + `","home":"ams-1"}]`},
		"del-1": &fake{},
	})
	return b
}

// TestTop: what was done between two looks, by volume over all gateways and by client; a gateway
// that refuses is named, and a counter that began anew is not taken for a negative one.
func TestTop(t *testing.T) {
	b := bench(t)
	code, out, errs := b.Run("", "top", "--count", "2", "--interval", "100ms", "-o", "json")
	if code != cli.ExitOK {
		t.Fatal(code, errs)
	}
	var got []topcmd.Report
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var r topcmd.Report
		if err := d.Decode(&r); err != nil {
			t.Fatal(err, out)
		}
		got = append(got, r)
	}
	if len(got) != 2 {
		t.Fatalf("%d reports:\n%s", len(got), out)
	}
	// The clock of a test stands: a difference counts as of a millisecond.
	first, again := got[0], got[1]
	if len(first.Volumes) != 2 || len(first.Clients) != 2 {
		t.Fatalf("%+v", first)
	}
	v, c := first.Volumes[0], first.Clients[0]
	if v.Volume != "team.one" || v.Home != "ams-1" || v.Lag == nil || *v.Lag != 72.5 || v.Progress != "50%, 1.0MiB/s, 5s left" ||
		v.Reads != 100e3 || v.Writes != 10e3 || v.Read != 100<<20*1e3 || v.Written != 1<<20*1e3 {
		t.Errorf("%+v", v)
	}
	if two := first.Volumes[1]; two.Volume != "team.two" || two.Home != "utr-1" || two.Lag != nil || two.Reads != 0 {
		t.Errorf("a volume of which the home said nothing: %+v", two)
	}
	if c.Client != "10.0.0.1" || c.Gateway != "ams-1" || c.Volume != "team.one" || c.Reads != 100e3 || c.Latency != 0.01 {
		t.Errorf("%+v", c)
	}
	if len(first.Gateways) != 1 || first.Gateways[0].Gateway != "del-1" || first.Gateways[0].Problem != "not for you" {
		t.Errorf("%+v", first.Gateways)
	}
	if r := again.Clients[0]; r.Reads != 50e3 {
		t.Errorf("after a restart: %+v", r)
	}
}

func TestTopForPeople(t *testing.T) {
	b := bench(t)
	out := b.Want(cli.ExitOK, "team.one  ams-1  1m12s  100000", "", "top", "--count", "1", "--interval", "100ms")
	for _, want := range []string{"CLIENT    GATEWAY  VOLUME", "10.0.0.1  ams-1    team.one", "50%, 1.0MiB/s, 5s left",
		"del-1: not for you"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("what is no terminal gets its codes")
	}
	out = b.Want(cli.ExitOK, "team.one", "", "top", "--count", "1", "--interval", "100ms", "--rows", "1", "--site", "utr")
	if strings.Contains(out, "10.0.0.1") || strings.Contains(out, "team.two") {
		t.Errorf("one row of one site:\n%s", out)
	}
	b.Want(cli.ExitUsage, "--interval 1ms: write at least 100ms", "", "top", "--interval", "1ms")
	b.Want(cli.ExitUsage, "--count -1", "", "top", "--count", "-1")
	b.Want(cli.ExitUsage, "--rows -1", "", "top", "--rows", "-1")
	b.Want(cli.ExitError, `site "xyz": there is no site of this name`, "", "top", "--site", "xyz")
}
