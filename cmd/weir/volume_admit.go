// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/federation"
)

// admission is what `weir volume admit` and `expel` ask for.
type admission struct {
	site, client string
	readOnly     bool
}

// address reads the client's address into the form that the registry has.
func (o *admission) address() (string, error) {
	if o.client == "" {
		return "", usage("no --client: give the client's IP address")
	}
	ip, err := netip.ParseAddr(o.client)
	if err != nil {
		if _, perr := netip.ParsePrefix(o.client); perr == nil {
			return "", usage("--client %q: it is a range: admit each address; ranges are not available", o.client)
		}
		return "", usage("--client %q: write one IP address, such as 10.0.1.20", o.client)
	}
	return ip.Unmap().WithZone("").String(), nil
}

func (sh *shell) volumeAdmit(n *connection) *cobra.Command {
	var o admission
	c := sh.admission(n, &o, (*client).admit)
	c.Use, c.Short = "admit NAME --site SITE --client ADDRESS", "Let a client of a site use a volume"
	c.Long = "Lets a client, known by its address, use a volume at the gateways of its site; a second time, changes what it may do. The site needs no copy of the volume."
	c.Flags().BoolVar(&o.readOnly, "read-only", false, "the client may not write")
	return c
}

func (sh *shell) volumeExpel(n *connection) *cobra.Command {
	c := sh.admission(n, new(admission), (*client).expel)
	c.Use, c.Short = "expel NAME --site SITE --client ADDRESS", "Take a client's leave to use a volume back"
	return c
}

// admission is a command that does something with a volume and a client of it.
func (sh *shell) admission(n *connection, o *admission, do func(cl *client, ctx context.Context, name string, o admission, ip string) (string, error)) *cobra.Command {
	c := &cobra.Command{Args: args(cobra.ExactArgs(1)), RunE: func(c *cobra.Command, a []string) error {
		ip, err := o.address()
		if err != nil {
			return err
		}
		cl, err := sh.open(n)
		if err != nil {
			return err
		}
		defer cl.close()
		o.site = cmp.Or(o.site, n.site)
		text, err := do(cl, c.Context(), a[0], *o, ip)
		if err != nil {
			return err
		}
		return sh.say("%s", text)
	}}
	c.Flags().StringVar(&o.site, "site", "", "`NAME` of the client's site, by default that of --config")
	c.Flags().StringVar(&o.client, "client", "", "IP `ADDRESS` of the client, as the site's gateway sees it")
	return c
}

func (o admission) checkSite() error {
	if o.site == "" {
		return usage("no --site: give the site of the client")
	}
	return nil
}

// admit writes the admission and tells how the client mounts.
func (c *client) admit(ctx context.Context, name string, o admission, ip string) (string, error) {
	if err := o.checkSite(); err != nil {
		return "", err
	}
	v, err := c.living(ctx, name)
	if err != nil {
		return "", err
	}
	all, err := c.registry.Sites(ctx)
	if err != nil {
		return "", err
	}
	s, err := siteNamed(all, o.site)
	if err != nil {
		return "", err
	}
	former, err := c.registry.ListAdmissions(ctx, o.site)
	if err != nil {
		return "", err
	}
	for _, f := range former {
		if f.Volume == v.UUID && f.Client == ip && f.Node != "" { // it would stay admitted after it was detached
			return "", fmt.Errorf("--client %s: Kubernetes has admitted it to volume %s, as node %s, until it is detached: nothing was changed", ip, v.Name, f.Node)
		}
	}
	a := federation.Admission{Volume: v.UUID, Site: o.site, Client: ip, Access: federation.ReadWrite}
	may := "read and write"
	if o.readOnly {
		a.Access, may = federation.ReadOnly, "read"
	}
	if err := c.registry.PutAdmission(ctx, a); err != nil {
		return "", again(err)
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

// mountCommand is what to type at a client; empty when the gateway's address is not known.
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

// expel removes the admission. A deleted volume's clients can be expelled too.
func (c *client) expel(ctx context.Context, name string, o admission, ip string) (string, error) {
	if err := o.checkSite(); err != nil {
		return "", err
	}
	v, _, err := c.find(ctx, name)
	if err != nil {
		return "", err
	}
	all, err := c.registry.ListAdmissions(ctx, o.site)
	if err != nil {
		return "", err
	}
	there := false
	for _, a := range all {
		there = there || a.Volume == v.UUID && a.Client == ip
	}
	if !there {
		return fmt.Sprintf("client %s was not admitted to volume %s at site %s: nothing to do\n", ip, v.Name, o.site), nil
	}
	if err := c.registry.DeleteAdmission(ctx, v.UUID, o.site, ip); err != nil {
		return "", again(err)
	}
	return fmt.Sprintf("client %s may not use volume %s at site %s any more\n", ip, v.Name, o.site), nil
}

// again adds to an unknown outcome that the command may be repeated.
func again(err error) error {
	if errors.Is(err, federation.ErrUnknown) {
		return fmt.Errorf("%w; the same command may be repeated", err)
	}
	return err
}
