// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/replica/protocol"
)

func (sh *shell) failoverCommand() *cobra.Command {
	var to string
	var accept bool
	var limit time.Duration
	n := new(connection)
	c := &cobra.Command{
		Use: "failover VOLUME", Short: "Move a volume's home to another site", Args: args(cobra.ExactArgs(1)),
		Long: "Moves a volume's home. While the home is alive it hands over, without loss. When it is lost, another copy takes over;\n" +
			"what only the home had is then lost, and that needs --accept-loss.",
		RunE: func(c *cobra.Command, a []string) error {
			cl, err := sh.open(n)
			if err != nil {
				return err
			}
			defer cl.close()
			v, err := cl.look(c.Context(), a[0], sh.now())
			if err != nil {
				return err
			}
			p, err := planFailover(v, to, accept)
			if err != nil {
				return err
			}
			if p.done != "" {
				return sh.say("%s\n", p.done)
			}
			sh.tell("%s\n", p.intent())
			start := sh.now()
			r, err := cl.failover(c.Context(), p, limit)
			if err != nil {
				return err
			}
			return sh.say("volume %s: home is %s, epoch %d, after %.1f s\n", p.volume, at(r.GetHome(), p.targetSite), r.GetEpoch(), sh.now().Sub(start).Seconds())
		},
	}
	n.flags(c)
	c.Flags().StringVar(&to, "to", "", "`SITE` (or gateway) that is to be home, by default that of the most advanced copy")
	c.Flags().BoolVar(&accept, "accept-loss", false, "give up what only the lost home has")
	c.Flags().DurationVar(&limit, "timeout", time.Minute, "`TIME` to wait for the new home")
	return c
}

// failover is a plan: whom to ask for what.
type failover struct {
	volume, uuid       string
	target, targetSite string
	ask                string // gateway: the home, which hands over, or else the target
	site               federation.Site
	gateway            federation.Gateway
	acceptLoss         bool
	done               string // not empty: there is nothing to do
}

func (p failover) intent() string {
	if p.ask == p.target {
		return fmt.Sprintf("volume %s: %s takes over ...", p.volume, at(p.target, p.targetSite))
	}
	return fmt.Sprintf("volume %s: %s hands over to %s, without loss ...", p.volume, p.ask, at(p.target, p.targetSite))
}

// planFailover decides what to ask whom. v has one volume.
func planFailover(v view, to string, acceptLoss bool) (failover, error) {
	vol := v.volumes[0]
	p := failover{volume: vol.Name, uuid: vol.UUID, acceptLoss: acceptLoss}
	ctl, ok := v.controls[vol.UUID]
	if !ok {
		return p, fmt.Errorf("volume %s: it has no home yet: %s", vol.Name, missingHome(vol, v.sites))
	}
	report := v.volume(vol)
	target, err := chooseTarget(v, vol, &report, ctl, to)
	if err != nil {
		return p, err
	}
	p.target, p.targetSite = target.gateway, target.site
	// A home that is cut from the registry still hands over by itself, unless the person gives it up.
	answer, told := v.answers[ctl.Home.Gateway].volume(vol.UUID)
	serving := told && answer.Role == protocol.Home.String()
	switch {
	case p.target == ctl.Home.Gateway && (v.alive(ctl.Home) || serving):
		p.done = fmt.Sprintf("volume %s: home is %s already, epoch %d", vol.Name, at(p.target, p.targetSite), ctl.Epoch)
		return p, nil
	case v.alive(ctl.Home) || serving && !acceptLoss:
		p.ask = ctl.Home.Gateway
	default:
		p.ask = p.target
	}
	p.gateway, p.site, _, ok = v.gateway(p.ask)
	if !ok {
		return p, fmt.Errorf("volume %s: gateway %s is not registered any more: start it, or remove its site", vol.Name, p.ask)
	}
	return p, nil
}

// chooseTarget finds the gateway that is to be home: the most advanced copy of all, or of a site, or a gateway by name.
func chooseTarget(v view, vol federation.Volume, r *VolumeReport, ctl federation.Control, to string) (candidate, error) {
	list := v.candidates(r, ctl)
	if to == "" {
		best, ok := bestReplica(list)
		if !ok {
			return best, fmt.Errorf("volume %s: no copy besides its home %s is alive and answers: start a gateway at one of its sites %s",
				vol.Name, at(ctl.Home.Gateway, ctl.Home.Site), strings.Join(vol.Sites, ", "))
		}
		return best, nil
	}
	site, isSite := to, slices.ContainsFunc(v.sites, func(s federation.SiteStatus) bool { return s.Site.Name == to })
	if g, s, _, ok := v.gateway(to); ok && !isSite {
		site = s.Name
		if ctl.Home.Gateway == g.Name {
			return candidate{gateway: g.Name, site: site}, nil
		}
		list = slices.DeleteFunc(list, func(c candidate) bool { return c.gateway != to })
	} else if _, err := siteNamed(v.sites, to); err != nil {
		return candidate{}, fmt.Errorf("volume %s: --to: %w", vol.Name, err)
	} else {
		if ctl.Home.Site == to && v.alive(ctl.Home) {
			return candidate{gateway: ctl.Home.Gateway, site: to}, nil
		}
		list = slices.DeleteFunc(list, func(c candidate) bool { return c.site != to })
	}
	if best, ok := bestReplica(list); ok {
		return best, nil
	}
	if !slices.Contains(vol.Sites, site) {
		return candidate{}, fmt.Errorf("volume %s: --to %q: site %s has no copy of it; its sites are %s", vol.Name, to, site, strings.Join(vol.Sites, ", "))
	}
	return candidate{}, fmt.Errorf("volume %s: --to %q: %s", vol.Name, to, whyNot(v, r, ctl, to, site))
}

// whyNot says why no gateway of a site of the volume can be its home.
func whyNot(v view, r *VolumeReport, ctl federation.Control, to, site string) string {
	var why []string
	for _, c := range r.Replicas {
		if c.Site != site || (to != site && c.Gateway != to) {
			continue
		}
		_, _, alive, _ := v.gateway(c.Gateway)
		err := v.answers[c.Gateway].err
		switch {
		case c.Gateway == ctl.Home.Gateway:
			why = append(why, fmt.Sprintf("gateway %s is the home that is lost", c.Gateway))
		case !alive:
			why = append(why, fmt.Sprintf("gateway %s is not alive: start it", c.Gateway))
		case err != nil:
			why = append(why, err.Error())
		default:
			why = append(why, fmt.Sprintf("gateway %s has no copy that is open: %s", c.Gateway, cmp.Or(c.Problem, "wait until it has")))
		}
	}
	return cmp.Or(strings.Join(why, "; "), fmt.Sprintf("site %s has no gateway: start one", site))
}

// failover asks for what was planned. Errors are the gateway's own words.
func (c *client) failover(ctx context.Context, p failover, limit time.Duration) (*forwardpb.FailoverReply, error) {
	var reply *forwardpb.FailoverReply
	err := c.call(ctx, limit, p.site, p.gateway, func(ctx context.Context, f forwardpb.ForwardClient) error {
		var err error
		reply, err = f.Failover(ctx, &forwardpb.FailoverRequest{Volume: p.uuid, To: p.target, AcceptLoss: p.acceptLoss})
		return err
	})
	return reply, err
}
