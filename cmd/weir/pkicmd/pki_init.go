// SPDX-License-Identifier: Apache-2.0

package pkicmd

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/pki"
)

func initCommand(sh *cli.Shell) *cobra.Command {
	var dir, fed, organization, founding string
	var valid time.Duration
	c := &cobra.Command{
		Use:   "init --dir D --federation F [--organization O --founding FILE]",
		Short: "Make a federation's authority: D/ca.crt and D/ca.key",
		Args:  cli.Args(cobra.NoArgs),
		Long: "Makes the founding authority of a federation, which issues all its certificates until it lets\n" +
			"organizations have their own; or, with --organization, such an authority, which issues those of one\n" +
			"organization. An administrator lets it vouch with `weir federation admit`. Then D/ca.crt is what\n" +
			"the organization trusts: its own authority, and the founding one. Existing files are never replaced.",
		Example: "  weir pki init --dir authority --federation demo",
		RunE: func(*cobra.Command, []string) error {
			if fed == "" {
				return cli.Usage("pki init: no --federation: name the federation")
			}
			if (organization == "") != (founding == "") {
				return cli.Usage("pki init: give --organization and --founding together: an organization's authority, and that of the " +
					"federation which it joins")
			}
			a, err := pki.NewAuthority(fed, sh.Now(), valid)
			var also []byte
			if organization != "" {
				if also, err = foundingFile(founding, fed); err != nil {
					return err
				}
				a, err = pki.NewOrganizationAuthority(fed, organization, sh.Now(), valid)
			}
			if err != nil {
				return err
			}
			pair, err := a.Pair()
			if err != nil {
				return err
			}
			pair.Cert = append(pair.Cert, also...) // the own one first: ReadAuthority takes that
			cert, key, err := pair.Write(dir, authorityName)
			if err != nil {
				return err
			}
			return sh.Say("%s\n%s\n", cert, key)
		},
	}
	c.Flags().StringVar(&dir, "dir", ".", "`FOLDER` to write to")
	c.Flags().StringVar(&fed, "federation", "", "federation's `NAME`")
	c.Flags().StringVar(&organization, "organization", "", "`NAME` of the institution whose authority it is; without it, that of the "+
		"whole federation")
	c.Flags().StringVar(&founding, "founding", "", "`FILE` with the certificate of the federation's founding authority")
	c.Flags().DurationVar(&valid, "valid-for", AuthorityTime, "`TIME` until it expires")
	return c
}

// foundingFile reads the certificates of a federation's founding authority.
func foundingFile(path, federation string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = pki.CheckFounding(text, federation)
	}
	if err != nil {
		return nil, fmt.Errorf("--founding %q: %w: give the file ca.crt of the federation's founding authority", path, err)
	}
	return text, nil
}
