// SPDX-License-Identifier: Apache-2.0

package statuscmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-storage/weir/gateway/report"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/protocol"
)

// merge makes a Report of a view.
func merge(v view) Report {
	r := Report{Federation: v.federation, At: v.now.UTC(), Volumes: []VolumeReport{}, Gateways: []GatewayReport{}}
	for _, vol := range v.volumes {
		r.Volumes = append(r.Volumes, v.volume(vol))
	}
	for _, s := range v.sites {
		for _, g := range s.Site.Gateways {
			a := v.answers[g.Name]
			gr := GatewayReport{Name: g.Name, Site: s.Site.Name, Organization: s.Site.Organization,
				Addr: g.Addr, NFSAddr: g.NFSAddr, Alive: s.Alive[g.Name], Answered: a.err == nil}
			if a.err != nil {
				gr.Problem = a.err.Error()
			}
			r.Gateways = append(r.Gateways, gr)
		}
	}
	if len(v.notices) > 0 {
		var who []string
		for _, n := range v.notices {
			who = append(who, n.Gateway)
		}
		r.Registry = fmt.Sprintf("The registry went back, as %s noticed (%s). Volumes go on as they are, and nothing changes hands: "+
			"see `weir registry status`.", strings.Join(who, ", "), v.notices[0].Why)
	}
	slices.SortFunc(r.Volumes, func(a, b VolumeReport) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(r.Gateways, func(a, b GatewayReport) int {
		return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.Name, b.Name))
	})
	return r
}

func wanted(vol federation.Volume) int {
	if vol.Spec.Durability.Acknowledge == federation.AcknowledgeSites {
		return vol.Spec.Durability.Sites
	}
	return 1
}

func (v view) volume(vol federation.Volume) VolumeReport {
	out := VolumeReport{Name: vol.Name, UUID: vol.UUID, WantedMembers: wanted(vol), Members: []string{}}
	ctl, ok := v.controls[vol.UUID]
	if !ok {
		out.State, out.Message = StatePending, access.MissingHome(vol, v.sites)
		out.Replicas = v.replicas(vol, &out, nil)
		return out
	}
	out.Home, out.HomeSite, out.Epoch = ctl.Home.Gateway, ctl.Home.Site, ctl.Epoch
	for _, m := range ctl.Members {
		out.Members = append(out.Members, m.Gateway)
	}
	home, answered := v.answers[out.Home].volume(vol.UUID)
	answered = answered && home.Epoch >= ctl.Epoch
	lag := home.Replicas
	out.Stores = home.Stores
	if answered && home.Role == protocol.Home.String() {
		out.Commit = &home.Commit
	} else if o, ok := v.lastReport(vol.UUID, out.Home); ok {
		out.Commit, out.AsOf, lag, out.Stores = &o.Commit, o.At, o.Replicas, o.Stores
	}
	out.Replicas = v.replicas(vol, &out, lag)
	switch {
	case answered && home.Role == protocol.Home.String():
		v.judgeHome(&out, home, ctl)
	case v.alive(ctl.Home) && answered:
		v.judgeIdle(&out, home)
	case v.alive(ctl.Home):
		v.judgeSilent(&out, vol.UUID)
	default:
		v.judgeDead(&out, ctl)
		if g, _, _, _ := v.gateway(out.Home); out.State == StateHomeLost && answered && g.Incarnation == ctl.Home.Incarnation {
			out.Remedy = ""
			v.judgeIdle(&out, home) // it answers, so it is starting and has not sent its heartbeat yet
		}
	}
	return out
}

// lastReport is what a gateway last wrote to the registry about a volume.
func (v view) lastReport(uuid, gateway string) (federation.Observed, bool) {
	for _, o := range v.observed[uuid] {
		if o.Gateway == gateway {
			return o, true
		}
	}
	return federation.Observed{}, false
}

// judgeHome sets the state of a volume whose home answered that it is the home.
func (v view) judgeHome(out *VolumeReport, home report.VolumeStatus, ctl federation.Control) {
	out.State = StateReady
	var silent []string
	for _, r := range out.Replicas {
		if slices.Contains(out.Members, r.Gateway) && (r.State == replicaDown || r.State == string(federation.ReplicaLost)) {
			silent = append(silent, r.Gateway)
		}
	}
	home.Members = out.Members
	if out.Message = home.Trouble(silent, out.WantedMembers); out.Message != "" {
		out.State = StateDegraded
	} else {
		out.Message = home.Leaving
	}
	if !v.alive(ctl.Home) {
		out.Message = strings.TrimPrefix(out.Message+"; ", "; ") +
			"the home answers, and its heartbeat is not in the registry: it goes on, and nothing takes over from it"
	}
}

// judgeIdle sets the state of a volume whose home answered that it does not serve it.
func (v view) judgeIdle(out *VolumeReport, home report.VolumeStatus) {
	switch {
	case home.Problem != "":
		out.State, out.Message = StateNotServing, fmt.Sprintf("home %s can not open it: %s", out.Home, home.Problem)
	case home.Role == report.Steward:
		out.State, out.Message = StateTakingOver, out.Home+": "+home.Trouble(nil, 0)
	case home.Role == protocol.Failed.String():
		out.State, out.Message = StateNotServing, fmt.Sprintf("home %s does not trust its log: its pool failed", out.Home)
	default:
		out.State, out.Message = StateTakingOver, fmt.Sprintf("%s begins a new epoch", out.Home)
		home.Members = out.Members
		if cause := home.Delay(); cause != "" {
			out.Message += "; " + cause
		}
	}
}

// judgeSilent sets the state of a volume whose home is alive and said nothing of the volume.
func (v view) judgeSilent(out *VolumeReport, uuid string) {
	a := v.answers[out.Home]
	o, reported := v.lastReport(uuid, out.Home)
	switch {
	case a.err == nil:
		out.State, out.Message = StateTakingOver, fmt.Sprintf("%s begins to serve it", out.Home)
	case a.refused() && reported && o.Epoch == out.Epoch && o.Message == "":
		out.State, out.Message = StateReady, "by the home's last report; it does not answer you: "+a.err.Error()
	case a.refused() && reported && o.Epoch == out.Epoch:
		out.State, out.Message = StateDegraded, o.Message+" (by the home's last report; it does not answer you: "+a.err.Error()+")"
	default:
		out.State, out.Message = StateUnknown, "its home's heartbeat is in the registry, and it does not answer from here: "+a.err.Error()
	}
}

// judgeDead sets the state of a volume whose home is not alive.
func (v view) judgeDead(out *VolumeReport, ctl federation.Control) {
	var heirs, others []string
	for _, m := range ctl.Members {
		if m == ctl.Home {
			continue
		}
		if v.alive(m) {
			heirs = append(heirs, m.Gateway)
		} else {
			others = append(others, m.Gateway)
		}
	}
	gone, back := fmt.Sprintf("home %s is not alive", cli.With(out.Home, out.HomeSite)), out.Home
	if g, _, alive, _ := v.gateway(out.Home); alive && g.Incarnation != ctl.Home.Incarnation {
		gone = fmt.Sprintf("home %s is back without the log that it had", cli.With(out.Home, out.HomeSite))
		back = "the old pool of " + out.Home
	}
	if len(heirs) > 0 {
		out.State, out.Message = StateTakingOver, fmt.Sprintf("%s; %s takes over by itself, without loss", gone,
			strings.Join(heirs, " or "))
		return
	}
	out.State = StateHomeLost
	if len(others) > 0 {
		gone += fmt.Sprintf(", nor is any other member (%s)", strings.Join(others, ", "))
		back += " or " + strings.Join(others, " or ")
	} else {
		gone += " and was the only member"
	}
	out.Message = fmt.Sprintf("%s, so nothing takes over by itself. Bring %s back", gone, back)
	best, ok := bestReplica(v.candidates(out, ctl))
	if !ok {
		out.Message += "; no other copy is alive."
		return
	}
	out.Message += fmt.Sprintf(", or go on with the copy at %s and give up what it lacks. %s",
		cli.With(best.gateway, best.site), v.lost(out, best.gateway))
	out.Remedy = fmt.Sprintf("weir failover %s --to %s --accept-loss", out.Name, best.site)
}

// lost says what may be lost when a gateway takes over from a dead home.
func (v view) lost(out *VolumeReport, to string) string {
	if out.AsOf.IsZero() {
		return "The home never reported: everything that it acknowledged and that is not there may be lost."
	}
	behind := "it was not heard of by then"
	for _, r := range out.Replicas {
		if r.Gateway != to || r.LagBytes == nil || r.LagSeconds == nil {
			continue
		}
		if behind = "it had all until then"; *r.LagBytes > 0 {
			behind = fmt.Sprintf("it was then %s and %s behind", cli.Bytes(*r.LagBytes), cli.Span(*r.LagSeconds))
		}
	}
	return fmt.Sprintf("Writes acknowledged after the home's last report, %s, may be lost; %s.", cli.Stamp(out.AsOf), behind)
}
