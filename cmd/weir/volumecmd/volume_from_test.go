// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"strings"
	"testing"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
)

// TestVolumeFrom: a volume is made of a snapshot, or of another volume, of which one is taken for
// that and dropped. The command sees it through, also if an earlier one was interrupted.
func TestVolumeFrom(t *testing.T) {
	b := clitest.New(t, tree)
	home := b.Site("ams", "SURF")
	b.Site("fra", "DFN")
	for _, v := range []federation.Volume{
		{UUID: "00000000-0000-4000-8000-000000000001", Name: "old", Owner: "SURF", Sites: []string{"ams"}},
		{UUID: "00000000-0000-4000-8000-000000000002", Name: "team.data", Owner: "SURF", Sites: []string{"ams"}, OwnerSite: "ams",
			OwnerCluster: "c"},
		{UUID: "00000000-0000-4000-8000-000000000003", Name: "others", Owner: "DFN", Sites: []string{"ams"}}} {
		v.Generation = 1
		if _, err := b.Registry.CreateVolume(t.Context(), v, federation.Keyring{}); err != nil {
			t.Fatal(err)
		}
	}
	keeps(t, b, home, "monday")
	named := func(name, size string) string {
		return strings.NewReplacer("name: data", "name: "+name, "size: 10Gi", "size: "+size).Replace(clitest.Manifest)
	}
	create := func(exit int, want, name, from string, more ...string) {
		t.Helper()
		b.Want(exit, want, named(name, "10Gi"), append([]string{"volume", "create", "-f", "-", "--from", from}, more...)...)
	}
	record := func(name string) federation.Volume {
		t.Helper()
		v, _, err := b.Registry.FindVolume(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for from, want := range map[string]string{"": `--from ""`, "@monday": `--from "@monday"`, "old@": `--from "old@"`,
		"old@@1": "write VOLUME, or VOLUME@SNAPSHOT"} {
		create(cli.ExitUsage, want, "new", from)
	}
	create(cli.ExitError, "make a GeoVolume with spec.source there", "new", "team.data")
	create(cli.ExitError, "only its owner makes volumes of it", "new", "others")
	create(cli.ExitError, "there is no volume of this name", "new", "older")
	create(cli.ExitError, "volume old has no snapshot tuesday", "new", "old@tuesday")
	b.Want(cli.ExitError, "spec.size is 512Ki, and the snapshot has 1.0 MiB: write that or more", named("new", "512Ki"), "volume",
		"create", "-f", "-", "--from", "old")
	if w := record("old").Snapshots; len(w) > 0 {
		t.Errorf("what was refused left the wishes %v", w)
	}

	create(cli.ExitOK, "volume new has all of old@monday", "new", "old@monday")
	v := record("new")
	if s := v.Source; s == nil || s.Volume != record("old").UUID || s.Snapshot != "monday" || s.Snap != 5 || !s.Done || s.Bytes != 1<<20 ||
		!s.Time.Equal(clitest.Time) {
		t.Errorf("it is made of %+v", s)
	}
	create(cli.ExitOK, "volume new has all of old@monday", "new", "old@monday") // typed again
	create(cli.ExitError, "name taken", "new", "old")
	create(cli.ExitError, "name taken", "new", "old@monday2")

	create(cli.ExitOK, "volume clone has all of old", "clone", "old")
	if v := record("clone"); v.Source.Snapshot != snapshots.CloneName(v.UUID) || !v.Source.Done {
		t.Errorf("it is made of %+v", v.Source)
	}
	if w := record("old").Snapshots; len(w) > 0 {
		t.Errorf("the snapshot that was taken is still asked for: %v", w)
	}

	create(cli.ExitError, "has 512.0 KiB of 1.0 MiB after 100ms: its home tries again: no room", "slow", "old", "--wait", "100ms")
	slow := record("slow")
	if w := record("old").Snapshots; len(w) != 1 || w[0].UID != slow.UUID || slow.Source.Done {
		t.Errorf("a volume that is being made: %+v, of a volume with the wishes %v", slow.Source, w)
	}
	create(cli.ExitOK, "", "slow", "old", "--wait", "0")
	create(cli.ExitError, "the same command goes on waiting", "slow", "old", "--wait", "100ms")
	change := func(name string, f func(*federation.Volume)) {
		t.Helper()
		v, rev, err := b.Registry.FindVolume(t.Context(), name)
		if f(&v); err == nil {
			_, err = b.Registry.UpdateVolume(t.Context(), rev, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change("old", func(v *federation.Volume) { v.Closing = true }) // a command was killed
	b.Want(cli.ExitError, "volume slow is being made of it", "", "volume", "delete", "old", "--yes")
	if v := record("old"); v.Closing || v.Deleted {
		t.Errorf("after the refusal: %+v", v)
	}
	b.Want(cli.ExitOK, "is deleted since", "", "volume", "delete", "slow", "--yes")
	if w := record("old").Snapshots; len(w) > 0 {
		t.Errorf("the snapshot of a volume that was deleted is still asked for: %v", w)
	}
	b.Want(cli.ExitError, "`weir volume create --from` makes another one", "", "volume", "undelete", "slow")

	// A command was killed when it had a snapshot for a volume, and no volume.
	const lost = "00000000-0000-4000-8000-00000000000f"
	change("old", func(v *federation.Volume) {
		v.Snapshots = append(v.Snapshots, snapshots.Wish{Name: snapshots.CloneName(lost), UID: lost})
	})
	create(cli.ExitOK, "volume clone2 has all of old", "clone2", "old")
	if w := record("old").Snapshots; len(w) != 1 || w[0].UID != lost {
		t.Errorf("the snapshot of a command that may run still: %v", w)
	}
	b.Now = clitest.Time.Add(abandoned)
	create(cli.ExitOK, "volume clone3 has all of old", "clone3", "old")
	if w := record("old").Snapshots; len(w) > 0 {
		t.Errorf("a snapshot for a volume that never came to be is still asked for: %v", w)
	}
	b.Want(cli.ExitOK, "is deleted since", "", "volume", "delete", "old", "--yes")
	create(cli.ExitError, "it was deleted at", "newer", "old")
}
