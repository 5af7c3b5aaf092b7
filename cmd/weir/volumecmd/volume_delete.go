// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
)

func deleteCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var yes bool
	var trash time.Duration
	c := &cobra.Command{
		Use: "delete NAME", Short: "Put a volume into the trash, which ends its service", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Marks a volume deleted. All gateways stop serving it at once. Its data and its name stay in the\n" +
			"trash for a week, or as long as --trash says; `weir volume undelete` brings it back. Then gateways\n" +
			"purge it: its keys and its data are gone for good, everywhere. The command asks for the volume's\n" +
			"name first.",
		Example: "  weir volume delete data\n  weir volume delete data --trash 720h",
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
			if trash < 0 {
				return cli.Usage("--trash %v: it is negative: give how long the volume stays in the trash, such as 168h", trash)
			}
			if !yes && !v.Deleted {
				if err := confirm(sh, v); err != nil {
					return err
				}
			}
			if v, err = markDeleted(c.Context(), cl, a[0], v.UUID, sh.Now(), trash); err != nil {
				return err
			}
			dropClone(c.Context(), sh, cl, v)
			return sh.Say("volume %s is deleted since %s; its data and its name stay until it is purged, after %s\n", v.Name,
				cli.Stamp(v.DeletedAt), cli.Stamp(v.PurgeAt()))
		},
	}
	c.Flags().DurationVar(&trash, "trash", federation.TrashTime, "how long it stays in the trash")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// confirm asks the person to type the volume's name.
func confirm(sh *cli.Shell, v federation.Volume) error {
	sh.Tell("Volume %s (%s, sites %s) ends for all its clients. Type its name to delete it: ", v.Name, v.UUID, strings.Join(v.Sites, ", "))
	return sh.Confirm("delete volume "+v.Name, v.Name)
}

// markDeleted marks the volume that the person confirmed. It returns when the volume was marked
// first.
func markDeleted(ctx context.Context, cl *access.Client, name, uuid string, now time.Time, trash time.Duration) (federation.Volume, error) {
	for try := 1; ; try++ {
		v, rev, err := cl.Find(ctx, name)
		if err != nil || v.Deleted {
			return v, err
		}
		if v.UUID != uuid {
			return v, fmt.Errorf("delete volume %s: the name now means another volume, %s: nothing was changed", name, v.UUID)
		}
		if v.OwnerCluster != "" {
			return v, fmt.Errorf("delete volume %s: it belongs to the cluster of site %s: "+
				"delete its GeoVolume or PersistentVolumeClaim there, with reclaimPolicy Delete", name, v.OwnerSite)
		}
		if err := spared(ctx, cl, v); err != nil {
			return v, errors.Join(err, reopen(ctx, cl, v.UUID))
		}
		if err = shut(ctx, cl, &rev, &v); err == nil {
			next := v
			next.Deleted, next.DeletedAt, next.PurgeAfter = true, now.UTC(), now.UTC().Add(trash)
			if _, err = cl.Registry.UpdateVolume(ctx, rev, next); err == nil {
				return next, nil
			}
		}
		if try == updateTries || !errors.Is(err, federation.ErrConflict) && !errors.Is(err, federation.ErrUnknown) {
			return v, errors.Join(err, reopen(ctx, cl, v.UUID))
		}
	}
}

// shut forbids new claims, and then refuses if the volume has claims, or if another one is being
// made of it. Whoever makes a claim reads the volume's record afterwards, so one of the two sees
// the other. If it refuses, the volume stays shut.
func shut(ctx context.Context, cl *access.Client, rev *federation.Revision, v *federation.Volume) error {
	if !v.Closing {
		v.Closing = true
		now, err := cl.Registry.UpdateVolume(ctx, *rev, *v)
		if err != nil {
			return err
		}
		*rev = now
	}
	claims, err := cl.Registry.ListClaims(ctx, v.UUID)
	if err != nil {
		return err
	}
	if len(claims) == 0 {
		return spared(ctx, cl, *v)
	}
	var users []string
	for _, x := range claims {
		users = append(users, x.Site+"/"+x.Namespace+"/"+x.Name)
	}
	return fmt.Errorf("delete volume %s: it is in use by %s (site/namespace/name): delete these first", v.Name, strings.Join(users, ", "))
}

// reopenTime bounds how long it is tried to call off a deletion.
const reopenTime = 10 * time.Second

// reopen calls off a deletion that had begun and came to nothing, also if it was interrupted: new
// claims are allowed again. Who deletes the volume at the same time begins again.
func reopen(ctx context.Context, cl *access.Client, uuid string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reopenTime)
	defer cancel()
	for try := 1; ; try++ {
		v, rev, err := cl.Registry.GetVolume(ctx, uuid)
		if errors.Is(err, federation.ErrNotFound) || err == nil && (!v.Closing || v.Deleted) {
			return nil
		}
		if err == nil {
			v.Closing = false
			if _, err = cl.Registry.UpdateVolume(ctx, rev, v); err == nil {
				return nil
			}
		}
		if try == updateTries || !errors.Is(err, federation.ErrConflict) && !errors.Is(err, federation.ErrUnknown) {
			return fmt.Errorf("nobody can claim volume %s until `weir volume undelete %[1]s` calls its deletion off: %w", v.Name, err)
		}
	}
}
