// SPDX-License-Identifier: Apache-2.0

package dfcmd_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/cmd/weir/dfcmd"
	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/cmd/weir/volumecmd"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// fake is a gateway that says what it was told to say.
type fake struct {
	forwardpb.UnimplementedForwardServer
	space string
}

func (f *fake) Space(context.Context, *forwardpb.SpaceRequest) (*forwardpb.SpaceReply, error) {
	if f.space == "" {
		return nil, status.Error(codes.NotFound, "no copy here")
	}
	return &forwardpb.SpaceReply{Json: []byte(f.space)}, nil
}

func TestDf(t *testing.T) {
	b := clitest.New(t, func(sh *cli.Shell, connect access.Connector) []*cobra.Command {
		return []*cobra.Command{dfcmd.Command(sh, connect), volumecmd.Command(sh, connect)}
	})
	for _, s := range []string{"ams", "utr", "del"} {
		b.Site(s, "SURF")
	}
	b.Want(cli.ExitOK, "", "apiVersion: storage.weir.dev/v1alpha1\nkind: GeoVolume\nmetadata: {name: data}\nspec: {size: 1Gi, "+
		"replication: {copies: 2, sites: {required: [ams, utr]}}}\n", "volume", "create", "-f", "-", "--wait", "0")
	const good = `{"store":{"objects":4,"bytes":6291456,"parts":[{"kind":"live","objects":2,"bytes":3145728},
		{"kind":"snapshots","objects":0,"bytes":1048576},{"kind":"dead","objects":0,"bytes":524288},
		{"kind":"checkpoints","objects":1,"bytes":524288},
		{"kind":"orphans","objects":1,"bytes":1048576}],"waiting":{"objects":1,"bytes":2048},"strays":["u/lost"]},
		"pool":{"log":4194304,"metadata":1024}}`
	ams, utr := &fake{space: good}, &fake{}
	b.Serve(map[string]forwardpb.ForwardServer{"ams-1": ams, "utr-1": utr, "del-1": &fake{}})
	out := b.Want(cli.ExitOK, "ams   ams-1    3.0 MiB  1.0 MiB    512.0 KiB  -    -      -          512.0 KiB    -          1.0 MiB  "+
		"6.0 MiB  4        2.0 KiB", "", "df", "data")
	for _, want := range []string{"ams   ams-1    4.0 MiB   1.0 KiB        -", "ams-1: 1 objects are orphans, such as u/lost",
		"ams-1: the columns add up to what the store of ams lists: 4 objects, 6291456 bytes", "utr-1: no copy here"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "del") {
		t.Errorf("a site without a copy was asked:\n%s", out)
	}
	var all []dfcmd.Report
	if err := json.Unmarshal([]byte(b.Want(cli.ExitOK, "", "", "df", "data", "-o", "json")), &all); err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	ams.space = strings.Replace(good, `"bytes":6291456`, `"bytes":6291457`, 1)
	b.Want(cli.ExitError, "the parts have 4 objects and 6291456 bytes, and the store lists 4 and 6291457", "", "df", "data")
	ams.space = strings.Replace(good, `"strays"`, `"differs":["it lacks x"],"strays"`, 1)
	b.Want(cli.ExitError, "the store differs from what the log says: it lacks x", "", "df", "data")
	ams.space = `{"pool":{"log":1}}`
	b.Want(cli.ExitOK, "ams-1: site ams has no store", "", "df", "data")
	b.Want(cli.ExitError, "volume none: there is no volume of this name", "", "df", "none")
	b.Want(cli.ExitUsage, "-o", "", "df", "data", "-o", "xml")
}
