// SPDX-License-Identifier: Apache-2.0

// Package admitcmd has `weir volume admit` and `weir volume expel`: which clients may use a volume.
package admitcmd

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
)

// Command is `weir volume admit`.
func Command(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var o admission
	c := admissionCommand(sh, opener, &o, admit)
	c.Use, c.Short = "admit NAME --site SITE --client ADDRESS", "Let a client of a site use a volume"
	c.Long = "Lets a client, known by its address, use a volume at the gateways of its site. The site needs no\n" +
		"copy of the volume. A person of the organization that owns the volume admits, at any site. Typed\n" +
		"again, the command changes what the client may do."
	c.Example = "  weir volume admit data --site ams --client 10.0.1.20\n  weir volume admit data --site ams --client 10.0.1.20 --read-only"
	c.Flags().BoolVar(&o.readOnly, "read-only", false, "the client may not write")
	return c
}

// admission is what `weir volume admit` and `expel` ask for.
type admission struct {
	site, client string
	readOnly     bool
}

// address is the client's address as the registry writes it.
func (o *admission) address() (string, error) {
	if o.client == "" {
		return "", cli.Usage("no --client: give the client's IP address")
	}
	ip, err := netip.ParseAddr(o.client)
	if err != nil {
		if _, perr := netip.ParsePrefix(o.client); perr == nil {
			return "", cli.Usage("--client %q: it is a range: admit each address; ranges are not available", o.client)
		}
		return "", cli.Usage("--client %q: write one IP address, such as 10.0.1.20", o.client)
	}
	return ip.Unmap().WithZone("").String(), nil
}

// admissionCommand makes a command that does something with a volume and one client of it.
func admissionCommand(sh *cli.Shell, opener *access.Opener, o *admission,
	do func(ctx context.Context, cl *access.Client, name string, o admission, ip string) (string, error)) *cobra.Command {
	c := &cobra.Command{Args: cli.Args(cobra.ExactArgs(1)), RunE: func(c *cobra.Command, a []string) error {
		ip, err := o.address()
		if err != nil {
			return err
		}
		cl, err := opener.Open()
		if err != nil {
			return err
		}
		defer cl.Close()
		o.site = cmp.Or(o.site, opener.Site)
		text, err := do(c.Context(), cl, a[0], *o, ip)
		if err != nil {
			return err
		}
		return sh.Say("%s", text)
	}}
	c.Flags().StringVar(&o.site, "site", "", "`NAME` of the client's site, by default that of --config")
	c.Flags().StringVar(&o.client, "client", "", "IP `ADDRESS` of the client, as the site's gateway sees it")
	return c
}

func (o admission) checkSite() error {
	if o.site == "" {
		return cli.Usage("no --site: give the site of the client")
	}
	return nil
}

// admit writes the admission and returns what the client types to mount the volume.
func admit(ctx context.Context, cl *access.Client, name string, o admission, ip string) (string, error) {
	if err := o.checkSite(); err != nil {
		return "", err
	}
	v, err := cl.Living(ctx, name)
	if err != nil {
		return "", err
	}
	all, err := cl.Registry.Sites(ctx)
	if err != nil {
		return "", err
	}
	s, err := access.SiteNamed(all, o.site)
	if err != nil {
		return "", err
	}
	if v.IsBlind(o.site) {
		return "", fmt.Errorf("--site %s: its copy of volume %s is blind: no client there can use it; nothing was changed", o.site, v.Name)
	}
	former, err := cl.Registry.ListAdmissions(ctx, o.site)
	if err != nil {
		return "", err
	}
	for _, f := range former {
		if f.Volume == v.UUID && f.Client == ip && f.Node != "" { // it would stay admitted after Kubernetes detaches it
			return "", fmt.Errorf("--client %s: Kubernetes has admitted it to volume %s, as node %s, "+
				"until it is detached: nothing was changed",
				ip, v.Name, f.Node)
		}
	}
	a := federation.Admission{Volume: v.UUID, Site: o.site, Client: ip, Access: federation.ReadWrite}
	may := "read and write"
	if o.readOnly {
		a.Access, may = federation.ReadOnly, "read"
	}
	if err := cl.Registry.PutAdmission(ctx, a); err != nil {
		return "", access.Repeatable(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "client %s may %s volume %s at site %s\n", ip, may, v.Name, o.site)
	for _, g := range s.Site.Gateways {
		if cmd := mountCommand(g.NFSAddr, v.Name); cmd != "" {
			fmt.Fprintf(&b, "  %s\n", cmd)
		}
	}
	return b.String(), nil
}

const nfsPort = "2049"

// mountCommand is what a client types. It is empty when the gateway's address is not known.
func mountCommand(addr, volume string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	options := "vers=4.2"
	if port != nfsPort {
		options += ",port=" + port
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("mount -t nfs4 -o %s %s:/%s MOUNTPOINT", options, host, volume)
}
