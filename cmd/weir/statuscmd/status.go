// SPDX-License-Identifier: Apache-2.0

// Package statuscmd has `weir status` and `weir failover`. Both begin with the same view of the
// federation: status makes a Report of it, and failover plans with it.
package statuscmd

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
)

// Command is `weir status`.
func Command(sh *cli.Shell, connect access.Connector) *cobra.Command {
	var output string
	opener := access.NewOpener(sh.Getenv, connect)
	c := &cobra.Command{
		Use: "status [VOLUME]", Short: "Show volumes, where they live, and how far their copies trail",
		Args: cli.Args(cobra.MaximumNArgs(1)),
		Long: "Asks every gateway for the state of its copies. For a home that does not answer, the command shows\n" +
			"what the home last wrote to the registry.",
		Example: "  weir status\n  weir status data -o json",
		RunE: func(c *cobra.Command, a []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			name := ""
			if len(a) > 0 {
				name = a[0]
			}
			v, err := look(c.Context(), cl, name, sh.Now())
			if err != nil {
				return err
			}
			r := merge(v)
			if output == "json" {
				return cli.WriteJSON(sh.Out, r)
			}
			return writeReport(sh.Out, r, name == "")
		},
	}
	opener.Flags(c)
	cli.OutputFlag(c, &output)
	return c
}

// Look returns the report of `weir status` about all volumes.
func Look(ctx context.Context, cl *access.Client, now time.Time) (Report, error) {
	v, err := look(ctx, cl, "", now)
	if err != nil {
		return Report{}, err
	}
	return merge(v), nil
}

// view is everything that is known about volumes at one moment.
type view struct {
	federation string
	now        time.Time
	volumes    []federation.Volume           // that are not deleted
	sites      []federation.SiteStatus       // all
	controls   map[string]federation.Control // by UUID; a volume without a home has none
	observed   map[string][]federation.Observed
	answers    map[string]answer // by gateway
	notices    []federation.Notice
}

// look asks the registry and the gateways about one volume, or about all when name is "".
func look(ctx context.Context, cl *access.Client, name string, now time.Time) (view, error) {
	v := view{federation: cl.Self.Federation, now: now,
		controls: map[string]federation.Control{}, observed: map[string][]federation.Observed{}}
	id := ""
	if name != "" {
		one, err := cl.Living(ctx, name)
		if err != nil {
			return v, err
		}
		id, v.volumes = one.UUID, []federation.Volume{one}
	} else {
		all, err := cl.Registry.ListVolumes(ctx)
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
	if v.notices, err = cl.Registry.Notices(ctx); err != nil {
		return v, err
	}
	if v.sites, err = cl.Registry.Sites(ctx); err != nil {
		return v, err
	}
	for _, vol := range v.volumes {
		ctl, _, err := cl.Registry.GetControl(ctx, vol.UUID)
		if err == nil {
			v.controls[vol.UUID] = ctl
		} else if !errors.Is(err, federation.ErrNotFound) {
			return v, err
		}
		if v.observed[vol.UUID], err = cl.Registry.ListObserved(ctx, vol.UUID); err != nil {
			return v, err
		}
	}
	v.answers = ask(ctx, cl, v.sites, id)
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

// alive reports whether a member is alive and still has the log with which it became one
// (protocol-3).
func (v view) alive(m federation.Member) bool {
	g, _, alive, ok := v.gateway(m.Gateway)
	return ok && alive && g.Incarnation == m.Incarnation
}
