// SPDX-License-Identifier: Apache-2.0

package pkicmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/pki"
)

func initCommand(sh *cli.Shell) *cobra.Command {
	var dir, fed string
	var valid time.Duration
	c := &cobra.Command{
		Use: "init --dir D --federation F", Short: "Make a federation's authority: D/ca.crt and D/ca.key", Args: cli.Args(cobra.NoArgs),
		Long: "Makes the authority of a federation, which issues all its certificates. Existing files are never\n" +
			"replaced.",
		Example: "  weir pki init --dir authority --federation demo",
		RunE: func(*cobra.Command, []string) error {
			if fed == "" {
				return cli.Usage("pki init: no --federation: name the federation")
			}
			a, err := pki.NewAuthority(fed, sh.Now(), valid)
			if err != nil {
				return err
			}
			pair, err := a.Pair()
			if err != nil {
				return err
			}
			cert, key, err := pair.Write(dir, authorityName)
			if err != nil {
				return err
			}
			return sh.Say("%s\n%s\n", cert, key)
		},
	}
	c.Flags().StringVar(&dir, "dir", ".", "`FOLDER` to write to")
	c.Flags().StringVar(&fed, "federation", "", "federation's `NAME`")
	c.Flags().DurationVar(&valid, "valid-for", AuthorityTime, "`TIME` until it expires")
	return c
}
