// SPDX-License-Identifier: Apache-2.0

package pkicmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
)

// tree has the commands that these tests run.
func tree(sh *cli.Shell, _ access.Connector) []*cobra.Command {
	return []*cobra.Command{Command(sh)}
}

func TestPKI(t *testing.T) {
	b := clitest.New(t, tree)
	dir := filepath.Join(t.TempDir(), "pki")
	b.Want(cli.ExitError, "make one with `weir pki init --dir "+dir, "",
		"pki", "issue", "--dir", dir, "--organization", "SURF", "--site", "ams", "--gateway", "ams-1")
	b.Want(cli.ExitOK, dir+"/ca.crt\n"+dir+"/ca.key\n", "", "pki", "init", "--dir", dir, "--federation", "demo")
	b.Want(cli.ExitError, "remove the old one if nobody uses it", "", "pki", "init", "--dir", dir, "--federation", "demo")
	b.Want(cli.ExitOK, dir+"/ams-1.crt\n"+dir+"/ams-1.key\n", "", "pki", "issue", "--dir", dir, "--organization", "SURF", "--site", "ams",
		"--gateway", "ams-1", "--host", "10.0.1.10,ams-1.example.org", "--host", "::1")
	b.Want(cli.ExitUsage, "the authority's files have that name", "", "pki", "issue", "--dir", dir, "--organization", "SURF", "--site",
		"ams", "--gateway", "ca")
	b.Want(cli.ExitOK, "identity:   weir://demo/SURF/ams/ams-1\npart:       gateway\nhosts:      ams-1.example.org, 10.0.1.10, ::1\n"+
		"issued by:  Weir federation demo\n", "", "pki", "show", dir+"/ams-1.crt")
	b.Want(cli.ExitOK, "(valid)", "", "pki", "show", dir+"/ams-1.crt")
	b.Want(cli.ExitOK, "authority:  Weir federation demo", "", "pki", "show", dir+"/ca.crt")
	b.Want(cli.ExitError, "no PEM block CERTIFICATE", "", "pki", "show", dir+"/ams-1.key")
	if i, err := os.Stat(dir + "/ams-1.key"); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key: %v, %v", i.Mode(), err)
	}
	text, err := os.ReadFile(dir + "/ams-1.crt")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := showCertificate(text, clitest.Time.AddDate(2, 0, 0)); err != nil || !strings.Contains(out, "(EXPIRED)") {
		t.Errorf("%s, %v", out, err)
	}
}
