// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
)

func snapshotCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	return cli.Group(&cobra.Command{Use: "snapshot", Short: "Take, list and drop snapshots of a volume"},
		snapshotCreate(sh, opener), snapshotList(sh, opener), snapshotDrop(sh, opener), snapshotSchedule(sh, opener))
}

// snapshotWait is how long create and drop wait for the volume's home, unless --wait says another
// time.
const snapshotWait = time.Minute

func snapshotCreate(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var limit time.Duration
	c := &cobra.Command{
		Use: "create VOLUME NAME", Short: "Take a snapshot", Args: cli.Args(cobra.ExactArgs(2)),
		Long: "Has the volume's home keep the volume's present state under a name, and waits until it is taken.\n" +
			"Clients find it in the directory .snapshots/NAME of each directory. A volume that a Kubernetes\n" +
			"cluster owns gets snapshots by a GeoVolumeSnapshot there.",
		Example: "  weir volume snapshot create data before-upgrade",
		RunE: func(c *cobra.Command, a []string) error {
			if problem := snapshots.CheckName(a[1]); problem != "" {
				return cli.Usage("snapshot %q: %s", a[1], problem)
			}
			return withSnapshots(opener, func(cl *access.Client) error {
				v, w, err := askSnapshot(c.Context(), cl, sh.Random, a[0], a[1])
				if err != nil {
					return err
				}
				s, err := awaitSnapshot(c.Context(), cl, v, w, limit)
				if err != nil {
					return err
				}
				return sh.Say("snapshot %s of volume %s was taken at %s: it is in .snapshots/%[1]s of each directory\n", s.Name, v.Name,
					cli.Stamp(s.Time))
			})
		},
	}
	c.Flags().DurationVar(&limit, "wait", snapshotWait, "how long to wait until it is taken")
	return c
}

func snapshotDrop(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var limit time.Duration
	var force bool
	c := &cobra.Command{
		Use: "drop VOLUME NAME", Short: "Drop a snapshot", Args: cli.Args(cobra.ExactArgs(2)),
		Long: "Has the volume's home drop a snapshot, and waits until that is done. What only the snapshot had is\n" +
			"gone then. Typed again, the command goes on where it was interrupted. A scheduled snapshot may be\n" +
			"dropped too; that of the present period is taken again. A snapshot that a GeoVolumeSnapshot asked\n" +
			"for is dropped by deleting that; with --force it is dropped all the same.",
		Example: "  weir volume snapshot drop data before-upgrade",
		RunE: func(c *cobra.Command, a []string) error {
			return withSnapshots(opener, func(cl *access.Client) error {
				v, w, err := askDrop(c.Context(), cl, sh.Random, a[0], a[1], force)
				if err != nil {
					return err
				}
				if _, err := awaitSnapshot(c.Context(), cl, v, w, limit); err != nil {
					return err
				}
				if err := forgetWish(c.Context(), cl, v, w); err != nil {
					return fmt.Errorf("snapshot %s is dropped, and that was asked for is still in the volume's record: %w; type the same "+
						"command again", w.Name, err)
				}
				return sh.Say("snapshot %s of volume %s is dropped\n", w.Name, v.Name)
			})
		},
	}
	c.Flags().DurationVar(&limit, "wait", snapshotWait, "how long to wait until it is dropped")
	c.Flags().BoolVar(&force, "force", false, "also if a GeoVolumeSnapshot asked for it")
	return c
}

// SnapshotLine is one snapshot in `weir volume snapshot list`. With -o json the command prints a
// list of them.
type SnapshotLine struct {
	Name    string    `json:"name"`
	State   string    `json:"state"` // Taken, Pending or Dropped
	Time    time.Time `json:"time,omitzero"`
	Bytes   uint64    `json:"bytes"` // what the volume held
	Files   uint64    `json:"files"`
	Asked   bool      `json:"asked"` // somebody asked for it; else a schedule made it
	Message string    `json:"message,omitempty"`
}

func snapshotList(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "list VOLUME", Short: "List the snapshots of a volume", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Lists the snapshots of a volume as its home reported them last, and what became of snapshots that\n" +
			"were asked for.",
		Example: "  weir volume snapshot list data\n  weir volume snapshot list data -o json",
		RunE: func(c *cobra.Command, a []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			return withSnapshots(opener, func(cl *access.Client) error {
				v, err := cl.Living(c.Context(), a[0])
				if err != nil {
					return err
				}
				told, err := reportedSnapshots(c.Context(), cl, v)
				if err != nil {
					return err
				}
				if told.Problem != "" {
					sh.Tell("scheduled snapshots: %s\n", told.Problem)
				}
				if told.More > 0 {
					sh.Tell("%d more, which are older, are not listed\n", told.More)
				}
				lines := []SnapshotLine{}
				for _, s := range told.All {
					lines = append(lines, SnapshotLine{Name: s.Name, State: string(s.State), Time: s.Time, Bytes: s.Bytes, Files: s.Inodes,
						Asked: s.UID != "", Message: s.Message})
				}
				if output == "json" {
					return cli.WriteJSON(sh.Out, lines)
				}
				return writeSnapshots(sh.Out, lines)
			})
		},
	}
	cli.OutputFlag(c, &output)
	return c
}

func writeSnapshots(w io.Writer, lines []SnapshotLine) error {
	var t cli.Table
	t.Row("NAME", "TAKEN", "SIZE", "FILES", "STATE", "MESSAGE")
	for _, l := range lines {
		at, size, files := "-", "-", "-"
		if !l.Time.IsZero() {
			at, size, files = cli.Stamp(l.Time), cli.Bytes(int64(l.Bytes)), strconv.FormatUint(l.Files, 10)
		}
		t.Row(l.Name, at, size, files, l.State, l.Message)
	}
	return t.Write(w)
}

func withSnapshots(opener *access.Opener, f func(cl *access.Client) error) error {
	cl, err := opener.Open()
	if err != nil {
		return err
	}
	defer cl.Close()
	return f(cl)
}

// reportedSnapshots is what the volume's present home reported.
func reportedSnapshots(ctx context.Context, cl *access.Client, v federation.Volume) (*snapshots.Report, error) {
	home, _, err := cl.Registry.GetControl(ctx, v.UUID)
	if err != nil && !errors.Is(err, federation.ErrNotFound) {
		return nil, err
	}
	all, err := cl.Registry.ListObserved(ctx, v.UUID)
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		if o.Gateway == home.Home.Gateway && o.Snapshots != nil {
			return o.Snapshots, nil
		}
	}
	return nil, fmt.Errorf("volume %s: its home has not told which snapshots there are: `weir status %[1]s` says how it is", v.Name)
}

// errAsked: there is nothing to write, because somebody has written it.
var errAsked = errors.New("it is asked for already")

// editWishes changes a volume's wishes. It tries again while others change the volume. change
// returns the wish that the caller then waits for, and errAsked if the record has it.
func editWishes(ctx context.Context, cl *access.Client, name string,
	change func(v *federation.Volume, told *snapshots.Report) (snapshots.Wish, error)) (federation.Volume, snapshots.Wish, error) {
	for try := 1; ; try++ {
		v, rev, err := cl.Find(ctx, name)
		switch {
		case err != nil:
		case v.Deleted:
			err = fmt.Errorf("volume %s is deleted: take it out of the trash first, with weir volume undelete", v.Name)
		case v.Owner != cl.Self.Organization:
			err = fmt.Errorf("volume %s: it belongs to %s, and your certificate is of %s: ask a person there", v.Name, v.Owner,
				cl.Self.Organization)
		}
		if err != nil {
			return v, snapshots.Wish{}, err
		}
		told, err := reportedSnapshots(ctx, cl, v)
		if err != nil {
			return v, snapshots.Wish{}, err
		}
		w, err := change(&v, told)
		if errors.Is(err, errAsked) {
			return v, w, nil
		}
		if err == nil {
			_, err = cl.Registry.UpdateVolume(ctx, rev, v)
		}
		if err == nil || try == updateTries || !errors.Is(err, federation.ErrConflict) && !errors.Is(err, federation.ErrUnknown) {
			return v, w, access.Repeatable(err)
		}
	}
}

// askSnapshot writes that a snapshot is wanted.
func askSnapshot(ctx context.Context, cl *access.Client, random io.Reader, volume, name string) (federation.Volume, snapshots.Wish,
	error) {
	id, err := uuid.NewRandomFromReader(random)
	if err != nil {
		return federation.Volume{}, snapshots.Wish{}, err
	}
	return editWishes(ctx, cl, volume, func(v *federation.Volume, told *snapshots.Report) (snapshots.Wish, error) {
		w, asked := snapshots.Find(v.Snapshots, name)
		x, ok := told.Of(name)
		switch {
		case v.OwnerSite != "":
			return w, fmt.Errorf("volume %s belongs to the cluster of site %s: make a GeoVolumeSnapshot there", v.Name, v.OwnerSite)
		case asked && w.UID == id.String():
			return w, errAsked // an attempt whose outcome was not known
		case asked && w.Drop && !told.Dropped(w):
			return w, fmt.Errorf("snapshot %s of volume %s is being dropped: `weir volume snapshot drop` waits for that", name, v.Name)
		case ok && !x.Time.IsZero():
			return w, fmt.Errorf("volume %s has a snapshot %s already, of %s: choose another name", v.Name, name, cli.Stamp(x.Time))
		case asked && !w.Drop:
			return w, errAsked // it waits
		}
		w = snapshots.Wish{Name: name, UID: id.String()}
		v.Snapshots = snapshots.Put(v.Snapshots, w, told)
		return w, nil
	})
}

// askDrop writes that a snapshot is to be dropped.
func askDrop(ctx context.Context, cl *access.Client, random io.Reader, volume, name string, force bool) (federation.Volume, snapshots.Wish,
	error) {
	id, err := uuid.NewRandomFromReader(random)
	if err != nil {
		return federation.Volume{}, snapshots.Wish{}, err
	}
	return editWishes(ctx, cl, volume, func(v *federation.Volume, told *snapshots.Report) (snapshots.Wish, error) {
		w, asked := snapshots.Find(v.Snapshots, name)
		x, ok := told.Of(name)
		switch {
		case asked && w.Drop:
			return w, errAsked
		case asked && v.OwnerSite != "" && !force:
			return w, fmt.Errorf("snapshot %s of volume %s: a GeoVolumeSnapshot of the cluster of site %s asked for it: delete that; if "+
				"there is none any more, give --force", name, v.Name, v.OwnerSite)
		case asked:
			w.Drop = true
		case !ok || x.Time.IsZero():
			return w, fmt.Errorf("volume %s has no snapshot %s: `weir volume snapshot list %[1]s` shows which there are", v.Name, name)
		default:
			w = snapshots.Wish{Name: name, UID: id.String(), Drop: true}
		}
		v.Snapshots = snapshots.Put(v.Snapshots, w, told)
		return w, nil
	})
}

// forgetWish takes a wish that is done out of the record.
func forgetWish(ctx context.Context, cl *access.Client, v federation.Volume, w snapshots.Wish) error {
	_, _, err := editWishes(ctx, cl, v.Name, func(v *federation.Volume, told *snapshots.Report) (snapshots.Wish, error) {
		if is, ok := snapshots.Find(v.Snapshots, w.Name); !ok || is != w {
			return w, errAsked
		}
		v.Snapshots = snapshots.Without(v.Snapshots, w.Name, told)
		return w, nil
	})
	return err
}

var errSnapshotDone = errors.New("the home has done it")

// awaitSnapshot waits until the home reports that a wish is done. After limit its error says what
// it waits for.
func awaitSnapshot(ctx context.Context, cl *access.Client, v federation.Volume, w snapshots.Wish, limit time.Duration) (snapshots.Snapshot,
	error) {
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var is snapshots.Snapshot
	err := cl.Registry.Watch(wait, func(e federation.Event) error {
		if e.Observed == nil || e.Observed.Volume != v.UUID || e.Observed.Snapshots == nil {
			return nil
		}
		x, ok := e.Observed.Snapshots.Of(w.Name)
		if !ok || x.UID != w.UID {
			return nil
		}
		if is = x; w.Drop && x.State == snapshots.StateDropped || !w.Drop && x.State == snapshots.StateTaken {
			return errSnapshotDone
		}
		return nil
	})
	switch {
	case errors.Is(err, errSnapshotDone):
		return is, nil
	case ctx.Err() != nil:
		return is, ctx.Err()
	case !errors.Is(err, context.DeadlineExceeded):
		return is, err
	case is.Message != "":
		return is, fmt.Errorf("snapshot %s of volume %s is asked for, and not done after %v: its home tries again: %s", w.Name, v.Name,
			limit, is.Message)
	}
	return is, fmt.Errorf("snapshot %s of volume %s is asked for, and its home has not done it after %v: `weir status %[2]s` says how it "+
		"is; the same command goes on waiting", w.Name, v.Name, limit)
}
