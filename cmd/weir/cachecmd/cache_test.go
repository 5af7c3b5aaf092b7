// SPDX-License-Identifier: Apache-2.0

package cachecmd_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/cmd/weir/cachecmd"
	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/cmd/weir/volumecmd"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// fake is a gateway that says what it was told to say.
type fake struct {
	forwardpb.UnimplementedForwardServer
	cache string
	warm  []*forwardpb.WarmProgress
	asked *forwardpb.WarmRequest
}

func (f *fake) Cache(context.Context, *forwardpb.CacheRequest) (*forwardpb.CacheReply, error) {
	if f.cache == "" {
		return nil, status.Error(codes.PermissionDenied, "not for you")
	}
	return &forwardpb.CacheReply{Json: []byte(f.cache)}, nil
}

func (f *fake) Warm(q *forwardpb.WarmRequest, to forwardpb.Forward_WarmServer) error {
	f.asked = &forwardpb.WarmRequest{Volume: q.Volume, Path: q.Path}
	for _, p := range f.warm {
		if err := to.Send(p); err != nil {
			return err
		}
	}
	if f.warm == nil {
		return status.Error(codes.FailedPrecondition, "no copy here")
	}
	return nil
}

// bench has a volume at ams, and three gateways.
func bench(t *testing.T) (b *clitest.Bench, gateways map[string]*fake, uuid string) {
	b = clitest.New(t, func(sh *cli.Shell, connect access.Connector) []*cobra.Command {
		return []*cobra.Command{cachecmd.Command(sh, connect), cachecmd.WarmCommand(sh, connect), volumecmd.Command(sh, connect)}
	})
	for _, s := range []string{"ams", "utr", "del"} {
		b.Site(s, "SURF")
	}
	b.Want(cli.ExitOK, "", "apiVersion: storage.weir.dev/v1alpha1\nkind: GeoVolume\nmetadata: {name: data}\nspec: {size: 1Gi, "+
		"replication: {copies: 2, sites: {required: [ams, utr]}}}\n", "volume", "create", "-f", "-", "--wait", "0")
	list := b.Want(cli.ExitOK, "", "", "volume", "list", "-o", "json")
	var volumes []struct {
		UUID string `json:"uuid"`
	}
	if err := json.Unmarshal([]byte(list), &volumes); err != nil || len(volumes) != 1 || volumes[0].UUID == "" {
		t.Fatalf("%v in %s", err, list)
	}
	uuid = volumes[0].UUID
	gateways = map[string]*fake{
		"ams-1": {cache: `{"pools":[{"name":"main","limit":1073741824,"used":536870912,"kept":104857600},{"name":"fast","limit":1048576}],
			"memory":{"limit":1,"used":1048576,"hits":3,"misses":1}, "volumes":[{"volume":"data","uuid":"` + uuid + `","pool":"main","moves":{"to":"fast","bytes":1048576},"segments":67108864,"once":20971520,"often":16777216,"pinned":4194304,"pins":{"files":2,"wanted":8388608,"left":4194304},"limit":209715200,
			"reserve":0,"reads":{"log":7,"cache":2,"elsewhere":1,"elsewhereBytes":65536}},
			{"volume":"other","uuid":"22222222-2222-4222-8222-222222222222","pool":"main","moves":{"to":"fast","problem":"full"},"unmatched":"cache.pool: no pool","reads":{}}]}`},
		"utr-1": {cache: `{"pool":{},"memory":{},"volumes":[]}`},
		"del-1": {},
	}
	b.Serve(map[string]forwardpb.ForwardServer{"ams-1": gateways["ams-1"], "utr-1": gateways["utr-1"], "del-1": gateways["del-1"]})
	return b, gateways, uuid
}

func TestCache(t *testing.T) {
	b, _, _ := bench(t)
	const line = "data    ams-1    ams   main > fast (1.0 MiB)  64.0 MiB  20.0 MiB  16.0 MiB  4.0 MiB of 8.0 MiB  " +
		"200.0 MiB  -        90.0%  64.0 KiB"
	out := b.Want(cli.ExitOK, line, "", "cache")
	for _, want := range []string{"ams-1    ams   main  1.0 GiB  512.0 MiB  100.0 MiB     1.0 MiB  75.0%", "del-1: not for you",
		"other: it stays on pool main, and does not move to fast: full", "other: cache.pool: no pool", "other   ams-1"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	out = b.Want(cli.ExitOK, "data", "", "cache", "data", "--site", "ams")
	if strings.Contains(out, "other") || strings.Contains(out, "utr") {
		t.Errorf("one volume at one site:\n%s", out)
	}
	var all []cachecmd.Report
	if err := json.Unmarshal([]byte(b.Want(cli.ExitOK, "", "", "cache", "-o", "json")), &all); err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	b.Want(cli.ExitError, `site "xyz": there is no site of this name`, "", "cache", "--site", "xyz")
	b.Want(cli.ExitError, "volume none: there is no volume of this name", "", "cache", "none")
}

func TestWarm(t *testing.T) {
	b, gateways, uuid := bench(t)
	ams := gateways["ams-1"]
	ams.warm = []*forwardpb.WarmProgress{{Counting: true, Files: 1}, {Files: 1, Missing: 100},
		{Done: true, Files: 2, Bytes: 4096, Moved: 1024}}
	b.Want(cli.ExitOK, "volume data: 2 files, 4.0 KiB; 1.0 KiB came to ams-1 (ams), the rest was there", "",
		"warm", "data", "/runs", "--site", "ams")
	if ams.asked.GetVolume() != uuid || ams.asked.GetPath() != "/runs" {
		t.Errorf("the gateway was asked for %v", ams.asked)
	}
	b.Want(cli.ExitOK, `"moved": 1024`, "", "warm", "data", "--site", "ams", "-o", "json")
	ams.warm = []*forwardpb.WarmProgress{{Done: true, Left: 2048}}
	b.Want(cli.ExitError, "2.0 KiB found no place on the pool of ams-1: raise cache.size", "", "warm", "data", "--site", "ams")
	ams.warm = []*forwardpb.WarmProgress{{Counting: true}}
	b.Want(cli.ExitError, "gateway ams-1 ended before it was done", "", "warm", "data", "--site", "ams")
	b.Want(cli.ExitError, "no copy here", "", "warm", "data", "--site", "del")
	b.Want(cli.ExitUsage, "give --site NAME; volume data has copies at ams, utr", "", "warm", "data")
	b.Want(cli.ExitError, `site "xyz"`, "", "warm", "data", "--site", "xyz")
}
