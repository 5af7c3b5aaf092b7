// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

// Seen is what the registry says about a volume.
type Seen struct {
	Volume federation.Volume
	// Control is nil while the volume has had no home.
	Control *federation.Control
	// Observed is the present home's word; nil while it has said nothing.
	Observed *federation.Observed
	// Alive tells whether a gateway has a heartbeat, with that incarnation if one is given.
	Alive func(gateway, incarnation string) bool
	// Gateways has a site's gateways.
	Gateways func(site string) []string
	// Lost tells whether a person declared the site lost.
	Lost func(site string) bool
}

// View is what is shown of a volume.
type View struct {
	Home     v1alpha1.VolumeHome
	Replicas []v1alpha1.Replica
	Copies   string
	Lag      string
	Used     federation.Bytes
	// Ready and Protected are the conditions.
	Ready, Protected State
	// Working: it changes by itself soon. Stalled: a person has to do something.
	Working, Stalled bool
	// InForce: the home has the record's generation in force, as far as it can be known.
	InForce bool
}

// State is a condition's.
type State struct {
	True            bool
	Reason, Message string
}

// Replica states of GeoVolumeContent that no gateway reports.
const replicaUnknown = "Unknown"

// Look makes what is shown of what was seen.
func Look(s Seen) View {
	v := View{InForce: true}
	if o := s.Observed; o != nil {
		v.Used = coarse(o.Used)
		v.InForce = o.Generation == 0 || o.Generation >= s.Volume.Generation // an older gateway does not say
	}
	homeAlive := false
	if c := s.Control; c != nil {
		v.Home = v1alpha1.VolumeHome{Site: c.Home.Site, Gateway: c.Home.Gateway, Epoch: int64(c.Epoch)}
		homeAlive = s.Alive(c.Home.Gateway, c.Home.Incarnation)
	}
	good, missing := v.replicas(s, homeAlive)
	want := s.Volume.Spec.Replication.Copies
	v.Copies = fmt.Sprintf("%d/%d", good, want)
	v.Protected = State{true, v1alpha1.ReasonProtected, v.Copies + " copies are alive and not behind"}
	if good < want {
		v.Protected = State{false, v1alpha1.ReasonDegraded, v.Copies + " copies are alive and not behind: " + strings.Join(missing, "; ")}
	}
	v.ready(s, homeAlive)
	return v
}

func (v *View) ready(s Seen, homeAlive bool) {
	switch {
	case s.Volume.Deleted:
		v.Ready = State{false, v1alpha1.ReasonDeleted, fmt.Sprintf("volume %s was deleted at %s and is in the trash", s.Volume.Name, stamp(s.Volume.DeletedAt))}
	case s.Control == nil:
		v.Ready, v.Working = State{false, v1alpha1.ReasonCreating, s.missingHome()}, true
	case !homeAlive:
		v.homeless(s)
	case s.Observed != nil && s.Observed.Message != "":
		v.Ready, v.Working = State{false, v1alpha1.ReasonWritesWait, fmt.Sprintf("reads are served by home %s: %s", s.Control.Home.Gateway, s.Observed.Message)}, true
	case !v.Protected.True:
		v.Ready, v.Working = State{true, v1alpha1.ReasonDegraded, fmt.Sprintf("served by home %s; %s", s.Control.Home.Gateway, v.Protected.Message)}, true
	case !v.InForce:
		v.Ready, v.Working = State{true, v1alpha1.ReasonUpdating, fmt.Sprintf("served; generation %d of the volume is not in force at home %s yet", s.Volume.Generation, s.Control.Home.Gateway)}, true
	default:
		v.Ready = State{true, v1alpha1.ReasonReady, fmt.Sprintf("served by home %s at site %s", s.Control.Home.Gateway, s.Control.Home.Site)}
	}
}

// homeless: the home is gone. Another member takes over by itself; without one, a person has to decide, for only the home is sure to have
// all that was acknowledged.
func (v *View) homeless(s Seen) {
	h := s.Control.Home
	var heirs []string
	for _, m := range s.Control.Members {
		if m != h && s.Alive(m.Gateway, m.Incarnation) {
			heirs = append(heirs, m.Gateway)
		}
	}
	if len(heirs) > 0 {
		v.Ready = State{false, v1alpha1.ReasonMoving, fmt.Sprintf("home %s at site %s does not answer: %s takes over by itself", h.Gateway, h.Site, strings.Join(heirs, " or "))}
		v.Working = true
		return
	}
	report := "it never reported, so all that it acknowledged may be only there"
	if o := s.Observed; o != nil {
		report = fmt.Sprintf("writes that it acknowledged after its last report at %s may be only there", stamp(o.At))
		for _, r := range o.Replicas {
			if r.Gateway != h.Gateway {
				report += fmt.Sprintf(", and %s was then %s (%s) behind", r.Gateway, lag(r.LagSeconds), federation.Bytes(r.LagBytes))
			}
		}
	}
	v.Ready = State{false, v1alpha1.ReasonHomeLost, fmt.Sprintf("home %s at site %s does not answer, and no other copy is sure to have all its writes: %s. "+
		"Start that gateway on its pool again; or, to give those writes up, `weir failover %s --accept-loss`", h.Gateway, h.Site, report, s.Volume.Name)}
	v.Stalled = true
}

func (s Seen) missingHome() string {
	if len(s.Volume.Sites) == 0 {
		return "it has no sites yet"
	}
	first := s.Volume.Sites[0]
	for _, g := range s.Gateways(first) {
		if s.Alive(g, "") {
			return fmt.Sprintf("gateway %s at site %s begins to serve it", g, first)
		}
	}
	return fmt.Sprintf("no gateway of site %s, where it begins, is alive: start one there", first)
}

// replicas lists the copy at each of the volume's sites, then those that are still members elsewhere, and counts the good ones.
func (v *View) replicas(s Seen, homeAlive bool) (good int, missing []string) {
	sites := slices.Clone(s.Volume.Sites)
	if s.Control != nil {
		for _, m := range s.Control.Members {
			if !slices.Contains(sites, m.Site) {
				sites = append(sites, m.Site)
			}
		}
	}
	worst := -1.0
	for i, site := range sites {
		r, seconds, problem := s.replica(site, homeAlive)
		v.Replicas = append(v.Replicas, r)
		if i >= len(s.Volume.Sites) {
			continue // it is leaving, and does not count
		}
		worst = max(worst, seconds)
		if problem == "" {
			good++
		} else {
			missing = append(missing, fmt.Sprintf("%s: %s", site, problem))
		}
	}
	v.Lag = "unknown"
	switch {
	case worst >= 0:
		v.Lag = lag(worst)
	case s.Control != nil && len(s.Volume.Sites) == 1:
		v.Lag = lag(0)
	}
	return good, missing
}

// replica is one site's copy, how many seconds it is behind (−1: not known) and what keeps it from being a good one.
func (s Seen) replica(site string, homeAlive bool) (v1alpha1.Replica, float64, string) {
	r := v1alpha1.Replica{Site: v1alpha1.SiteName(site), State: replicaUnknown}
	c := s.Control
	if c != nil && c.Home.Site == site {
		r.Gateway, r.State = c.Home.Gateway, string(federation.ReplicaHome)
		if !homeAlive {
			r.State = string(federation.ReplicaLost)
			return r, -1, "the home " + r.Gateway + " does not answer"
		}
		return r, -1, ""
	}
	if s.Observed != nil {
		for _, o := range s.Observed.Replicas {
			if o.Site == site {
				return s.reported(r, o)
			}
		}
	}
	if c != nil {
		for _, m := range c.Members {
			if m.Site == site {
				r.Gateway = m.Gateway
			}
		}
	}
	switch {
	case s.Lost(site):
		r.State = string(federation.ReplicaLost)
		return r, -1, "the site was declared lost"
	case r.Gateway != "" && !s.Alive(r.Gateway, ""):
		r.State = string(federation.ReplicaLost)
		return r, -1, r.Gateway + " does not answer"
	case !slices.ContainsFunc(s.Gateways(site), func(g string) bool { return s.Alive(g, "") }):
		return r, -1, "no gateway of the site is alive"
	}
	return r, -1, "the home has not reported it yet"
}

func (s Seen) reported(r v1alpha1.Replica, o federation.ObservedReplica) (v1alpha1.Replica, float64, string) {
	r.Gateway, r.State, r.Lag = o.Gateway, string(o.State), lag(o.LagSeconds)
	if mib := (o.LagBytes + 1<<20 - 1) >> 20; mib > 1 { // less than that changes all the time and tells nobody anything
		r.LagBytes = Quantity(federation.Bytes(mib << 20))
	}
	bound := s.Volume.Spec.Durability.MaxLag
	switch {
	case !s.Alive(o.Gateway, ""):
		r.State = string(federation.ReplicaLost)
		return r, o.LagSeconds, o.Gateway + " does not answer"
	case o.State != federation.ReplicaMember && o.State != federation.ReplicaFollower && o.State != federation.ReplicaHome:
		return r, o.LagSeconds, fmt.Sprintf("%s is %s, %s behind", o.Gateway, o.State, r.Lag)
	case o.LagSeconds > time.Duration(bound.Time).Seconds() && bound.Time > 0, federation.Bytes(o.LagBytes) > bound.Bytes && bound.Bytes > 0:
		return r, o.LagSeconds, fmt.Sprintf("%s is %s and %s behind, more than maxLag", o.Gateway, r.Lag, federation.Bytes(o.LagBytes))
	}
	return r, o.LagSeconds, ""
}

// coarse rounds an amount up, by less than a hundredth or to a MiB: a status that told each byte that is used would be written all the time, of every volume that
// is in use.
func coarse(b federation.Bytes) federation.Bytes {
	step := federation.Bytes(1 << 20)
	for b/step >= 256 {
		step *= 2
	}
	return (b + step - 1) / step * step
}

// lag is short, and coarse: a status that told milliseconds would be written all the time.
func lag(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d < time.Second:
		return "<1s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	default:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
}
