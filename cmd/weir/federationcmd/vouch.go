// SPDX-License-Identifier: Apache-2.0

package federationcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/pki"
)

func vouchCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	g := &change{sh: sh, opener: opener}
	return g.command(&cobra.Command{
		Use: "vouch LABEL=VALUE SITE...", Short: "Say which sites have a label", Args: cli.Args(cobra.MinimumNArgs(2)),
		Long: "Volumes choose sites by labels, such as jurisdiction. A site's operator sets them as he likes. Once\n" +
			"the charter says a label of any site, that label counts at every site only as the charter says, and\n" +
			"copies at others move: name all sites that have it at once. LABEL= says that sites do not have it.\n" +
			"LABEL- takes back what was said; when it is said of no site, their own word counts again.",
		Example: "  weir federation vouch jurisdiction=nl ams utr --dir authority\n" +
			"  weir federation vouch jurisdiction= ams --dir authority",
	}, func(ctx context.Context, next *pki.Charter, args []string) (string, error) {
		name, value, says := strings.Cut(args[0], "=")
		sites := slices.Compact(slices.Sorted(slices.Values(args[1:])))
		bare, back := strings.CutSuffix(args[0], "-")
		switch {
		case !says && !back:
			return "", cli.Usage("%q: write LABEL=VALUE, LABEL= for sites without it, or LABEL- to take back what was said", args[0])
		case says:
			if err := pki.CheckLabel(name, value); err != nil {
				return "", err
			}
		default:
			name = bare
		}
		all, err := g.cl.Registry.Sites(ctx)
		if err != nil {
			return "", err
		}
		changed := false
		for _, site := range sites {
			if !says {
				changed = next.Unsay(site, name) || changed
				continue
			}
			if _, err := access.SiteNamed(all, site); err != nil {
				return "", err
			}
			if is, said := next.Labels[site][name]; !said || is != value {
				next.Say(site, name, value)
				changed = true
			}
		}
		switch {
		case !changed:
			return "", nil
		case !next.Says(name):
			return fmt.Sprintf("the charter says label %s of no site any more, and what sites say of themselves counts again", name), nil
		}
		return fmt.Sprintf("label %s counts as the charter says: %s", name, said(next, name)), nil
	}, "the charter says that already: nothing to do")
}

// said lists of which sites the charter says a label.
func said(c *pki.Charter, name string) string {
	var out []string
	for site, labels := range c.Labels {
		if value, ok := labels[name]; ok {
			out = append(out, site+" "+labelled(name, value))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// labelled is how people read a label of a site.
func labelled(name, value string) string {
	if value == "" {
		return "does not have " + name
	}
	return name + "=" + value
}
