// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
)

// rollbackWait is how long rollback waits for the volume's home, unless --wait says another time.
const rollbackWait = 10 * time.Minute

func rollbackCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var to string
	var yes bool
	var limit time.Duration
	c := &cobra.Command{
		Use: "rollback VOLUME --to SNAPSHOT|@TIME", Short: "Make a volume what it was in a snapshot", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Makes a whole volume what it was in a snapshot, or at a time within its window, and waits until\n" +
			"that is done. Nothing is lost: what the volume had until then is kept as a snapshot, named\n" +
			"before-rollback- and a number, and other snapshots stay. Roll back to that to undo it, or drop it.\n" +
			"Stop the programs that use the volume first. Those that go on see files change under them, and get\n" +
			"'stale file handle' for files that the snapshot does not have. To take back single files, copy them\n" +
			"from .snapshots instead. The command asks for the volume's name first. A home that cannot begin\n" +
			"until --wait is over never begins.",
		Example: "  weir volume rollback data --to before-upgrade\n  weir volume rollback data --to @2026-11-27T15:03:20Z --yes",
		RunE: func(c *cobra.Command, a []string) error {
			if to == "" {
				return cli.Usage("--to is missing: name a snapshot, as `weir volume snapshot list` shows them, or a time after @")
			}
			if limit <= 0 || limit > snapshots.MaxRollbackWait {
				return cli.Usage("--wait %v: it is not between 0s and %v", limit, snapshots.MaxRollbackWait)
			}
			return withSnapshots(opener, func(cl *access.Client) error {
				if err := awaitReport(c.Context(), cl, a[0], limit); err != nil {
					return err
				}
				if !yes {
					if err := confirmRollback(c.Context(), sh, cl, a[0], to); err != nil {
						return err
					}
				}
				id, err := uuid.NewRandomFromReader(sh.Random)
				if err != nil {
					return err
				}
				r := snapshots.Rollback{ID: id.String(), To: to, Until: sh.Now().Add(limit).UTC()}
				v, err := askRollback(c.Context(), cl, a[0], r)
				if err != nil {
					return err
				}
				is, err := awaitRollback(c.Context(), cl, v, r, limit)
				if err != nil {
					return err
				}
				if err := forgetRollback(c.Context(), cl, v, r); err != nil { // it is done once in any case
					sh.Tell("The volume's record still asks for the rollback, which does nothing more: %v\n", err)
				}
				if is.State == snapshots.StateRefused {
					return fmt.Errorf("volume %s was not rolled back: %s", v.Name, is.Message)
				}
				return sh.Say("volume %s is what it was in %s; what it had until now is in snapshot %s\n", v.Name, to, r.Before())
			})
		},
	}
	c.Flags().StringVar(&to, "to", "", "the snapshot's name, or a time after @, in RFC 3339 or in seconds since 1970")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().DurationVar(&limit, "wait", rollbackWait, "how long to wait until it is done")
	return c
}

// confirmRollback asks the person to type the volume's name, and says who may be using it.
func confirmRollback(ctx context.Context, sh *cli.Shell, cl *access.Client, name, to string) error {
	v, err := cl.Living(ctx, name)
	if err != nil {
		return err
	}
	all, err := cl.Registry.ListAdmissions(ctx, "")
	if err != nil {
		return err
	}
	clients := 0
	for _, x := range all {
		if x.Volume == v.UUID {
			clients++
		}
	}
	sh.Tell("Everything that changed in volume %s (%s) since %s is undone. %d clients may use the volume now: programs that go on "+
		"see files change under them. Type its name to roll it back: ", v.Name, v.UUID, to, clients)
	return sh.Confirm("roll back volume "+v.Name, v.Name)
}

// askRollback writes that a volume is to be rolled back.
func askRollback(ctx context.Context, cl *access.Client, name string, r snapshots.Rollback) (federation.Volume, error) {
	v, _, err := editWishes(ctx, cl, name, func(v *federation.Volume, told *snapshots.Report) (snapshots.Wish, error) {
		x, known := told.Of(r.To)
		switch {
		case v.Rollback != nil && v.Rollback.ID == r.ID:
			return snapshots.Wish{}, errAsked // an attempt whose outcome was not known
		case v.Rollback != nil && !told.Settled(*v.Rollback):
			return snapshots.Wish{}, fmt.Errorf("volume %s is being rolled back to %s already: wait for that, until %s at most", v.Name,
				v.Rollback.To, cli.Stamp(v.Rollback.Until))
		case r.To[0] != '@' && told.More == 0 && (!known || x.Time.IsZero()):
			return snapshots.Wish{}, fmt.Errorf("volume %s has no snapshot %s: `weir volume snapshot list %[1]s` shows which there are",
				v.Name, r.To)
		}
		v.Rollback = &r
		return snapshots.Wish{}, nil
	})
	return v, err
}

// awaitRollback waits until the home reports that a rollback is done or refused. After limit its
// error says what it waits for.
func awaitRollback(ctx context.Context, cl *access.Client, v federation.Volume, r snapshots.Rollback,
	limit time.Duration) (snapshots.Rolled, error) {
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var is snapshots.Rolled
	err := cl.Registry.Watch(wait, func(e federation.Event) error {
		if e.Observed == nil || e.Observed.Volume != v.UUID || e.Observed.Snapshots == nil || e.Observed.Snapshots.Rolled == nil ||
			e.Observed.Snapshots.Rolled.ID != r.ID {
			return nil
		}
		if is = *e.Observed.Snapshots.Rolled; is.State != snapshots.StatePending {
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
	}
	why := "its home has not said what became of it"
	if is.Message != "" {
		why = "its home says: " + is.Message
	}
	return is, fmt.Errorf("volume %s: after %v the rollback is not done: %s; it begins no more, but if it has begun it goes on, and "+
		"there is a snapshot %s", v.Name, limit, why, r.Before())
}

// forgetRollback takes a rollback that is done or refused out of the record.
func forgetRollback(ctx context.Context, cl *access.Client, v federation.Volume, r snapshots.Rollback) error {
	_, _, err := editWishes(ctx, cl, v.Name, func(v *federation.Volume, _ *snapshots.Report) (snapshots.Wish, error) {
		if v.Rollback == nil || v.Rollback.ID != r.ID {
			return snapshots.Wish{}, errAsked
		}
		v.Rollback = nil
		return snapshots.Wish{}, nil
	})
	return err
}
