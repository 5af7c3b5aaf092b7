// SPDX-License-Identifier: Apache-2.0

package statuscmd

import (
	"cmp"
	"slices"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/upkeep"
	"github.com/weir-storage/weir/replica/protocol"
)

// replicas merges the home's list of copies with what each gateway says of its own copy. It adds
// the gateways of the volume's sites that the home does not list.
func (v view) replicas(vol federation.Volume, out *VolumeReport, listed []federation.ObservedReplica) []ReplicaReport {
	rows := []ReplicaReport{}
	for _, o := range listed {
		row := ReplicaReport{Gateway: o.Gateway, Site: o.Site, State: string(o.State)}
		if !o.Unheard {
			row.LagSeconds, row.LagBytes, row.Durable = &o.LagSeconds, &o.LagBytes, &o.Durable
		}
		if o.Progress != (federation.Progress{}) {
			row.Progress = &o.Progress
		}
		rows = append(rows, row)
	}
	for _, s := range v.sites {
		if !slices.Contains(vol.Sites, s.Site.Name) {
			continue
		}
		for _, g := range s.Site.Gateways {
			if !slices.ContainsFunc(rows, func(r ReplicaReport) bool { return r.Gateway == g.Name }) {
				rows = append(rows, ReplicaReport{Gateway: g.Name, Site: s.Site.Name, State: replicaUnknown})
			}
		}
	}
	for i := range rows {
		rows[i].Scrub = v.scrubbed(vol.UUID, rows[i].Gateway)
	}
	old := !out.AsOf.IsZero() || listed == nil // the states are out of date
	for i := range rows {
		rows[i].Blind = vol.IsBlind(rows[i].Site)
		v.refresh(&rows[i], vol.UUID, out, old)
	}
	slices.SortFunc(rows, func(a, b ReplicaReport) int {
		return cmp.Or(cmp.Compare(rank(a, out.Home), rank(b, out.Home)), cmp.Compare(a.Gateway, b.Gateway))
	})
	return rows
}

// scrubbed is what a gateway last reported of its copy that it read again; nil: nothing.
func (v view) scrubbed(uuid, gateway string) *upkeep.Scrubbed {
	o, _ := v.lastReport(uuid, gateway)
	return o.Scrub
}

func rank(r ReplicaReport, home string) int {
	if r.Gateway == home {
		return 0
	}
	return 1
}

// refresh brings a row up to date with what the copy's own gateway says.
func (v view) refresh(r *ReplicaReport, uuid string, out *VolumeReport, old bool) {
	g, _, alive, _ := v.gateway(r.Gateway)
	own, answered := v.answers[r.Gateway].volume(uuid)
	if answered {
		r.Serving, r.Salvage, r.Problem = &own.Serving, own.Salvage, cmp.Or(own.Problem, own.Leaving)
		r.Scrub = cmp.Or(own.Scrub, r.Scrub)
		if own.Role != protocol.Home.String() { // of the home the volume's message says it
			r.Problem = cmp.Or(r.Problem, own.Waiting)
		}
		if own.Role != "" && own.Problem == "" {
			r.End = &own.End
		}
	}
	if old { // nothing is copied without a home, or nobody knows how far it is
		r.Progress = nil
	}
	switch {
	case !answered && !alive:
		r.State, r.Progress = replicaDown, nil
		if r.Gateway == out.Home {
			r.LagSeconds, r.LagBytes = nil, nil // it may have more than it last reported
		}
	case answered && own.Role == protocol.Home.String() && r.Gateway == out.Home:
		r.State = string(federation.ReplicaHome)
	case answered && (old || r.State == replicaUnknown):
		member := slices.ContainsFunc(v.controls[uuid].Members, func(m federation.Member) bool {
			return m.Gateway == g.Name && m.Incarnation == g.Incarnation
		})
		r.State = ownState(own.Role, member)
	}
}

// ownState is the state of a copy whose gateway has the given role.
func ownState(role string, member bool) string {
	switch {
	case role == "" || role == "None":
		return replicaUnknown
	case role == protocol.Failed.String():
		return string(federation.ReplicaLost)
	case role == protocol.Candidate.String() || role == protocol.Starting.String() || role == protocol.Home.String():
		return role
	case member:
		return string(federation.ReplicaMember)
	}
	return string(federation.ReplicaFollower)
}

// candidate is a copy that could become home.
type candidate struct {
	gateway, site string
	member        bool                // it has everything that was acknowledged
	end           federation.Position // of its log
	order         int                 // of its site in the volume's list
	doubt         bool                // it is closed: its log lost something
	epoch         uint64              // of the last of its log, if it is in doubt
	blind         bool                // it can only hand on
}

// candidates are the copies, without the home's, whose gateway is alive and whose end of log is
// known.
func (v view) candidates(out *VolumeReport, ctl federation.Control) []candidate {
	var list []candidate
	var sites []string
	for _, vol := range v.volumes {
		if vol.UUID == out.UUID {
			sites = vol.Sites
		}
	}
	for _, r := range out.Replicas {
		g, s, alive, ok := v.gateway(r.Gateway)
		end := r.End
		if end == nil && r.State != string(federation.ReplicaLost) {
			end = r.Durable // a gateway of another organization may refuse to answer, and can still become home
		}
		if !ok || !alive || r.Gateway == ctl.Home.Gateway || end == nil || r.State == replicaUnknown {
			continue
		}
		member := ctl.CountsOn(federation.Member{Gateway: g.Name, Site: s.Name, Incarnation: g.Incarnation})
		list = append(list, candidate{gateway: g.Name, site: s.Name, member: member, end: *end, order: slices.Index(sites, s.Name),
			blind: r.Blind})
	}
	return list
}

// bestReplica is the most advanced candidate. A member comes first, then the longer log, then the
// order of sites in the volume's list.
func bestReplica(list []candidate) (candidate, bool) {
	if len(list) == 0 {
		return candidate{}, false
	}
	return slices.MinFunc(list, func(a, b candidate) int {
		if a.member != b.member {
			if a.member {
				return -1
			}
			return 1
		}
		if a.end == b.end && a.blind != b.blind {
			if b.blind {
				return -1
			}
			return 1
		}
		return cmp.Or(b.end.Compare(a.end), cmp.Compare(a.order, b.order), cmp.Compare(a.gateway, b.gateway))
	}), true
}
