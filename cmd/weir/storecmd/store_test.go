// SPDX-License-Identifier: Apache-2.0

package storecmd

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/pki"
)

// TestBadInput: what is wrong is said with what to do.
func TestBadInput(t *testing.T) {
	b := clitest.New(t, func(sh *cli.Shell, _ access.Connector) []*cobra.Command { return []*cobra.Command{Command(sh)} })
	dir := t.TempDir()
	ca, err := pki.NewAuthority("demo", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(part pki.Part) []string {
		t.Helper()
		p, err := ca.Issue(pki.Identity{Federation: "demo", Organization: "A", Site: "ams", Gateway: "s", Part: part}, nil, time.Now(),
			time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		root, err := ca.Pair()
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, string(part))
		clitest.Put(t, at+".ca", root.Cert)
		clitest.Put(t, at+".crt", p.Cert)
		clitest.Put(t, at+".key", p.Key)
		return []string{"store", "--ca", at + ".ca", "--cert", at + ".crt", "--key", at + ".key", "--dir", filepath.Join(dir, "own")}
	}
	b.Now = time.Now()
	gateway, store := issue(pki.PartGateway), issue(pki.PartStore)
	b.Want(cli.ExitUsage, "--dir is empty: give a folder", "", "store")
	b.Want(cli.ExitError, `it is of part "gateway": issue one with`, "", gateway...)
	b.Want(cli.ExitUsage, "where the room is is not known: give --folder FOLDER, or --config FILE", "", store...)
	b.Want(cli.ExitUsage, "--log-level", "", append(store, "--log-level", "loud")...)
	b.Want(cli.ExitError, "give a folder that this user can write", "", append(store, "--folder", filepath.Join(dir, "store.crt"))...)
	b.Want(cli.ExitError, "give an address of this machine", "", append(store, "--folder", filepath.Join(dir, "room"), "--listen",
		"9.9.9.9:1")...)
}
