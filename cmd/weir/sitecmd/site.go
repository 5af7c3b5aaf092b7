// SPDX-License-Identifier: Apache-2.0

// Package sitecmd has `weir site`: list sites, say which are lost, forget those that are gone, and
// let go of a cluster that leaves.
package sitecmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
)

// Command is `weir site`.
func Command(sh *cli.Shell, connect access.Connector) *cobra.Command {
	o := access.NewOpener(sh.Getenv, connect)
	c := cli.Group(&cobra.Command{Use: "site", Short: "List and forget sites, and say which are lost"},
		listCommand(sh, o), lostCommand(sh, o), foundCommand(sh, o), removeCommand(sh, o), releaseCommand(sh))
	o.Flags(c)
	return c
}

// oneSiteCommand makes c a command about one site, which prints what do returns.
func oneSiteCommand(sh *cli.Shell, opener *access.Opener, c *cobra.Command,
	do func(ctx context.Context, cl *access.Client, name string) (string, error)) *cobra.Command {
	c.Args = cli.Args(cobra.ExactArgs(1))
	c.RunE = func(c *cobra.Command, a []string) error {
		cl, err := opener.Open()
		if err != nil {
			return err
		}
		defer cl.Close()
		text, err := do(c.Context(), cl, a[0])
		if err != nil {
			return access.Repeatable(err)
		}
		return sh.Say("%s\n", text)
	}
	return c
}

// deadSite finds a site. It refuses a site that has a gateway with a heartbeat in the registry.
func deadSite(ctx context.Context, cl *access.Client, name, otherwise string) (federation.SiteStatus, error) {
	all, err := cl.Registry.Sites(ctx)
	if err != nil {
		return federation.SiteStatus{}, err
	}
	s, err := access.SiteNamed(all, name)
	if err != nil {
		return s, err
	}
	if up := living(s); len(up) > 0 {
		return s, fmt.Errorf("site %s: %s: the registry hears of %s: stop that first", name, otherwise, strings.Join(up, ", "))
	}
	return s, nil
}

// living are the gateways of a site that have a heartbeat.
func living(s federation.SiteStatus) []string {
	out := []string{}
	for _, g := range s.Site.Gateways {
		if s.Alive[g.Name] {
			out = append(out, g.Name)
		}
	}
	return out
}
