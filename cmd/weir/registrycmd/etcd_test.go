// SPDX-License-Identifier: Apache-2.0

package registrycmd_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/cmd/weir/registrycmd"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/federation/etcd/etcdtest"
	"github.com/weir-storage/weir/federation/federationtest"
	"github.com/weir-storage/weir/federation/memory"
)

// TestBackUpAndRestore: with a real etcd and its own tools, a backup is made and restored, a
// gateway notices, and what the backup lacks is brought forward.
func TestBackUpAndRestore(t *testing.T) {
	server, dir := etcdtest.Start(t, nil), t.TempDir()
	open := func(guard *federation.Guard) *etcd.Registry {
		r, err := etcd.Open(etcd.Config{After: time.After, Endpoints: []string{server.Endpoint}, Federation: "test", Guard: guard})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	b := clitest.New(t, func(sh *cli.Shell, _ access.Connector) []*cobra.Command {
		return []*cobra.Command{registrycmd.Command(sh, func(access.Connection) (*access.Client, error) {
			return &access.Client{Registry: open(nil)}, nil
		})}
	})
	guard, err := federation.NewGuard(func() (federation.GuardState, error) { return federation.GuardState{}, nil },
		func(federation.GuardState) error { return nil }, memory.NewArchive())
	if err != nil {
		t.Fatal(err)
	}
	gateway := open(guard)
	if err := gateway.Register(t.Context(), federationtest.Site("ams", "gw0")); err != nil {
		t.Fatal(err)
	}
	rev, err := gateway.SwapControl(t.Context(), "v", 0, federationtest.Control("v", 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	file, data := filepath.Join(dir, "registry.db"), filepath.Join(dir, "data")
	b.Want(0, "has a snapshot of the registry", "", "registry", "backup", file)
	if _, err := gateway.SwapControl(t.Context(), "v", rev, federationtest.Control("v", 2, 1)); err != nil {
		t.Fatal(err)
	}
	watched := make(chan uint64, 100) // epochs
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for ctx.Err() == nil {
			_ = gateway.Watch(ctx, func(e federation.Event) error {
				if e.Control != nil {
					watched <- e.Control.Epoch
				}
				return nil
			})
		}
	}()
	for <-watched < 2 {
	}

	server.Stop()
	b.Want(0, "start etcd with it", "", "registry", "restore", file, "--data-dir", data, "--name", "test",
		"--initial-cluster", "test="+server.PeerURL, "--peer-url", server.PeerURL, "--etcdutl", etcdtest.Program(t, "etcdutl"))
	server.RestartOn(data)
	tend := func(until func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !until(); time.Sleep(20 * time.Millisecond) { // a hang guard
			if err = gateway.Tend(t.Context(), "gw0", clitest.Time); time.Now().After(end) {
				t.Fatal(err, gateway.Trusted())
			}
		}
	}
	tend(func() bool {
		n, err := gateway.Notices(t.Context())
		return err == nil && len(n) == 1 && n[0].Complete && strings.Contains(n[0].Why, "its identity was")
	})
	if c, _, err := gateway.GetControl(t.Context(), "v"); err != nil || c.Epoch != 2 {
		t.Errorf("the gateway reads %+v, %v", c, err)
	}
	b.Want(0, "control/v", "", "registry", "status")
	b.Want(0, "1 records were brought forward", "", "registry", "reconcile", "--yes")
	tend(func() bool { return gateway.Trusted() == nil })
	_, rev, err = gateway.GetControl(t.Context(), "v")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gateway.SwapControl(t.Context(), "v", rev, federationtest.Control("v", 3, 1)); err != nil {
		t.Error(err)
	}
	for <-watched < 3 {
	}
	if err := open(nil).DeleteControl(t.Context(), "v", rev); !errors.Is(err, federation.ErrConflict) {
		t.Errorf("the registry's revision of before the change: %v", err)
	}
}
