// SPDX-License-Identifier: Apache-2.0

package federationcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/pki"
)

func vouchCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	g := &change{sh: sh, opener: opener}
	return g.command(&cobra.Command{
		Use: "vouch SITE LABEL=VALUE...", Short: "Say what a site's labels are", Args: cli.Args(cobra.MinimumNArgs(2)),
		Long: "Volumes choose sites by labels, such as jurisdiction. A site's operator sets them as he likes. Once\n" +
			"the charter says a label of any site, that label counts at every site only as the charter says:\n" +
			"say it of all sites that are to have it. LABEL- takes back what was said.",
		Example: "  weir federation vouch ams jurisdiction=nl --dir authority\n  weir federation vouch ams jurisdiction- --dir authority",
	}, func(ctx context.Context, next *pki.Charter, args []string) (string, error) {
		site, changed := args[0], false
		all, err := g.cl.Registry.Sites(ctx)
		if err != nil {
			return "", err
		}
		for _, text := range args[1:] {
			name, value, says := strings.Cut(text, "=")
			if bare, back := strings.CutSuffix(text, "-"); back && !says {
				changed = next.Unsay(site, bare) || changed
				continue
			}
			if !says {
				return "", cli.Usage("%q: write LABEL=VALUE, or LABEL- to take back what was said", text)
			}
			if err := pki.CheckLabel(name, value); err != nil {
				return "", err
			}
			if _, err := access.SiteNamed(all, site); err != nil {
				return "", err
			}
			if next.Labels[site][name] != value {
				next.Say(site, name, value)
				changed = true
			}
		}
		if !changed {
			return "", nil
		}
		return fmt.Sprintf("of site %s count the labels that the charter says: %s", site, labels(next.Labels[site])), nil
	}, "the charter says that already: nothing to do")
}
