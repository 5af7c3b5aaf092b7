// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
)

func undeleteCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	return &cobra.Command{
		Use: "undelete NAME", Short: "Take a volume out of the trash", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Takes a deleted volume out of the trash, as long as it was not purged. Gateways serve it again, with\n" +
			"all that it had. Clients that were admitted still are. A deletion that was interrupted before the\n" +
			"volume was in the trash is called off.",
		Example: "  weir volume undelete data",
		RunE: func(c *cobra.Command, a []string) error {
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			v, err := trashed(c.Context(), cl, "undelete", a[0], "", func(v *federation.Volume) {
				v.Deleted, v.Closing, v.DeletedAt, v.PurgeAfter = false, false, time.Time{}, time.Time{}
				v.Generation++ // who knows it knows that it was taken out (federation.Purge)
			})
			if err != nil {
				return err
			}
			return sh.Say("volume %s is there again\n", v.Name)
		},
	}
}

func purgeCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "purge NAME", Short: "Empty the trash of one volume now", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Has gateways purge a deleted volume at once: its keys, its data at all sites, its salvage and its\n" +
			"name are gone for good. The command asks for the volume's name first.",
		Example: "  weir volume purge data",
		RunE: func(c *cobra.Command, a []string) error {
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			v, _, err := cl.Find(c.Context(), a[0])
			if err != nil {
				return err
			}
			if !yes && v.Deleted {
				sh.Tell("Everything that volume %s (%s) had is gone for good. Type its name to purge it: ", v.Name, v.UUID)
				if err := sh.Confirm("purge volume "+v.Name, v.Name); err != nil {
					return err
				}
			}
			v, err = trashed(c.Context(), cl, "purge", a[0], v.UUID, func(v *federation.Volume) {
				v.PurgeAfter = cmp.Or(v.DeletedAt, sh.Now().UTC()) // no clock has a say (ADR 66)
			})
			if err != nil {
				return err
			}
			return sh.Say("volume %s is purged within a minute, by each gateway as soon as it runs\n", v.Name)
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// trashed changes the record of a volume in the trash. Uuid, if not empty, is the one that the
// person meant.
func trashed(ctx context.Context, cl *access.Client, op, name, uuid string, change func(*federation.Volume)) (federation.Volume, error) {
	for try := 1; ; try++ {
		v, rev, err := cl.Find(ctx, name)
		switch {
		case try > 1 && op == "purge" && errors.Is(err, federation.ErrNotFound),
			try > 1 && op == "undelete" && err == nil && !v.Deleted && !v.Closing:
			v.Name = name
			return v, nil // the former try did it
		case err != nil:
			return v, err
		case uuid != "" && v.UUID != uuid:
			return v, fmt.Errorf("%s volume %s: the name now means another volume, %s: nothing was changed", op, name, v.UUID)
		case !v.Deleted && op == "undelete" && v.Closing && v.OwnerCluster == "": // its deletion was interrupted
		case !v.Deleted:
			return v, fmt.Errorf("%s volume %s: it is not in the trash: `weir volume delete` puts it there", op, name)
		case op == "undelete" && v.Source.Unfinished() && v.Source.Snapshot == snapshots.CloneName(v.UUID):
			return v, fmt.Errorf("%s volume %s: it does not have all that it was made of, and the snapshot that was taken for it went "+
				"when it was deleted: `weir volume purge` frees the name, and `weir volume create --from` makes another one", op, name)
		case v.OwnerCluster != "":
			return v, fmt.Errorf("%s volume %s: it belongs to the cluster of site %s, whose operator alone changes it: "+
				"it is purged after %s", op, name, v.OwnerSite, cli.Stamp(v.PurgeAt()))
		}
		change(&v)
		_, err = cl.Registry.UpdateVolume(ctx, rev, v)
		if try == updateTries || !errors.Is(err, federation.ErrConflict) && !errors.Is(err, federation.ErrUnknown) {
			return v, err
		}
	}
}
