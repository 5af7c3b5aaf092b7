// SPDX-License-Identifier: Apache-2.0

package admitcmd

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
	return []*cobra.Command{volumecmd.Command(sh, connect, Command, ExpelCommand)}
}

func TestAdmitAndExpel(t *testing.T) {
	b := clitest.New(t, tree)
	b.Site("ams", "SURF")
	b.Site("fra", "DFN")
	b.Want(cli.ExitOK, "created", clitest.Manifest, "volume", "create", "-f", "-", "--wait", "0")
	admissions := func(want ...string) {
		t.Helper()
		all, err := b.Registry.ListAdmissions(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range all {
			got = append(got, a.Site+" "+a.Client+" "+string(a.Access))
		}
		if strings.Join(got, "; ") != strings.Join(want, "; ") {
			t.Errorf("admitted are %q, want %q", got, want)
		}
	}
	b.Want(cli.ExitUsage, `--client "10.0.0.0/8": it is a range`, "", "volume", "admit", "data", "--site", "ams", "--client", "10.0.0.0/8")
	b.Want(cli.ExitUsage, `--client "pod": write one IP address`, "", "volume", "admit", "data", "--site", "ams", "--client", "pod")
	b.Want(cli.ExitUsage, "no --site", "", "volume", "admit", "data", "--client", "10.0.0.7")
	b.Want(cli.ExitUsage, "no --client", "", "volume", "expel", "data", "--site", "ams")
	b.Want(cli.ExitError, `site "mil": there is no site of this name: the federation has ams, fra`, "", "volume", "admit", "data",
		"--site", "mil", "--client", "10.0.0.7")
	b.Want(cli.ExitError, "volume date: there is no volume of this name", "", "volume", "admit", "date", "--site", "ams", "--client",
		"10.0.0.7")
	admissions()
	b.Want(cli.ExitOK,
		"client 10.0.0.7 may read and write volume data at site ams\n  mount -t nfs4 -o vers=4.2 10.0.0.1:/data MOUNTPOINT\n", "",
		"volume", "admit", "data", "--site", "ams", "--client", "::ffff:10.0.0.7")
	b.Want(cli.ExitOK, "may read volume data at site fra", "", "volume", "admit", "data", "--site", "fra", "--client", "FD00::1",
		"--read-only")
	admissions("ams 10.0.0.7 rw", "fra fd00::1 ro")
	b.Want(cli.ExitOK, "may read volume data", "", "volume", "admit", "data", "--site", "ams", "--client", "10.0.0.7", "--read-only")
	admissions("ams 10.0.0.7 ro", "fra fd00::1 ro")
	b.Want(cli.ExitOK, "may not use volume data at site ams any more", "", "volume", "expel", "data", "--site", "ams", "--client",
		"10.0.0.7")
	admissions("fra fd00::1 ro")
	b.Want(cli.ExitOK, "was not admitted", "", "volume", "expel", "data", "--site", "ams", "--client", "10.0.0.7")
	v, _, err := b.Registry.FindVolume(t.Context(), "data")
	if err == nil {
		err = b.Registry.PutAdmission(t.Context(),
			federation.Admission{Volume: v.UUID, Site: "ams", Client: "10.0.0.7", Access: federation.ReadWrite, Node: "n1"})
	}
	if err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitError, "--client 10.0.0.7: Kubernetes has admitted it to volume data, as node n1, until it is detached", "", "volume",
		"admit", "data", "--site", "ams", "--client", "10.0.0.7", "--read-only")
	admissions("ams 10.0.0.7 rw", "fra fd00::1 ro")
	b.Want(cli.ExitOK, "any more", "", "volume", "expel", "data", "--site", "ams", "--client", "10.0.0.7")
	b.Want(cli.ExitOK, "deleted since", "", "volume", "delete", "data", "--yes")
	b.Want(cli.ExitError, "volume data: it was deleted at", "", "volume", "admit", "data", "--site", "ams", "--client", "10.0.0.7")
	b.Want(cli.ExitOK, "any more", "", "volume", "expel", "data", "--site", "fra", "--client", "fd00::1")

	// A name with its namespace does too.
	other := federation.Volume{UUID: "u1", Name: "team.data", Owner: "SURF", Generation: 1, Sites: []string{"ams"}}
	if _, err := b.Registry.CreateVolume(t.Context(), other, federation.Keyring{}); err != nil {
		t.Fatal(err)
	}
	b.Want(cli.ExitOK, "mount -t nfs4 -o vers=4.2 10.0.0.1:/team.data MOUNTPOINT", "", "volume", "admit", "team.data", "--site", "ams",
		"--client", "10.0.0.9")
	b.Want(cli.ExitOK, "may not use volume team.data", "", "volume", "expel", "team.data", "--site", "ams", "--client", "10.0.0.9")
}

func TestMountCommand(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.1:2049":    "mount -t nfs4 -o vers=4.2 10.0.0.1:/data MOUNTPOINT",
		"[fd00::1]:2050":   "mount -t nfs4 -o vers=4.2,port=2050 [fd00::1]:/data MOUNTPOINT",
		"gw.example:20490": "mount -t nfs4 -o vers=4.2,port=20490 gw.example:/data MOUNTPOINT",
		"":                 "",
	} {
		if got := mountCommand(addr, "data"); got != want {
			t.Errorf("%s: got %q, want %q", addr, got, want)
		}
	}
}
