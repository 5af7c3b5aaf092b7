// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"errors"
	"slices"
	"testing"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
)

// keeps plays the home of volumes: it takes and drops what their records say, and fills volumes,
// all at once.
func keeps(t *testing.T, b *clitest.Bench, home federation.Member, has ...string) {
	t.Helper()
	all := map[string][]string{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Registry.Watch(t.Context(), func(e federation.Event) error {
			v := e.Volume
			if v == nil {
				return nil
			}
			is, ok := all[v.UUID]
			if !ok {
				is = has
				_, err := b.Registry.SwapControl(t.Context(), v.UUID, 0, federation.Control{Volume: v.UUID, Epoch: 1, Home: home,
					Members: []federation.Member{home}})
				if err != nil {
					t.Error(err)
				}
			}
			r := &snapshots.Report{}
			for _, w := range v.Snapshots {
				switch there := slices.Contains(is, w.Name); {
				case w.Drop:
					is = slices.DeleteFunc(slices.Clone(is), func(n string) bool { return n == w.Name })
					r.All = append(r.All, snapshots.Snapshot{Name: w.Name, UID: w.UID, State: snapshots.StateDropped})
				case !there && w.Name != "stuck":
					is = append(slices.Clone(is), w.Name)
				case !there:
					r.All = append(r.All, snapshots.Snapshot{Name: w.Name, UID: w.UID, State: snapshots.StatePending,
						Message: "no room"})
				}
			}
			for _, n := range is {
				w, _ := snapshots.Find(v.Snapshots, n)
				r.All = append(r.All, snapshots.Snapshot{Name: n, UID: w.UID, State: snapshots.StateTaken, Time: clitest.Time,
					Bytes: 1 << 20, Inodes: 7, Snap: 5})
			}
			if v.Rollback != nil {
				r.Rolled = &snapshots.Rolled{ID: v.Rollback.ID, State: snapshots.StateDone}
				switch {
				case v.Rollback.To == "@1":
					r.Rolled.State, r.Rolled.Message = snapshots.StateRefused, "there is no snapshot @1"
				case v.Rollback.To == "@2":
					r.Rolled.State, r.Rolled.Message = snapshots.StatePending, "no room"
				}
			}
			if v.Source != nil {
				r.Filled = &snapshots.Filled{Done: v.Name != "slow", Bytes: 512 << 10, Message: "no room"}
			}
			all[v.UUID] = is
			return b.Registry.PutObserved(t.Context(), federation.Observed{Volume: v.UUID, Gateway: home.Gateway, Snapshots: r})
		})
	}()
	t.Cleanup(func() { <-done })
}

func TestVolumeSnapshot(t *testing.T) {
	b := clitest.New(t, tree)
	home := b.Site("ams", "SURF")
	scheduled := snapshots.Daily.Name(clitest.Time)
	for _, v := range []federation.Volume{{UUID: "u1", Name: "data", Owner: "SURF", Generation: 1, Sites: []string{"ams"}},
		{UUID: "u2", Name: "team.data", Owner: "SURF", Generation: 1, Sites: []string{"ams"}, OwnerSite: "ams", OwnerCluster: "c",
			Snapshots: []snapshots.Wish{{Name: "theirs", UID: "gvs"}}},
		{UUID: "u3", Name: "others", Owner: "DFN", Generation: 1, Sites: []string{"ams"}}} {
		if _, err := b.Registry.CreateVolume(t.Context(), v, federation.Keyring{}); err != nil {
			t.Fatal(err)
		}
	}
	b.Want(cli.ExitError, "its home has not told which snapshots there are", "", "volume", "snapshot", "create", "data", "a",
		"--wait", "100ms")
	keeps(t, b, home, scheduled)
	b.Want(cli.ExitOK, "snapshot first of volume data was taken", "", "volume", "snapshot", "create", "data", "first")
	b.Want(cli.ExitOK, "is dropped", "", "volume", "snapshot", "drop", "data", "first")
	clitest.Eventually(t, "the home reports", func() error {
		for _, id := range []string{"u1", "u2", "u3"} {
			if all, err := b.Registry.ListObserved(t.Context(), id); err != nil || len(all) == 0 {
				return errors.Join(err, errors.New("nothing of "+id))
			}
		}
		return nil
	})
	wishes := func(id string) []snapshots.Wish {
		t.Helper()
		v, _, err := b.Registry.GetVolume(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return v.Snapshots
	}

	b.Want(cli.ExitUsage, `snapshot "@now": not a snapshot's name`, "", "volume", "snapshot", "create", "data", "@now")
	b.Want(cli.ExitUsage, "those of scheduled snapshots", "", "volume", "snapshot", "create", "data", "daily-1")
	b.Want(cli.ExitError, "make a GeoVolumeSnapshot there", "", "volume", "snapshot", "create", "team.data", "a")
	b.Want(cli.ExitError, "it belongs to DFN", "", "volume", "snapshot", "create", "others", "a")
	if got := wishes("u1"); len(got) > 0 {
		t.Fatalf("something was written: %v", got)
	}
	b.Want(cli.ExitOK, "snapshot a of volume data was taken at 2026-05-04T10:00:00Z", "", "volume", "snapshot", "create", "data", "a")
	b.Want(cli.ExitError, "has a snapshot a already, of 2026-05-04T10:00:00Z", "", "volume", "snapshot", "create", "data", "a")
	b.Want(cli.ExitError, "its home tries again: no room", "", "volume", "snapshot", "create", "data", "stuck", "--wait", "200ms")
	b.Want(cli.ExitError, "its home tries again: no room", "", "volume", "snapshot", "create", "data", "stuck", "--wait", "200ms")
	b.Want(cli.ExitOK, "a                        2026-05-04T10:00:00Z  1.0 MiB  7      Taken", "", "volume", "snapshot", "list", "data")
	b.Want(cli.ExitOK, `"name": "a"`, "", "volume", "snapshot", "list", "data", "-o", "json")

	b.Want(cli.ExitError, "volume data has no snapshot b", "", "volume", "snapshot", "drop", "data", "b")
	b.Want(cli.ExitOK, "snapshot a of volume data is dropped", "", "volume", "snapshot", "drop", "data", "a")
	b.Want(cli.ExitOK, "is dropped", "", "volume", "snapshot", "drop", "data", scheduled)
	b.Want(cli.ExitOK, "is dropped", "", "volume", "snapshot", "drop", "data", "stuck")
	if got := wishes("u1"); len(got) > 0 {
		t.Errorf("what is done is still asked for: %v", got)
	}
	b.Want(cli.ExitOK, "was taken at", "", "volume", "snapshot", "create", "data", "a")

	b.Want(cli.ExitError, "a GeoVolumeSnapshot of the cluster of site ams asked for it", "", "volume", "snapshot", "drop", "team.data",
		"theirs")
	b.Want(cli.ExitOK, "is dropped", "", "volume", "snapshot", "drop", "team.data", scheduled)
	b.Want(cli.ExitOK, "is dropped", "", "volume", "snapshot", "drop", "team.data", "theirs", "--force")
}

// TestVolumeRollback: the owner rolls a volume back, says it twice, and hears what became of it.
func TestVolumeRollback(t *testing.T) {
	b := clitest.New(t, tree)
	home := b.Site("ams", "SURF")
	for _, v := range []federation.Volume{{UUID: "u1", Name: "data", Owner: "SURF", Generation: 1, Sites: []string{"ams"}},
		{UUID: "u2", Name: "team.data", Owner: "SURF", Generation: 1, Sites: []string{"ams"}, OwnerSite: "ams", OwnerCluster: "c"},
		{UUID: "u3", Name: "others", Owner: "DFN", Generation: 1, Sites: []string{"ams"}}} {
		if _, err := b.Registry.CreateVolume(t.Context(), v, federation.Keyring{}); err != nil {
			t.Fatal(err)
		}
	}
	keeps(t, b, home, "one")
	asked := func(id string) *snapshots.Rollback {
		t.Helper()
		v, _, err := b.Registry.GetVolume(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return v.Rollback
	}
	roll := func(args ...string) []string { return append([]string{"volume", "rollback"}, args...) }
	b.Want(cli.ExitUsage, "--to is missing", "", roll("data")...)
	b.Want(cli.ExitUsage, "it is not between 0s and 1h0m0s", "", roll("data", "--to", "one", "--wait", "2h")...)
	b.Want(cli.ExitError, "volume data has no snapshot two", "", roll("data", "--to", "two", "--yes")...)
	b.Want(cli.ExitError, "not confirmed", "yes\n", roll("data", "--to", "one")...)
	b.Want(cli.ExitError, "it belongs to DFN", "", roll("others", "--to", "one", "--yes")...)
	if asked("u1") != nil || asked("u3") != nil {
		t.Fatal("something was written")
	}
	b.Want(cli.ExitOK, "volume data is what it was in one; what it had until now is in snapshot before-rollback-", "data\n",
		roll("data", "--to", "one")...)
	b.Want(cli.ExitOK, "volume team.data is what it was in one", "", roll("team.data", "--to", "one", "--yes")...)
	b.Want(cli.ExitError, "was not rolled back: there is no snapshot @1", "", roll("data", "--to", "@1", "--yes")...)
	if r := asked("u1"); r != nil {
		t.Errorf("what is settled is still asked for: %+v", r)
	}
	b.Want(cli.ExitError, "its home says: no room", "", roll("data", "--to", "@2", "--yes", "--wait", "200ms")...)
	b.Want(cli.ExitError, "is being rolled back to @2 already", "", roll("data", "--to", "one", "--yes")...)
}

func TestSnapshotSchedule(t *testing.T) {
	b := clitest.New(t, tree)
	b.Site("ams", "SURF")
	for _, v := range []federation.Volume{{UUID: "u1", Name: "data", Owner: "SURF", Generation: 1, Sites: []string{"ams"}},
		{UUID: "u2", Name: "team.data", Owner: "SURF", Generation: 1, Sites: []string{"ams"}, OwnerSite: "ams", OwnerCluster: "c"}} {
		if _, err := b.Registry.CreateVolume(t.Context(), v, federation.Keyring{}); err != nil {
			t.Fatal(err)
		}
	}
	schedule := func(args ...string) []string { return append([]string{"volume", "snapshot", "schedule"}, args...) }
	b.Want(cli.ExitUsage, `--keep "Hourly": write how often, and how many are kept`, "", schedule("data", "--keep", "Hourly")...)
	b.Want(cli.ExitUsage, "snapshots.schedule[0].every: Yearly: not one of", "", schedule("data", "--keep", "Yearly=1")...)
	b.Want(cli.ExitUsage, "snapshots.window: 25h0m0s: not whole seconds", "", schedule("data", "--window", "25h")...)
	b.Want(cli.ExitError, "write snapshots into its policy", "", schedule("team.data", "--keep", "Daily=1")...)
	full := schedule("data", "--keep", "Hourly=24", "--keep", "Daily=31", "--window", "1h", "--directory", "None")
	b.Want(cli.ExitOK, "its home goes by this from now on", "", full...)
	b.Want(cli.ExitOK, "has this schedule already", "", full...)
	v, _, err := b.Registry.GetVolume(t.Context(), "u1")
	if err != nil {
		t.Fatal(err)
	}
	p := v.Spec.Snapshots
	if v.Generation != 2 || len(p.Schedule) != 2 || p.Schedule[1] != (snapshots.Schedule{Every: snapshots.Daily, Keep: 31}) ||
		p.Window.String() != "1h0m0s" || p.Directory != snapshots.DirectoryNone {
		t.Errorf("%d %+v", v.Generation, p)
	}
	b.Want(cli.ExitOK, "its home goes by this from now on", "", schedule("data")...)

	trash := func(args ...string) []string { return append([]string{"volume", "trash"}, args...) }
	b.Want(cli.ExitUsage, "--keep is missing", "", trash("data")...)
	b.Want(cli.ExitUsage, "--keep: trash.keep: 9000h0m0s: not whole seconds", "", trash("data", "--keep", "9000h")...)
	b.Want(cli.ExitError, "write trash into its policy", "", trash("team.data", "--keep", "1h")...)
	b.Want(cli.ExitOK, "its home goes by this from now on", "", trash("data", "--keep", "168h")...)
	b.Want(cli.ExitOK, "has this already", "", trash("data", "--keep", "168h")...)
	if v, _, err = b.Registry.GetVolume(t.Context(), "u1"); err != nil || v.Generation != 4 || v.Spec.Trash.Keep.String() != "168h0m0s" {
		t.Errorf("%d %+v, %v", v.Generation, v.Spec.Trash, err)
	}
}
