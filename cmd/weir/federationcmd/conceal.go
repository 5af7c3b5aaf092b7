// SPDX-License-Identifier: Apache-2.0

package federationcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/pki"
)

func concealCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	g := &change{sh: sh, opener: opener}
	var end bool
	c := &cobra.Command{
		Use: "conceal", Short: "Show an organization only the volumes that concern it", Args: cli.Args(cobra.NoArgs),
		Long: "From now on the registry shows an organization those volumes that it owns, those that its sites\n" +
			"have or had copies of, and those that its sites are granted or its clients admitted to. Of others\n" +
			"it shows where they are and how large, so that room is counted. Administrators see everything,\n" +
			"and so do gateways while one says that the registry went back. Upgrade all sites first: earlier\n" +
			"releases take what they are not shown for forged. A federation that began with this release needs\n" +
			"no such step.",
		Example: "  weir federation conceal --dir authority",
	}
	c.Flags().BoolVar(&end, "end", false, "show all volumes to all again")
	return g.command(c, func(_ context.Context, next *pki.Charter, _ []string) (string, error) {
		if next.Conceals != end {
			return "", nil
		}
		if next.Conceals = !end; end {
			return "all organizations are shown all volumes", nil
		}
		return "an organization is shown only the volumes that concern it", nil
	}, "it is so already: nothing to do")
}
