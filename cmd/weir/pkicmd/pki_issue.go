// SPDX-License-Identifier: Apache-2.0

package pkicmd

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/pki"
)

func issueCommand(sh *cli.Shell) *cobra.Command {
	var dir string
	var id pki.Identity
	var hosts []string
	var valid time.Duration
	c := &cobra.Command{
		Use:   "issue --dir D --organization O --site S --gateway G [--part P] --host H...",
		Short: "Issue a certificate: D/G.crt and D/G.key", Args: cli.Args(cobra.NoArgs),
		Long: "Issues a certificate with the authority in folder D: for a gateway, a member of the registry, a\n" +
			"person or a client; the last two need no --host. What its owner may do in the federation follows\n" +
			"from --part: docs/trust.md has the list.",
		Example: "  weir pki issue --dir authority --organization SURF --site ams --gateway ams-1 --host 10.0.1.10\n" +
			"  weir pki issue --dir authority --organization SURF --site ams --gateway alice --part person",
		RunE: func(*cobra.Command, []string) error {
			for _, f := range [][2]string{{"--organization", id.Organization}, {"--site", id.Site}, {"--gateway", id.Gateway}} {
				if f[1] == "" {
					return cli.Usage("pki issue: no %s: give organization, site and gateway", f[0])
				}
			}
			if !slices.Contains(pki.Parts(), id.Part) {
				return cli.Usage("pki issue: --part %q: write one of %q", id.Part, pki.Parts())
			}
			if id.Gateway == authorityName {
				return cli.Usage("pki issue: --gateway %s: the authority's files have that name: choose another", id.Gateway)
			}
			a, err := pki.ReadAuthority(dir, authorityName)
			if err != nil {
				return fmt.Errorf("%w: make one with `weir pki init --dir %s --federation NAME`", err, dir)
			}
			id.Federation = a.Federation()
			pair, err := a.Issue(id, hosts, sh.Now(), valid)
			if err != nil {
				return err
			}
			cert, key, err := pair.Write(dir, id.Gateway)
			if err != nil {
				return err
			}
			return sh.Say("%s\n%s\n", cert, key)
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "dir", ".", "`FOLDER` with the authority's files, to write to")
	f.StringVar(&id.Organization, "organization", "", "`NAME` of the institution")
	f.StringVar(&id.Site, "site", "", "`NAME` of the site")
	f.StringVar(&id.Gateway, "gateway", "", "`NAME` of the gateway, registry member, person or client")
	f.StringVar((*string)(&id.Part), "part", string(pki.PartGateway), "`PART` that it is: gateway, operator, csi-controller, csi-node, "+
		"registry, person, administrator or client")
	f.StringSliceVar(&hosts, "host", nil, "IP `ADDRESS` or DNS name at which it is reached; may be repeated")
	f.DurationVar(&valid, "valid-for", CertificateTime, "`TIME` until it expires, at most the authority's")
	return c
}
