// SPDX-License-Identifier: Apache-2.0

package volumecmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/users"
)

func transferCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var to string
	var force bool
	c := &cobra.Command{
		Use: "transfer NAME --to SITE", Short: "Make another site's cluster a volume's owner", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Makes the Kubernetes cluster of a site the owner of a volume: from then on only its operator changes\n" +
			"the volume's desired state. The home and the data stay where they are. A person of the organization\n" +
			"that owns it does that, and nobody else. With --force it is done only if the site that owns it was\n" +
			"declared lost (`weir site lost`).",
		Example: "  weir volume transfer data --to fra",
		RunE: func(c *cobra.Command, a []string) error {
			if to == "" {
				return cli.Usage("no --to: give the site whose cluster is to own the volume")
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			text, err := transfer(c.Context(), cl, a[0], to, force)
			if err != nil {
				return err
			}
			return sh.Say("%s\n", text)
		},
	}
	c.Flags().StringVar(&to, "to", "", "`SITE` whose cluster is to own the volume")
	c.Flags().BoolVar(&force, "force", false, "only from a site that was declared lost")
	return c
}

// transfer makes a site's cluster the owner. It tries again while others change the volume.
func transfer(ctx context.Context, cl *access.Client, name, to string, force bool) (string, error) {
	all, err := cl.Registry.Sites(ctx)
	if err != nil {
		return "", err
	}
	s, err := access.SiteNamed(all, to)
	if err != nil {
		return "", err
	}
	if s.Site.Cluster == "" {
		return "", fmt.Errorf("site %s: no Kubernetes cluster is that site: "+
			"install the operator there, which registers it, or name another site", to)
	}
	for try := 1; ; try++ {
		v, rev, err := cl.Find(ctx, name)
		if err != nil {
			return "", err
		}
		if v.OwnerSite == to && v.OwnerCluster == s.Site.Cluster {
			return fmt.Sprintf("volume %s: site %s owns it already", name, to), nil
		}
		if err := mayTransfer(ctx, cl, v, force); err != nil {
			return "", err
		}
		child, err := making(ctx, cl, v)
		if err == nil && child != "" && !force {
			err = fmt.Errorf("volume %s: volume %s is being made of it, which reads no volume of another owner: wait until that has all, "+
				"or delete that first", v.Name, child)
		}
		if err != nil {
			return "", err
		}
		if ids := slices.Concat(v.Agreed, v.Stores); s.Site.Organization != v.Owner && len(ids) > 0 {
			return "", fmt.Errorf("volume %s: it is at others by agreements of %s, which another organization does not have (%s): have "+
				"its copies elsewhere first", name, v.Owner, strings.Join(ids, ", "))
		}
		from := cli.With(v.Owner, v.OwnerSite)
		v.Owner, v.OwnerSite, v.OwnerCluster = s.Site.Organization, to, s.Site.Cluster
		v.Clients = maps.Clone(v.Clients)
		maps.DeleteFunc(v.Clients, func(site string, _ users.Policy) bool { // its own users are who they are
			s, err := access.SiteNamed(all, site)
			return err == nil && s.Site.Organization == v.Owner
		})
		_, err = cl.Registry.UpdateVolume(ctx, rev, v)
		switch {
		case err == nil:
			return fmt.Sprintf("volume %s: owner is %s, was %s", name, cli.With(v.Owner, v.OwnerSite), from), nil
		case try == updateTries || !errors.Is(err, federation.ErrConflict) && !errors.Is(err, federation.ErrUnknown):
			return "", access.Repeatable(err)
		}
	}
}

// asking are the sites whose clients a volume asks for more than requests.
func asking(v federation.Volume) (sites []string) {
	for s, c := range v.Clients {
		if c.Certificates == users.CertificatesRequired || c.Ports == users.PortsPrivileged {
			sites = append(sites, s)
		}
	}
	slices.Sort(sites)
	return sites
}

// mayTransfer returns why the caller may not give the volume to a site.
func mayTransfer(ctx context.Context, cl *access.Client, v federation.Volume, force bool) error {
	me := cl.Self.Organization
	switch {
	case v.Deleted:
		return fmt.Errorf("volume %s: it was deleted at %s", v.Name, cli.Stamp(v.DeletedAt))
	case v.Closing:
		return fmt.Errorf("volume %s: its owner is deleting it: take that back there first", v.Name)
	case v.Owner != me:
		return fmt.Errorf("volume %s: it belongs to %s, and your certificate is of %s: ask a person there", v.Name, v.Owner, me)
	case v.Source.Unfinished():
		return fmt.Errorf("volume %s: it does not have all that it is made of: `weir volume create --from` waits for that", v.Name)
	case v.Spec.Clients.Certificates == users.CertificatesRequired, v.Spec.Clients.Ports == users.PortsPrivileged:
		return fmt.Errorf("volume %s: it asks its clients for certificates or privileged ports, which volumes of clusters cannot yet: "+
			"take that back first, with weir volume clients", v.Name)
	case len(asking(v)) > 0:
		return fmt.Errorf("volume %s: it asks clients at sites %v for certificates or privileged ports, which volumes of clusters cannot "+
			"yet: take that back first, with weir volume clients --site", v.Name, asking(v))
	case !force:
		return nil
	case v.OwnerSite == "":
		return fmt.Errorf("volume %s: no site owns it, so none can be lost: leave --force out, with a certificate of %s", v.Name, v.Owner)
	}
	losses, err := cl.Registry.ListLost(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(losses, func(l federation.Lost) bool { return l.Site == v.OwnerSite }) {
		return fmt.Errorf("volume %s: its owner, site %s, was not declared lost: leave --force out if you are of %s; "+
			"if the site does not come back, declare that with `weir site lost %[2]s`", v.Name, v.OwnerSite, v.Owner)
	}
	return nil
}
