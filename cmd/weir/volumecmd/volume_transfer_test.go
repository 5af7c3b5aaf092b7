// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"testing"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
)

func TestVolumeTransfer(t *testing.T) {
	b := clitest.New(t, tree)
	b.Site("ams", "SURF")
	b.Site("fra", "DFN")
	b.Silent("waw", "PSNC")
	b.Cluster("ams", "SURF", "uid-ams")
	b.Cluster("waw", "PSNC", "uid-waw")
	v := federation.Volume{UUID: "00000000-0000-4000-8000-000000000001", Name: "team.data", Owner: "SURF", Generation: 1,
		Sites: []string{"ams"}}
	if _, err := b.Registry.CreateVolume(t.Context(), v, federation.Keyring{}); err != nil {
		t.Fatal(err)
	}
	owner := func(organization, site, cluster string) {
		t.Helper()
		v, _, err := b.Registry.FindVolume(t.Context(), "team.data")
		if err != nil || v.Owner != organization || v.OwnerSite != site || v.OwnerCluster != cluster {
			t.Errorf("owner %s, site %s, cluster %s, %v", v.Owner, v.OwnerSite, v.OwnerCluster, err)
		}
	}
	b.Want(cli.ExitUsage, "no --to", "", "volume", "transfer", "team.data")
	b.Want(cli.ExitError, "no Kubernetes cluster is that site", "", "volume", "transfer", "team.data", "--to", "fra")
	b.Want(cli.ExitError, "no site owns it, so none can be lost", "", "volume", "transfer", "team.data", "--to", "ams", "--force")
	b.Want(cli.ExitOK, "root is nobody", "", "volume", "clients", "team.data", "--squash", "Root", "--certificates", "Required")
	b.Want(cli.ExitOK, "ports below 1024", "", "volume", "clients", "team.data", "--site", "fra", "--privileged-ports")
	b.Want(cli.ExitError, "it asks its clients for certificates", "", "volume", "transfer", "team.data", "--to", "ams")
	b.Want(cli.ExitOK, "root is nobody", "", "volume", "clients", "team.data", "--squash", "Root")
	b.Want(cli.ExitError, "it asks clients at sites [fra]", "", "volume", "transfer", "team.data", "--to", "ams")
	b.Want(cli.ExitOK, "root is nobody", "", "volume", "clients", "team.data", "--site", "fra", "--forget")

	// Who makes a volume of another one reads it, which needs one owner of both.
	made := federation.Volume{UUID: "u2", Name: "child", Owner: "SURF", Generation: 1, Sites: []string{"ams"},
		Source: &snapshots.Source{Volume: v.UUID, Snapshot: "s", Snap: 5, Time: clitest.Time}}
	if _, err := b.Registry.CreateVolume(t.Context(), made, federation.Keyring{}); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "volume child is being made of it", "", "volume", "transfer", "team.data", "--to", "ams")
	b.Want(cli.ExitError, "it does not have all that it is made of", "", "volume", "transfer", "child", "--to", "ams")
	child, at, err := b.Registry.GetVolume(t.Context(), "u2")
	if err != nil {
		t.Fatal(err)
	}
	whole := *child.Source
	whole.Done = true
	child.Source = &whole
	if _, err := b.Registry.UpdateVolume(t.Context(), at, child); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitOK, "volume child: owner is SURF (ams), was SURF", "", "volume", "transfer", "child", "--to", "ams")
	b.Want(cli.ExitOK, "volume team.data: owner is SURF (ams), was SURF", "", "volume", "transfer", "team.data", "--to", "ams")
	owner("SURF", "ams", "uid-ams")
	b.Want(cli.ExitOK, "owns it already", "", "volume", "transfer", "team.data", "--to", "ams")
	b.Want(cli.ExitOK, "SURF (ams)", "", "volume", "list")

	b.Want(cli.ExitOK, "owner is PSNC (waw), was SURF (ams)", "", "volume", "transfer", "team.data", "--to", "waw")
	owner("PSNC", "waw", "uid-waw")
	b.Want(cli.ExitError, "it belongs to PSNC, and your certificate is of SURF", "", "volume", "transfer", "team.data", "--to", "ams")
	b.Want(cli.ExitOK, "declared lost", "", "site", "lost", "waw", "--yes")
	b.Want(cli.ExitError, "it belongs to PSNC", "", "volume", "transfer", "team.data", "--to", "ams", "--force")
	back, rev, err := b.Registry.GetVolume(t.Context(), v.UUID)
	if err != nil {
		t.Fatal(err)
	}
	back.Owner = "SURF" // the site is another one of the owner's, from now on
	if _, err := b.Registry.UpdateVolume(t.Context(), rev, back); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitOK, "is not lost any more", "", "site", "found", "waw")
	b.Want(cli.ExitError, "was not declared lost", "", "volume", "transfer", "team.data", "--to", "ams", "--force")
	b.Want(cli.ExitOK, "declared lost", "", "site", "lost", "waw", "--yes")
	b.Want(cli.ExitOK, "owner is SURF (ams), was SURF (waw)", "", "volume", "transfer", "team.data", "--to", "ams", "--force")
	owner("SURF", "ams", "uid-ams")

	b.Serve(nil)
	// The other commands take a name with its namespace too.
	b.Want(cli.ExitOK, "team.data  Pending", "", "status", "team.data")
	b.Want(cli.ExitError, "it belongs to the cluster of site ams", "team.data\n", "volume", "delete", "team.data")
	v, rev, err = b.Registry.FindVolume(t.Context(), "team.data")
	if err != nil {
		t.Fatal(err)
	}
	v.Deleted, v.DeletedAt = true, clitest.Time // as its operator does
	if _, err := b.Registry.UpdateVolume(t.Context(), rev, v); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "it was deleted at", "", "volume", "transfer", "team.data", "--to", "waw")
}
