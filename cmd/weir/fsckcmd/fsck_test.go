// SPDX-License-Identifier: Apache-2.0

package fsckcmd

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/cmd/weir/volumecmd"
	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/checking"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// fake is a gateway that says what it was told to say.
type fake struct {
	forwardpb.UnimplementedForwardServer
	report *checking.Report // nil: it has no copy
	failed string
	asked  atomic.Pointer[forwardpb.CheckRequest]
	hangs  bool
}

func (f *fake) Check(q *forwardpb.CheckRequest, to forwardpb.Forward_CheckServer) error {
	f.asked.Store(q)
	if f.report == nil {
		return status.Error(codes.NotFound, "no copy here")
	}
	if err := to.Send(&forwardpb.CheckPart{Step: "segments", Done: 1 << 20, Total: 4 << 20, Bytes: true}); err != nil || f.hangs {
		<-to.Context().Done()
		return to.Context().Err()
	}
	b, err := json.Marshal(f.report)
	if err != nil {
		return err
	}
	return to.Send(&forwardpb.CheckPart{Json: b, Failed: f.failed})
}

const made = "apiVersion: storage.weir.dev/v1alpha1\nkind: GeoVolume\nmetadata: {name: data}\nspec: {size: 1Gi, " +
	"replication: {copies: 2, sites: {required: [ams, utr]}}}\n"

// bench has a volume with its home at ams, and gateways that are fakes.
func bench(t *testing.T) (b *clitest.Bench, ams, utr *fake) {
	b = clitest.New(t, func(sh *cli.Shell, connect access.Connector) []*cobra.Command {
		return []*cobra.Command{Command(sh, connect), volumecmd.Command(sh, connect)}
	})
	home := b.Site("ams", "SURF")
	b.Site("utr", "SURF")
	b.Site("del", "SURF")
	b.Want(cli.ExitOK, "", made, "volume", "create", "-f", "-", "--wait", "0")
	v, _, err := b.Registry.FindVolume(t.Context(), "data")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Registry.SwapControl(t.Context(), v.UUID, 0, federation.Control{Volume: v.UUID, Epoch: 1, Home: home,
		Members: []federation.Member{home}}); err != nil {
		t.Fatal(err)
	}
	ams, utr = &fake{report: &checking.Report{Complete: true, Segments: 3}}, &fake{}
	b.Serve(map[string]forwardpb.ForwardServer{"ams-1": ams, "utr-1": utr, "del-1": &fake{}})
	return b, ams, utr
}

var (
	repaired = checking.Damage{Where: checking.Pool, Kind: fsck.Unreadable, Path: "/runs/a", From: 4096, To: 8192, Segment: 7,
		Detail: "damaged, and another copy has it", Repaired: true}
	left = checking.Damage{Where: checking.Nowhere, Kind: fsck.Unreadable, Path: "/runs/b", To: 65536, Segment: 8, Detail: "no copy has it",
		Advice: "restore the file"}
)

// TestExitCodes: the exit codes are those of fsck(8), added up.
func TestExitCodes(t *testing.T) {
	b, ams, utr := bench(t)
	report := func(all ...checking.Damage) *checking.Report {
		return &checking.Report{Complete: true, Segments: 3, Damage: all}
	}
	both := report(repaired, left)
	for _, c := range []struct {
		ams, utr *checking.Report
		failed   string
		code     int
		text     string
		args     string
	}{
		{report(), nil, "", 0, "volume data at ams-1 (ams): 3 segments, data not read, no metadata checked: clean", "fsck data"},
		{report(repaired), nil, "", Corrected, "/runs/a [4096, 8192): pool, Unreadable, repaired: damaged, and another copy has it",
			"fsck data --repair"},
		{report(left), nil, "", Uncorrected, "/runs/b [0, 65536): nowhere, Unreadable, not repaired: no copy has it\n    restore the file",
			"fsck data"},
		{both, nil, "", Corrected | Uncorrected, "1 errors repaired, 1 left; no copy in reach has 64.0 KiB of files", "fsck data --repair"},
		{&checking.Report{}, nil, "the store does not answer", Operational, "ams-1 (ams): the store does not answer", "fsck data"},
		{&checking.Report{}, nil, "", Operational, "the check is not complete", "fsck data"},
		{report(left), nil, "the disk went", Uncorrected | Operational, "the disk went", "fsck data"},
		{report(), nil, "", 0, "utr-1 (utr): no copy here", "fsck data --all"},
		{report(repaired), report(left), "", Corrected | Uncorrected, "at utr-1 (utr): 3 segments", "fsck data --all"},
		{nil, report(), "", Operational, "no gateway that was asked has a copy of volume data that is open: no copy here", "fsck data"},
		{report(left), report(), "", 0, "at utr-1 (utr)", "fsck data --site utr"},
		{report(left), report(), "", 0, "at utr-1 (utr)", "fsck data --gateway utr-1"},
		{report(), nil, "", Operational, "there is no site of this name", "fsck data --site nix"},
		{report(), nil, "", Operational, "no site has a gateway of this name", "fsck data --gateway nix"},
		{report(), nil, "", Operational, "there is no volume of this name", "fsck none"},
		{report(), nil, "", Usage, "write `weir fsck VOLUME", "fsck"},
		{report(), nil, "", Usage, "unknown flag: --fly", "fsck data --fly"},
		{report(), nil, "", Usage, "write json", "fsck data -o yaml"},
		{report(), nil, "", Usage, "give one of --all, --site and --gateway", "fsck data --all --site ams"},
		{report(), nil, "", Usage, "give one kind", "fsck data --all --store"},
		{report(), nil, "", Usage, "give one of --store and --store-dir", "fsck data --store --store-dir x"},
		{report(), nil, "", Usage, "--keyring and --work are for a check without gateways", "fsck data --keyring x"},
		{report(), nil, "", Usage, "nothing to be repaired from", "fsck data --store --repair"},
		{report(), nil, "", Usage, "give --config", "fsck data --store"},
		{report(), nil, "", Operational, "no such file", "fsck data --store --config /nonexistent/weir.yaml"},
	} {
		ams.report, utr.report, ams.failed, utr.failed = c.ams, c.utr, c.failed, ""
		b.Want(c.code, c.text, "", strings.Fields(c.args)...)
	}
	ams.report = both
	b.Want(Corrected|Uncorrected, "", "", "fsck", "data", "--data", "--repair")
	if q := ams.asked.Load(); !q.GetData() || !q.GetRepair() {
		t.Errorf("asked %v", q)
	}
	var all []Result
	code, out, _ := b.Run("", "fsck", "data", "--all", "-o", "json")
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != Corrected|Uncorrected || len(all) != 2 ||
		all[0].Gateway != "ams-1" ||
		len(all[0].Report.Damage) != 2 || all[0].Report.Damage[1] != left || !all[1].Absent {
		t.Errorf("%d, %+v, %v", code, all, err)
	}
}

// TestCancel: a person who ends it gets 32, with what was known until then.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var own *cli.CodeError
	if err := coded(ctx, context.Canceled); !asCode(err, &own) || own.Code != Canceled {
		t.Fatal(err)
	}
	if err := coded(t.Context(), context.Canceled); !asCode(err, &own) || own.Code != Operational {
		t.Fatal(err)
	}
	b, ams, _ := bench(t)
	ams.hangs = true
	code, errs := b.RunUntil(func() bool { return ams.asked.Load() != nil }, "fsck", "data")
	if code != Canceled || !strings.Contains(errs, "ended before the check was complete") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func asCode(err error, to **cli.CodeError) bool {
	e, ok := err.(*cli.CodeError)
	*to = e
	return ok
}

func TestBar(t *testing.T) {
	for want, is := range map[string]checking.Progress{
		"names":     {Step: "names"},
		"names: 12": {Step: "names", Done: 12},
		"segments [###############...............] 50 %, 1.0 MiB of 2.0 MiB, 10.0s left": {Step: "segments", Done: 1 << 20,
			Total: 2 << 20, Bytes: true},
		"data [##############################] 100 %, 3 of 3": {Step: "data", Done: 4, Total: 3},
	} {
		if got := bar(is, 10*time.Second); got != want {
			t.Errorf("%+v is %q, want %q", is, got, want)
		}
	}
}
