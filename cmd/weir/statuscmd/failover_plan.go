// SPDX-License-Identifier: Apache-2.0

package statuscmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/replica/protocol"
)

// failover is a plan: which gateway to ask for what.
type failover struct {
	volume, uuid       string
	target, targetSite string
	ask                string // gateway: the home, if it hands over, else the target
	site               federation.Site
	gateway            federation.Gateway
	acceptLoss         bool
	takeover           signed.Takeover // what the person says, with acceptLoss
	done               string          // not empty: there is nothing to do
}

func (p failover) intent() string {
	if p.ask == p.target {
		return fmt.Sprintf("volume %s: %s takes over ...", p.volume, cli.With(p.target, p.targetSite))
	}
	return fmt.Sprintf("volume %s: %s hands over to %s, without loss ...", p.volume, p.ask, cli.With(p.target, p.targetSite))
}

// planFailover makes the plan. v has one volume.
func planFailover(v view, to string, acceptLoss bool) (failover, error) {
	vol := v.volumes[0]
	p := failover{volume: vol.Name, uuid: vol.UUID, acceptLoss: acceptLoss}
	ctl, ok := v.controls[vol.UUID]
	if !ok {
		return p, fmt.Errorf("volume %s: it has no home yet: %s", vol.Name, access.MissingHome(vol, v.sites))
	}
	p.takeover = signed.Takeover{Volume: vol.UUID, Epoch: ctl.Epoch, Change: ctl.Change}
	report := v.volume(vol)
	target, err := chooseTarget(v, vol, &report, ctl, to)
	if err != nil {
		return p, err
	}
	p.target, p.targetSite, p.takeover.Gateway = target.gateway, target.site, target.gateway
	// A home that is cut off from the registry can still hand over, unless the person gives it up.
	answer, answered := v.answers[ctl.Home.Gateway].volume(vol.UUID)
	serving := answered && answer.Role == protocol.Home.String()
	doubt := answered && answer.Doubt
	switch {
	case target.doubt:
		p.ask = p.target
	case p.target == ctl.Home.Gateway && (v.alive(ctl.Home) || serving):
		p.done = fmt.Sprintf("volume %s: home is %s already, epoch %d", vol.Name, cli.With(p.target, p.targetSite), ctl.Epoch)
		return p, nil
	case v.alive(ctl.Home) && !doubt || serving && !acceptLoss:
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

// chooseTarget finds the next home: the gateway named to, or the most advanced copy at the site
// named to, or the most advanced copy of all when to is empty.
func chooseTarget(v view, vol federation.Volume, r *VolumeReport, ctl federation.Control, to string) (candidate, error) {
	list := v.candidates(r, ctl)
	if to == "" {
		if v.alive(ctl.Home) { // a blind copy cannot be home, and only keeps what is left
			list = slices.DeleteFunc(list, func(c candidate) bool { return c.blind })
		}
		best, ok := bestReplica(list)
		if doubted := v.doubted(r, ""); !ok && len(doubted) > 0 {
			return doubted[0], nil
		}
		if !ok {
			return best, fmt.Errorf("volume %s: no copy besides its home %s is alive and answers: start a gateway at one of its sites %s",
				vol.Name, cli.With(ctl.Home.Gateway, ctl.Home.Site), strings.Join(vol.Sites, ", "))
		}
		return best, nil
	}
	site, isSite := to, slices.ContainsFunc(v.sites, func(s federation.SiteStatus) bool { return s.Site.Name == to })
	if g, s, _, ok := v.gateway(to); ok && !isSite {
		site = s.Name
		if ctl.Home.Gateway == g.Name {
			return candidate{gateway: g.Name, site: site, doubt: len(v.doubted(r, g.Name)) > 0}, nil
		}
		list = slices.DeleteFunc(list, func(c candidate) bool { return c.gateway != to })
	} else if _, err := access.SiteNamed(v.sites, to); err != nil {
		return candidate{}, fmt.Errorf("volume %s: --to: %w", vol.Name, err)
	} else {
		if ctl.Home.Site == to && v.alive(ctl.Home) {
			return candidate{gateway: ctl.Home.Gateway, site: to, doubt: len(v.doubted(r, ctl.Home.Gateway)) > 0}, nil
		}
		list = slices.DeleteFunc(list, func(c candidate) bool { return c.site != to })
	}
	if best, ok := bestReplica(list); ok {
		return best, nil
	}
	if doubted := v.doubted(r, to); len(doubted) > 0 {
		return doubted[0], nil
	}
	if !slices.Contains(vol.Sites, site) {
		return candidate{}, fmt.Errorf("volume %s: --to %q: site %s has no copy of it; its sites are %s",
			vol.Name, to, site, strings.Join(vol.Sites, ", "))
	}
	return candidate{}, fmt.Errorf("volume %s: --to %q: %s", vol.Name, to, whyNot(v, r, ctl, to, site))
}

// whyNot says why no gateway of a site can be the volume's home.
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

// doubted are the copies at a site, or at a gateway, or anywhere ("") that are closed because their
// logs lost something: first that of which most is left.
func (v view) doubted(r *VolumeReport, at string) (out []candidate) {
	for _, c := range r.Replicas {
		if said, ok := v.answers[c.Gateway].volume(r.UUID); ok && said.Doubt && (at == "" || at == c.Site || at == c.Gateway) {
			out = append(out, candidate{gateway: c.Gateway, site: c.Site, doubt: true, epoch: said.LogEpoch, end: said.End})
		}
	}
	slices.SortStableFunc(out, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.epoch, a.epoch), b.end.Compare(a.end)) })
	return out
}
