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

func foundCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	return oneSiteCommand(sh, opener, &cobra.Command{
		Use: "found SITE", Short: "Take back that a site is lost",
		Long:    "Takes back what `weir site lost` declared: others can not take the site's volumes any more.",
		Example: "  weir site found waw",
	}, func(ctx context.Context, cl *access.Client, name string) (string, error) {
		losses, err := cl.Registry.ListLost(ctx)
		if err != nil {
			return "", err
		}
		if !slices.ContainsFunc(losses, func(l federation.Lost) bool { return l.Site == name }) {
			return fmt.Sprintf("site %s was not declared lost: nothing to do", name), nil
		}
		if err := cl.Registry.DeleteLost(ctx, name); err != nil {
			return "", err
		}
		return fmt.Sprintf("site %s is not lost any more", name), nil
	})
}
