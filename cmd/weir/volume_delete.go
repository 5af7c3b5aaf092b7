// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/federation"
)

func (sh *shell) volumeDelete(n *connection) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete NAME", Short: "Mark a volume deleted, which ends its service", Args: args(cobra.ExactArgs(1)),
		Long: "Marks a volume deleted. All gateways stop serving it at once; its data and its name stay. Purging them is not available in this release.",
		RunE: func(c *cobra.Command, a []string) error {
			cl, err := sh.open(n)
			if err != nil {
				return err
			}
			defer cl.close()
			v, _, err := cl.find(c.Context(), a[0])
			if err != nil {
				return err
			}
			if !yes && !v.Deleted {
				if err := sh.confirm(v); err != nil {
					return err
				}
			}
			at, err := cl.markDeleted(c.Context(), a[0], v.UUID, sh.now())
			if err != nil {
				return err
			}
			return sh.say("volume %s is deleted since %s; its data and its name stay until it is purged\n", v.Name, stamp(at))
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// confirm has the person type the volume's name.
func (sh *shell) confirm(v federation.Volume) error {
	sh.tell("Volume %s (%s, sites %s) ends for all its clients. Type its name to delete it: ", v.Name, v.UUID, strings.Join(v.Sites, ", "))
	return sh.typed("delete volume "+v.Name, v.Name)
}

// typed returns nil if the person types name.
func (sh *shell) typed(what, name string) error {
	line, err := bufio.NewReader(sh.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: read the answer: %w", what, err)
	}
	if got := strings.TrimSpace(line); got != name {
		return fmt.Errorf("%s: not confirmed (%q was typed): nothing was changed; type the name, or give --yes", what, got)
	}
	return nil
}

const markTries = 5

// markDeleted marks the volume that was confirmed, and returns since when it is.
func (c *client) markDeleted(ctx context.Context, name, uuid string, now time.Time) (time.Time, error) {
	for try := 1; ; try++ {
		v, rev, err := c.find(ctx, name)
		if err != nil || v.Deleted {
			return v.DeletedAt, err
		}
		if v.UUID != uuid {
			return v.DeletedAt, fmt.Errorf("delete volume %s: the name now means another volume, %s: nothing was changed", name, v.UUID)
		}
		if v.OwnerCluster != "" {
			return v.DeletedAt, fmt.Errorf("delete volume %s: it belongs to the cluster of site %s: delete its GeoVolume or PersistentVolumeClaim there, with reclaimPolicy Delete", name, v.OwnerSite)
		}
		if rev, err = c.shut(ctx, rev, &v); err == nil {
			v.Deleted, v.DeletedAt = true, now.UTC()
			_, err = c.registry.UpdateVolume(ctx, rev, v)
		}
		if try == markTries || !errors.Is(err, federation.ErrConflict) && !errors.Is(err, federation.ErrUnknown) {
			return v.DeletedAt, err
		}
	}
}

// shut lets no more claims be made, and refuses when there are some: then they may be made again. Who makes one reads the volume's record
// afterwards, so one of the two sees the other.
func (c *client) shut(ctx context.Context, rev federation.Revision, v *federation.Volume) (federation.Revision, error) {
	var err error
	if !v.Closing {
		v.Closing = true
		if rev, err = c.registry.UpdateVolume(ctx, rev, *v); err != nil {
			return rev, err
		}
	}
	claims, err := c.registry.ListClaims(ctx, v.UUID)
	if err != nil || len(claims) == 0 {
		return rev, err
	}
	var users []string
	for _, x := range claims {
		users = append(users, x.Site+"/"+x.Namespace+"/"+x.Name)
	}
	v.Closing = false
	_, err = c.registry.UpdateVolume(ctx, rev, *v)
	return rev, errors.Join(fmt.Errorf("delete volume %s: it is in use by %s (site/namespace/name): delete these first", v.Name, strings.Join(users, ", ")), err)
}
