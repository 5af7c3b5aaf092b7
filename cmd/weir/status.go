// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/federation"
)

func (sh *shell) statusCommand() *cobra.Command {
	var output string
	n := new(connection)
	c := &cobra.Command{
		Use: "status [VOLUME]", Short: "Show volumes, where they live, and how far their copies trail", Args: args(cobra.MaximumNArgs(1)),
		Long: "Asks every gateway, and shows what the homes last wrote to the registry where a gateway does not answer.",
		RunE: func(c *cobra.Command, a []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			cl, err := sh.open(n)
			if err != nil {
				return err
			}
			defer cl.close()
			name := ""
			if len(a) > 0 {
				name = a[0]
			}
			v, err := cl.look(c.Context(), name, sh.now())
			if err != nil {
				return err
			}
			r := merge(v)
			if output == "json" {
				return writeJSON(sh.out, r)
			}
			return writeReport(sh.out, r, name == "")
		},
	}
	n.flags(c)
	outputFlag(c, &output)
	return c
}

// view is all that is known about volumes at one moment; merge makes a Report of it.
type view struct {
	federation string
	now        time.Time
	volumes    []federation.Volume           // that are not deleted
	sites      []federation.SiteStatus       // all
	controls   map[string]federation.Control // by UUID; none: no home yet
	observed   map[string][]federation.Observed
	answers    map[string]answer // by gateway
}

// look gathers what the registry and the gateways say of one volume, or of all for "".
func (c *client) look(ctx context.Context, name string, now time.Time) (view, error) {
	v := view{federation: c.self.Federation, now: now, controls: map[string]federation.Control{}, observed: map[string][]federation.Observed{}}
	id := ""
	if name != "" {
		one, err := c.living(ctx, name)
		if err != nil {
			return v, err
		}
		id, v.volumes = one.UUID, []federation.Volume{one}
	} else {
		all, err := c.registry.ListVolumes(ctx)
		if err != nil {
			return v, err
		}
		for _, a := range all {
			if !a.Volume.Deleted {
				v.volumes = append(v.volumes, a.Volume)
			}
		}
	}
	var err error
	if v.sites, err = c.registry.Sites(ctx); err != nil {
		return v, err
	}
	for _, vol := range v.volumes {
		ctl, _, err := c.registry.GetControl(ctx, vol.UUID)
		if err == nil {
			v.controls[vol.UUID] = ctl
		} else if !isNotFound(err) {
			return v, err
		}
		if v.observed[vol.UUID], err = c.registry.ListObserved(ctx, vol.UUID); err != nil {
			return v, err
		}
	}
	v.answers = c.ask(ctx, v.sites, id)
	return v, nil
}

// gateway finds a gateway, its site, and whether it is alive.
func (v view) gateway(name string) (g federation.Gateway, s federation.Site, alive, ok bool) {
	for _, s := range v.sites {
		for _, g := range s.Site.Gateways {
			if g.Name == name {
				return g, s.Site, s.Alive[name], true
			}
		}
	}
	return federation.Gateway{}, federation.Site{}, false, false
}

// alive tells whether a member is alive with the log that made it one (rule 3).
func (v view) alive(m federation.Member) bool {
	g, _, alive, ok := v.gateway(m.Gateway)
	return ok && alive && g.Incarnation == m.Incarnation
}
