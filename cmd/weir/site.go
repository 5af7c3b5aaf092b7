// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/federation"
)

func (sh *shell) siteCommand() *cobra.Command {
	c := &cobra.Command{Use: "site", Short: "List and forget sites, and say which are lost"}
	group(c)
	n := new(connection)
	n.flags(c)
	c.AddCommand(sh.siteList(n), sh.siteLost(n), sh.siteFound(n), sh.siteRemove(n))
	return c
}

// SiteLine is a site in `weir site list`; with -o json, a list of them.
type SiteLine struct {
	Name         string           `json:"name"`
	Organization string           `json:"organization"`
	Region       string           `json:"region,omitempty"`
	Cluster      string           `json:"cluster,omitempty"` // UID of the Kubernetes cluster
	Gateways     []string         `json:"gateways"`
	Alive        []string         `json:"alive"`              // of the gateways
	Copies       int              `json:"copies"`             // of volumes that are not deleted
	Capacity     federation.Bytes `json:"capacity,omitempty"` // 0: not limited
	LostSince    time.Time        `json:"lostSince,omitzero"`
	LostBy       string           `json:"lostBy,omitempty"`
}

func (sh *shell) siteList(n *connection) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "list", Short: "List the federation's sites", Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			cl, err := sh.open(n)
			if err != nil {
				return err
			}
			defer cl.close()
			lines, err := cl.siteLines(c.Context())
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(sh.out, lines)
			}
			return writeSites(sh.out, lines)
		},
	}
	outputFlag(c, &output)
	return c
}

func (c *client) siteLines(ctx context.Context) ([]SiteLine, error) {
	sites, err := c.registry.Sites(ctx)
	if err != nil {
		return nil, err
	}
	volumes, err := c.registry.ListVolumes(ctx)
	if err != nil {
		return nil, err
	}
	losses, err := c.registry.ListLost(ctx)
	if err != nil {
		return nil, err
	}
	lines := make([]SiteLine, 0, len(sites))
	for _, s := range sites {
		l := SiteLine{Name: s.Site.Name, Organization: s.Site.Organization, Region: s.Site.Region, Cluster: s.Site.Cluster, Capacity: s.Site.Capacity,
			Gateways: []string{}, Alive: living(s)}
		for _, g := range s.Site.Gateways {
			l.Gateways = append(l.Gateways, g.Name)
		}
		for _, v := range volumes {
			if !v.Volume.Deleted && slices.Contains(v.Volume.Sites, l.Name) {
				l.Copies++
			}
		}
		for _, lost := range losses {
			if lost.Site == l.Name {
				l.LostSince, l.LostBy = lost.At, lost.By
			}
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// living are the site's gateways that have a heartbeat.
func living(s federation.SiteStatus) []string {
	out := []string{}
	for _, g := range s.Site.Gateways {
		if s.Alive[g.Name] {
			out = append(out, g.Name)
		}
	}
	return out
}

func writeSites(w io.Writer, lines []SiteLine) error {
	if len(lines) == 0 {
		_, err := fmt.Fprintln(w, "There are no sites. A gateway registers its site when it starts.")
		return err
	}
	var b table
	b.row("NAME", "ORGANIZATION", "REGION", "GATEWAYS", "COPIES", "CAPACITY", "CLUSTER", "STATE")
	for _, l := range lines {
		state, capacity := "alive", "-"
		switch {
		case !l.LostSince.IsZero():
			state = "lost since " + stamp(l.LostSince)
		case len(l.Alive) == 0:
			state = "no gateway is alive"
		}
		if l.Capacity > 0 {
			capacity = l.Capacity.String()
		}
		b.row(l.Name, l.Organization, cmp.Or(l.Region, "-"), fmt.Sprintf("%d of %d", len(l.Alive), len(l.Gateways)), fmt.Sprint(l.Copies), capacity, cmp.Or(l.Cluster, "-"), state)
	}
	return b.write(w)
}

// oneSite is a command about one site.
func (sh *shell) oneSite(n *connection, c *cobra.Command, do func(ctx context.Context, cl *client, name string) (string, error)) *cobra.Command {
	c.Args = args(cobra.ExactArgs(1))
	c.RunE = func(c *cobra.Command, a []string) error {
		cl, err := sh.open(n)
		if err != nil {
			return err
		}
		defer cl.close()
		text, err := do(c.Context(), cl, a[0])
		if err != nil {
			return again(err)
		}
		return sh.say("%s\n", text)
	}
	return c
}

func (sh *shell) siteLost(n *connection) *cobra.Command {
	var yes bool
	c := sh.oneSite(n, &cobra.Command{
		Use: "lost SITE", Short: "Declare that a site does not come back soon",
		Long: "Declares a site lost. While it is, others may take the ownership of its volumes by force (`weir volume transfer --force`). No data moves by\n" +
			"that: `weir failover` moves homes. `weir site found` takes it back.",
	}, func(ctx context.Context, cl *client, name string) (string, error) {
		s, err := cl.deadSite(ctx, name, "it is not lost")
		if err != nil {
			return "", err
		}
		losses, err := cl.registry.ListLost(ctx)
		if err != nil {
			return "", err
		}
		for _, l := range losses {
			if l.Site == name {
				return fmt.Sprintf("site %s is declared lost since %s, by %s", name, stamp(l.At), l.By), nil
			}
		}
		if !yes {
			sh.tell("Site %s of %s, which has a copy of %s, is declared lost: others may then own its volumes. Type its name: ", name, s.Site.Organization, cl.copies(ctx, name))
			if err := sh.typed("declare site "+name+" lost", name); err != nil {
				return "", err
			}
		}
		if err := cl.registry.PutLost(ctx, federation.Lost{Site: name, By: cl.self.String(), At: sh.now().UTC()}); err != nil {
			return "", err
		}
		return fmt.Sprintf("site %s is declared lost", name), nil
	})
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// deadSite finds a site none of whose gateways is alive.
func (c *client) deadSite(ctx context.Context, name, otherwise string) (federation.SiteStatus, error) {
	all, err := c.registry.Sites(ctx)
	if err != nil {
		return federation.SiteStatus{}, err
	}
	s, err := siteNamed(all, name)
	if err != nil {
		return s, err
	}
	if up := living(s); len(up) > 0 {
		return s, fmt.Errorf("site %s: %s: the registry hears of %s: stop that first", name, otherwise, strings.Join(up, ", "))
	}
	return s, nil
}

// copies counts the volumes with a copy at a site, for a question to a person.
func (c *client) copies(ctx context.Context, site string) string {
	all, err := c.registry.ListVolumes(ctx)
	if err != nil {
		return "an unknown number of volumes"
	}
	n := 0
	for _, v := range all {
		if !v.Volume.Deleted && slices.Contains(v.Volume.Sites, site) {
			n++
		}
	}
	return fmt.Sprintf("%d volumes", n)
}

func (sh *shell) siteFound(n *connection) *cobra.Command {
	return sh.oneSite(n, &cobra.Command{Use: "found SITE", Short: "Take back that a site is lost"},
		func(ctx context.Context, cl *client, name string) (string, error) {
			losses, err := cl.registry.ListLost(ctx)
			if err != nil {
				return "", err
			}
			if !slices.ContainsFunc(losses, func(l federation.Lost) bool { return l.Site == name }) {
				return fmt.Sprintf("site %s was not declared lost: nothing to do", name), nil
			}
			if err := cl.registry.DeleteLost(ctx, name); err != nil {
				return "", err
			}
			return fmt.Sprintf("site %s is not lost any more", name), nil
		})
}

func (sh *shell) siteRemove(n *connection) *cobra.Command {
	return sh.oneSite(n, &cobra.Command{
		Use: "remove SITE", Short: "Forget a site that is gone for ever, which frees its name",
		Long: "Forgets a site, its gateways, and the claims and admissions of its clients. No volume may have a copy there or be owned there.",
	}, func(ctx context.Context, cl *client, name string) (string, error) {
		if _, err := cl.deadSite(ctx, name, "it is not gone"); err != nil {
			return "", err
		}
		if err := cl.unused(ctx, name); err != nil {
			return "", err
		}
		if err := cl.forget(ctx, name); err != nil {
			return "", err
		}
		return fmt.Sprintf("site %s is forgotten; its name is free", name), nil
	})
}

// unused returns an error while volumes are at a site, or belong to it.
func (c *client) unused(ctx context.Context, site string) error {
	all, err := c.registry.ListVolumes(ctx)
	if err != nil {
		return err
	}
	var here, owned []string
	for _, v := range all {
		if v.Volume.Deleted {
			continue
		}
		there := slices.Contains(v.Volume.Sites, site)
		ctl, _, err := c.registry.GetControl(ctx, v.Volume.UUID)
		if err != nil && !isNotFound(err) {
			return err
		}
		there = there || slices.ContainsFunc(ctl.Members, func(m federation.Member) bool { return m.Site == site })
		if there {
			here = append(here, v.Volume.Name)
		}
		if v.Volume.OwnerSite == site {
			owned = append(owned, v.Volume.Name)
		}
	}
	switch {
	case len(here) > 0:
		return fmt.Errorf("site %s: volumes have copies there: %s: give them other sites, or delete them, first", site, some(here))
	case len(owned) > 0:
		return fmt.Errorf("site %s: its cluster owns volumes: %s: move them with `weir volume transfer` first", site, some(owned))
	}
	return nil
}

// some names a few of many.
func some(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(names[:few], ", "), len(names)-few)
}

// forget removes all that is about a site. The site itself goes last but for the loss, so that the command can be repeated.
func (c *client) forget(ctx context.Context, site string) error {
	claims, err := c.registry.ListClaims(ctx, "")
	if err != nil {
		return err
	}
	for _, l := range claims {
		if l.Site == site {
			if err := c.registry.DeleteClaim(ctx, l.Volume, site, l.Namespace, l.Name); err != nil {
				return err
			}
		}
	}
	attachments, err := c.registry.ListAttachments(ctx, site)
	if err != nil {
		return err
	}
	for _, a := range attachments {
		if err := c.registry.DeleteAttachment(ctx, site, a.Volume, a.Node); err != nil {
			return err
		}
	}
	admissions, err := c.registry.ListAdmissions(ctx, site)
	if err != nil {
		return err
	}
	for _, a := range admissions {
		if err := c.registry.DeleteAdmission(ctx, a.Volume, site, a.Client); err != nil {
			return err
		}
	}
	if err := c.registry.DeleteLost(ctx, site); err != nil {
		return err
	}
	return c.registry.RemoveSite(ctx, site)
}
