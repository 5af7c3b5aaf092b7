// SPDX-License-Identifier: Apache-2.0

package registrycmd_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/cmd/weir/registrycmd"
	"github.com/weir-storage/weir/cmd/weir/statuscmd"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/federationtest"
	"github.com/weir-storage/weir/federation/memory"
)

func bench(t *testing.T) *clitest.Bench {
	return clitest.New(t, func(sh *cli.Shell, connect access.Connector) []*cobra.Command {
		return []*cobra.Command{registrycmd.Command(sh, connect), statuscmd.Command(sh, connect)}
	})
}

// guarded returns a gateway's connection to the registry.
func guarded(t *testing.T, s *memory.Server) *memory.Client {
	t.Helper()
	g, err := federation.NewGuard(func() (federation.GuardState, error) { return federation.GuardState{}, nil },
		func(federation.GuardState) error { return nil }, memory.NewArchive())
	if err != nil {
		t.Fatal(err)
	}
	c, listed := s.Client(g), errors.New("everything is listed")
	err = c.Watch(t.Context(), func(e federation.Event) error {
		if e.Kind == federation.KindSynced {
			return listed
		}
		return nil
	})
	if !errors.Is(err, listed) {
		t.Fatal(err)
	}
	return c
}

// TestReconcile: a person sees what a restored registry lacks, and brings it forward when all
// gateways have said what they know.
func TestReconcile(t *testing.T) {
	b, s := bench(t), memory.NewServer(1)
	b.Registry = s.Client(nil)
	ams, fra := guarded(t, s), guarded(t, s)
	b.Site("ams", "surf")
	b.Site("fra", "gwdg")
	b.Want(0, "No gateway says that the registry went back", "", "registry", "reconcile", "--yes")
	backup := s.Backup()
	for _, g := range []*memory.Client{ams, fra} { // each swaps a record, which it then knows
		v := map[*memory.Client]string{ams: "va", fra: "vf"}[g]
		if _, err := g.SwapControl(t.Context(), v, 0, federationtest.Control(v, 1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	s.Restore(backup)
	tend := func(g *memory.Client, name string) {
		t.Helper()
		if err := g.Tend(t.Context(), name, clitest.Time); err != nil {
			t.Fatal(err)
		}
	}
	tend(ams, "ams-1")
	b.Want(0, "control/va", "", "registry", "status")
	b.Serve(nil) // no gateway answers
	b.Want(0, "The registry went back, as ams-1 noticed", "", "status")
	b.Want(1, "[fra-1] have not said yet", "", "registry", "reconcile", "--yes")
	b.Want(2, "--without ams-1: no such gateway is waited for", "", "registry", "reconcile", "--without", "ams-1")
	b.Want(0, "reconcile --yes` does it", "", "registry", "reconcile", "--without", "fra-1")
	tend(fra, "fra-1")
	b.Want(0, `"record": "control/vf"`, "", "registry", "status", "-o", "json")
	b.Want(0, "Nothing was changed", "", "registry", "reconcile")
	b.Want(0, "2 records were brought forward", "", "registry", "reconcile", "--yes")
	for name, g := range map[string]*memory.Client{"ams-1": ams, "fra-1": fra} {
		tend(g, name)
		if err := g.Trusted(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.Want(0, "No gateway says", "", "registry", "status")
	// A second decision follows the first also if it is made at the same moment.
	s.Restore(backup)
	tend(ams, "ams-1")
	tend(fra, "fra-1")
	b.Want(0, "2 records were brought forward", "", "registry", "reconcile", "--yes")
	tend(ams, "ams-1")
	if err := ams.Trusted(); err != nil {
		t.Error(err)
	}
}

// TestTwoHomes: a person decides between two branches of a control record.
func TestTwoHomes(t *testing.T) {
	b, s := bench(t), memory.NewServer(1)
	b.Registry = s.Client(nil)
	b.Site("ams", "surf")
	ams := guarded(t, s)
	rev, err := b.Registry.SwapControl(t.Context(), "v", 0, federationtest.Control("v", 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	backup := s.Backup()
	next := federationtest.Control("v", 2, 2)
	if _, err := ams.SwapControl(t.Context(), "v", rev, next); err != nil {
		t.Fatal(err)
	}
	tend := func() {
		t.Helper()
		if err := ams.Tend(t.Context(), "ams-1", clitest.Time); err != nil {
			t.Fatal(err)
		}
	}
	tend()
	s.Restore(backup)
	next.Home = next.Members[1]
	if _, err := b.Registry.SwapControl(t.Context(), "v", rev, next); err != nil {
		t.Fatal(err)
	}
	tend()
	b.Want(0, "Decide which branch to keep: gw0@2 or gw1@2", "", "registry", "status")
	b.Want(1, "home gw0 in epoch 2 with members gw0, gw1; home gw1 in epoch 2 with", "", "registry", "reconcile", "--yes")
	b.Want(1, "give one of these", "", "registry", "reconcile", "--yes", "--keep", "v=gw2")
	b.Want(2, "has no branches", "", "registry", "reconcile", "--yes", "--keep", "v=gw0,w=gw0")
	b.Want(0, "1 records were brought forward", "", "registry", "reconcile", "--yes", "--keep", "v=gw0")
	if c, _, err := b.Registry.GetControl(t.Context(), "v"); err != nil || c.Home.Gateway != "gw0" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestRestoreRefuses(t *testing.T) {
	dir := t.TempDir()
	whole := bytes.Repeat([]byte{7}, 1024)
	digest := sha256.Sum256(whole)
	file := func(name string, content ...[]byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Join(content, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", whole, digest[:])
	damaged := file("damaged", append([]byte{8}, whole[1:]...), digest[:])
	short := file("short", whole)
	data := filepath.Join(dir, "data")
	run := func(path, to, program string) []string {
		return []string{"registry", "restore", path, "--data-dir", to, "--name", "r1", "--initial-cluster", "r1=http://127.0.0.1:1",
			"--peer-url", "http://127.0.0.1:1", "--etcdutl", program}
	}
	b := bench(t)
	b.Want(2, "--data-dir is missing", "", "registry", "restore", good)
	several := run(good, data, "true")
	several[8] += ",r2=http://127.0.0.2:1"
	b.Want(2, "no registry before had: give all of them weir-", "", several...)
	_, _, once := b.Run("", run(good, data, "echo")...)
	_, _, again := b.Run("", run(good, data, "echo")...)
	if token := "--initial-cluster-token weir-"; once == again || !strings.Contains(once, token) {
		t.Errorf("a restored registry has an identity of its own by its token: %s and %s", once, again)
	}
	b.Want(0, "start etcd with it", "", append(several, "--initial-cluster-token", "weir-2")...)
	b.Want(1, "it is there already", "", run(good, dir, "true")...)
	b.Want(1, "do not have the digest", "", run(damaged, data, "true")...)
	b.Want(1, "no whole snapshot", "", run(short, data, "true")...)
	b.Want(1, "install etcd's tools", "", run(good, data, filepath.Join(dir, "none"))...)
	b.Want(0, "start etcd with it", "", run(good, data, "true")...)
	b.Want(1, "this registry has no snapshots", "", "registry", "backup", filepath.Join(dir, "new"))
	b.Want(1, "the file exists", "", "registry", "backup", good)
}
