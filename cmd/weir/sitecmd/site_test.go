// SPDX-License-Identifier: Apache-2.0

package sitecmd

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/cmd/weir/volumecmd"
	"github.com/weir-storage/weir/federation"
)

// tree has the commands that these tests run.
func tree(sh *cli.Shell, connect access.Connector) []*cobra.Command {
	return []*cobra.Command{Command(sh, connect), volumecmd.Command(sh, connect)}
}

func TestSites(t *testing.T) {
	b := clitest.New(t, tree)
	b.Want(cli.ExitOK, "There are no sites", "", "site", "list")
	b.Site("ams", "SURF")
	b.Site("fra", "DFN")
	b.Cluster("ams", "SURF", "uid-ams")
	b.Silent("waw", "PSNC")
	b.Want(cli.ExitOK, "created", clitest.Manifest, "volume", "create", "-f", "-", "--wait", "0")
	out := b.Want(cli.ExitOK, "NAME", "", "site", "list")
	for _, line := range []string{
		"ams SURF eu 1 of 1 1 - uid-ams alive",
		"fra DFN - 1 of 1 1 - - alive",
		"waw PSNC - 0 of 1 0 40Ti - no gateway is alive",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), line) {
			t.Errorf("%s\nlacks %s", out, line)
		}
	}
	b.Want(cli.ExitOK, `"alive": [`, "", "site", "list", "-o", "json")

	b.Want(cli.ExitError, "site ams: it is not lost: the registry hears of ams-1", "", "site", "lost", "ams", "--yes")
	b.Want(cli.ExitError, `"x": there is no site of this name`, "", "site", "lost", "x", "--yes")
	b.Want(cli.ExitError, `not confirmed ("no" was typed)`, "no\n", "site", "lost", "waw")
	b.Want(cli.ExitOK, "site waw is declared lost", "waw\n", "site", "lost", "waw")
	lost, err := b.Registry.ListLost(t.Context())
	if err != nil || len(lost) != 1 || lost[0].Site != "waw" || lost[0].By != "weir://demo/SURF/ams/operator" ||
		!lost[0].At.Equal(clitest.Time) {
		t.Errorf("lost %+v, %v", lost, err)
	}
	b.Want(cli.ExitOK, "site waw is declared lost since "+cli.Stamp(clitest.Time), "", "site", "lost", "waw")
	b.Want(cli.ExitOK, "lost since "+cli.Stamp(clitest.Time), "", "site", "list")
	b.Want(cli.ExitOK, "site waw is not lost any more", "", "site", "found", "waw")
	b.Want(cli.ExitOK, "nothing to do", "", "site", "found", "waw")
}

func TestSiteRemove(t *testing.T) {
	b := clitest.New(t, tree)
	b.Site("ams", "SURF")
	b.Silent("waw", "PSNC")
	b.Cluster("waw", "PSNC", "uid-waw")
	ctx := t.Context()
	v := federation.Volume{UUID: "u1", Name: "team.data", Owner: "PSNC", OwnerSite: "waw", OwnerCluster: "uid-waw", Generation: 1,
		Sites: []string{"waw", "ams"}}
	rev, err := b.Registry.CreateVolume(ctx, v, federation.Keyring{})
	if err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "site ams: it is not gone: the registry hears of ams-1", "", "site", "remove", "ams")
	b.Want(cli.ExitError, "site waw: volumes have copies there: team.data", "", "site", "remove", "waw")
	v.Sites, v.Generation = []string{"ams"}, 2
	if rev, err = b.Registry.UpdateVolume(ctx, rev, v); err != nil {
		t.Fatal(err)
	}
	member := federation.Member{Gateway: "waw-1", Site: "waw", Incarnation: "i"}
	at, err := b.Registry.SwapControl(ctx, "u1", 0,
		federation.Control{Volume: "u1", Epoch: 1, Home: member, Members: []federation.Member{member}})
	if err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "volumes have copies there: team.data", "", "site", "remove", "waw") // it is not gone from there yet
	if err := b.Registry.DeleteControl(ctx, "u1", at); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "its cluster owns volumes: team.data: move them with `weir volume transfer` first", "", "site", "remove", "waw")
	v.OwnerSite, v.OwnerCluster = "", ""
	if _, err = b.Registry.UpdateVolume(ctx, rev, v); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		b.Registry.PutClaim(ctx, federation.Claim{Volume: "u1", Site: "waw", Namespace: "n", Name: "c", Kind: federation.ClaimGeoVolume,
			Access: federation.ReadOnly}),
		b.Registry.PutClaim(ctx, federation.Claim{Volume: "u1", Site: "ams", Namespace: "n", Name: "c", Kind: federation.ClaimGeoVolume,
			Access: federation.ReadOnly}),
		b.Registry.PutAttachment(ctx, federation.Attachment{Volume: "u1", Site: "waw", Node: "n1", Access: federation.ReadOnly}),
		b.Registry.PutAdmission(ctx, federation.Admission{Volume: "u1", Site: "waw", Client: "10.0.0.1", Access: federation.ReadOnly}),
		b.Registry.PutLost(ctx, federation.Lost{Site: "waw", By: "x", At: clitest.Time}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b.Want(cli.ExitError, "site waw has no gateway of this name", "", "site", "remove", "waw", "--gateway", "ams-1")
	b.Want(cli.ExitError, "--gateway ams-1: it is not gone", "", "site", "remove", "ams", "--gateway", "ams-1")
	if err := b.Registry.Register(ctx, federation.Site{Name: "ams", Organization: "SURF",
		Gateways: []federation.Gateway{{Name: "ams-old", Addr: "10.0.0.9:7400", Incarnation: "old"}}}); err != nil {
		t.Fatal(err)
	}
	old := federation.Member{Gateway: "ams-old", Site: "ams", Incarnation: "old"}
	at, err = b.Registry.SwapControl(ctx, "u1", 0, federation.Control{Volume: "u1", Epoch: 1, Home: old, Members: []federation.Member{old}})
	if err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "writes of volumes still count on it: team.data", "", "site", "remove", "ams", "--gateway", "ams-old")
	if err := b.Registry.DeleteControl(ctx, "u1", at); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitOK, "gateway ams-old of site ams is forgotten", "", "site", "remove", "ams", "--gateway", "ams-old")
	b.Want(cli.ExitError, "site ams has no gateway of this name", "", "site", "remove", "ams", "--gateway", "ams-old")
	gone := federation.Volume{UUID: "u2", Name: "team.old", Owner: "PSNC", Generation: 1, Sites: []string{"waw"}, Deleted: true,
		DeletedAt: clitest.Time}
	if rev, err = b.Registry.CreateVolume(ctx, gone, federation.Keyring{}); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "deleted volumes in the trash have copies there: team.old", "", "site", "remove", "waw")
	purge := federation.Purge{Volume: "u2", Name: "team.old", At: clitest.Time, Pending: []string{"waw-1"}}
	if err := b.Registry.PurgeVolume(ctx, rev, purge); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "deleted volumes are not gone from its pools and its store yet: team.old", "", "site", "remove", "waw")
	b.Want(cli.ExitOK, "gateway waw-1 of site waw is forgotten", "", "site", "remove", "waw", "--gateway", "waw-1")
	if left, err := b.Registry.ListPurges(ctx); err != nil || len(left) != 1 || len(left[0].Pending) != 0 {
		t.Errorf("the purges %v wait for a gateway that is forgotten: %v", left, err)
	}
	b.Want(cli.ExitOK, "site waw is forgotten; its name is free", "", "site", "remove", "waw")
	claims, _ := b.Registry.ListClaims(ctx, "")
	attachments, _ := b.Registry.ListAttachments(ctx, "")
	admissions, _ := b.Registry.ListAdmissions(ctx, "")
	lost, _ := b.Registry.ListLost(ctx)
	if len(claims) != 1 || claims[0].Site != "ams" || len(attachments)+len(admissions)+len(lost) != 0 {
		t.Errorf("left are %v %v %v %v", claims, attachments, admissions, lost)
	}
	b.Want(cli.ExitError, "there is no site of this name", "", "site", "remove", "waw")
	b.Cluster("waw", "DFN", "uid-other")
}
