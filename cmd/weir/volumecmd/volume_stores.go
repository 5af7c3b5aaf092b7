// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

func storesCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var none bool
	c := &cobra.Command{
		Use: "stores NAME [AGREEMENT]...", Short: "Say in which lent stores a volume is", Args: cli.Args(cobra.MinimumNArgs(1)),
		Long: "Says in which stores, which other organizations lend by an agreement (`weir exchange`), a volume's\n" +
			"sealed segments are besides its copies. What was said before is replaced. The volume's home puts\n" +
			"them there, and deletes them from a store that is not named any more when every copy and store has\n" +
			"everything. `weir status` tells how far that is. Volumes of a cluster have this in their policy.",
		Example: "  weir volume stores data 3f9c02d7\n  weir volume stores data --none",
		RunE: func(c *cobra.Command, a []string) error {
			if none == (len(a) > 1) {
				return cli.Usage("volume stores: name the agreements, as `weir exchange status` lists them, or give --none")
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			d := &exchange.Desk{Book: cl.Registry, Organization: cl.Self.Organization, By: cl.Self.String(), Now: sh.Now}
			text, err := sayStores(c.Context(), cl, d, a[0], a[1:])
			if err != nil {
				return err
			}
			return sh.Say("%s", text)
		},
	}
	c.Flags().BoolVar(&none, "none", false, "in none")
	return c
}

// sayStores writes it into the volume's record.
func sayStores(ctx context.Context, cl *access.Client, d *exchange.Desk, name string, agreements []string) (string, error) {
	var ids, where []string
	ending := map[string]string{}
	for _, prefix := range agreements {
		a, err := d.Find(ctx, prefix)
		switch {
		case err != nil:
			return "", err
		case a.Request.Guest != d.Organization:
			return "", fmt.Errorf("agreement %s: %q borrows by it, and not %q", a.Request.ID, a.Request.Guest, d.Organization)
		case a.Request.Kind != paper.KindStore:
			return "", fmt.Errorf("agreement %s is about %s, and not a store", a.Request.ID, a.Request.Kind)
		case !a.Writes(d.Now()):
			return "", fmt.Errorf("agreement %s is %s, and takes nothing: %s", a.Request.ID, a.Phase, a.Why)
		case slices.Contains(ids, a.Request.ID):
			return "", cli.Usage("volume stores: agreement %s is named twice: name each once", a.Request.ID)
		}
		if ids = append(ids, a.Request.ID); a.Phase != paper.Active {
			ending[a.Request.ID] = fmt.Sprintf("agreement %s is %s: %s: name one that goes on", a.Request.ID, a.Phase, a.Why)
		}
		where = append(where, fmt.Sprintf("%s at site %s", a.Request.Host, a.Request.Site))
	}
	slices.Sort(ids)
	for try := 1; ; try++ {
		v, rev, err := cl.Find(ctx, name)
		switch {
		case err != nil:
			return "", err
		case v.Deleted:
			return "", fmt.Errorf("volume %s is deleted: take it out of the trash first, with weir volume undelete", v.Name)
		case v.OwnerSite != "":
			return "", fmt.Errorf("volume %s belongs to the cluster of site %s: write replication.stores into its policy there", v.Name,
				v.OwnerSite)
		case slices.Equal(v.Stores, ids):
			return fmt.Sprintf("volume %s is in these stores already\n", v.Name), nil
		}
		for _, id := range ids {
			if why := ending[id]; why != "" && !slices.Contains(v.Stores, id) {
				return "", errors.New(why)
			}
		}
		v.Stores = ids
		v.Spec.Replication.Stores = len(ids)
		v.Generation++
		_, err = cl.Registry.UpdateVolume(ctx, rev, v)
		if try < updateTries && (errors.Is(err, federation.ErrConflict) || errors.Is(err, federation.ErrUnknown)) {
			continue
		}
		if err != nil {
			return "", access.Repeatable(err)
		}
		if len(ids) == 0 {
			return fmt.Sprintf("volume %s is in no lent store any more: what is there is deleted\n", v.Name), nil
		}
		return fmt.Sprintf("volume %s is in stores of %s: `weir status` tells how far that is\n", v.Name, strings.Join(where, ", ")), nil
	}
}
