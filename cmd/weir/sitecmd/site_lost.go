// SPDX-License-Identifier: Apache-2.0

package sitecmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
)

func lostCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var yes bool
	c := oneSiteCommand(sh, opener, &cobra.Command{
		Use: "lost SITE", Short: "Declare that a site does not come back soon",
		Long: "Declares a site lost, which a person of its organization may do, or an administrator. No volume gets\n" +
			"a copy there then, and `weir volume transfer --force` gives its volumes to another site. No data\n" +
			"moves by that: `weir failover` moves homes. `weir site found` takes the declaration back.",
		Example: "  weir site lost waw",
	}, func(ctx context.Context, cl *access.Client, name string) (string, error) {
		s, err := deadSite(ctx, cl, name, "it is not lost")
		if err != nil {
			return "", err
		}
		losses, err := cl.Registry.ListLost(ctx)
		if err != nil {
			return "", err
		}
		for _, l := range losses {
			if l.Site == name {
				return fmt.Sprintf("site %s is declared lost since %s, by %s", name, cli.Stamp(l.At), l.By), nil
			}
		}
		if !yes {
			sh.Tell("Site %s of %s, which has a copy of %s, is declared lost: others may then own its volumes. Type its name: ",
				name, s.Site.Organization, countVolumes(ctx, cl, name))
			if err := sh.Confirm("declare site "+name+" lost", name); err != nil {
				return "", err
			}
		}
		if err := cl.Registry.PutLost(ctx, federation.Lost{Site: name, By: cl.Self.String(), At: sh.Now().UTC()}); err != nil {
			return "", err
		}
		return fmt.Sprintf("site %s is declared lost", name), nil
	})
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// countVolumes says how many volumes have a copy at a site, for a question to a person.
func countVolumes(ctx context.Context, cl *access.Client, site string) string {
	all, err := cl.Registry.ListVolumes(ctx)
	if err != nil {
		return "an unknown number of volumes"
	}
	n := 0
	for _, v := range all {
		if !v.Volume.Deleted && slices.Contains(v.Volume.Sites, site) {
			n++
		}
	}
	return fmt.Sprintf("%d volumes", n)
}
