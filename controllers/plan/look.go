// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/upkeep"
)

// Seen is what the registry says about a volume.
type Seen struct {
	Volume federation.Volume
	// Control is nil while the volume has had no home.
	Control *federation.Control
	// Observed is what the present home reported last; nil while it has reported nothing.
	Observed *federation.Observed
	// Alive reports whether a gateway has a heartbeat of an incarnation; "" is any incarnation.
	Alive func(gateway, incarnation string) bool
	// Gateways returns the names of a site's gateways.
	Gateways func(site string) []string
	// Lost reports whether a person declared the site lost, or its organization was expelled.
	Lost func(site string) bool
	// Scrubs are what gateways reported of their own copies, by name.
	Scrubs map[string]*upkeep.Scrubbed
}

// View is what status shows of a volume.
type View struct {
	Home     v1alpha1.VolumeHome
	Replicas []v1alpha1.Replica
	Stores   []v1alpha1.StoreReplica
	Copies   string
	Lag      string
	Progress string // of the copy that catches up and has most to do
	Used     federation.Bytes
	// Held is how much only snapshots hold; nil: not known.
	Held *federation.Bytes
	// Files is how many there are, and may be; empty: not known.
	Files string
	// Snapshots is what the home reported of them; nil: nothing yet. It is not to be modified.
	Snapshots *snapshots.Report
	// Ready and Protected are the conditions.
	Ready, Protected State
	// Working: Ready changes by itself soon. Stalled: a person has to do something.
	Working, Stalled bool
	// InForce: the home has the record's generation in force, as far as its reports say.
	InForce bool
}

// State is a condition's status, reason and message.
type State struct {
	True            bool
	Reason, Message string
}

func state(is bool, reason, format string, a ...any) State {
	return State{is, reason, fmt.Sprintf(format, a...)}
}

// replicaUnknown is a state in the status of GeoVolumeContent that no gateway reports.
const replicaUnknown = "Unknown"

// Look makes a volume's status from what the registry says.
func Look(s Seen) View {
	v := View{InForce: true}
	if o := s.Observed; o != nil {
		v.Used, v.Snapshots, v.Files = coarse(o.Used), o.Snapshots, files(o.Files, s.Volume.Spec.Quota)
		if o.Held != nil {
			v.Held = ptr(coarse(*o.Held))
		}
		// An older gateway reports no generation.
		v.InForce = o.Generation == 0 || o.Generation >= s.Volume.Generation
	}
	homeAlive := false
	if c := s.Control; c != nil {
		v.Home = v1alpha1.VolumeHome{Site: c.Home.Site, Gateway: c.Home.Gateway, Epoch: int64(c.Epoch)}
		homeAlive = s.Alive(c.Home.Gateway, c.Home.Incarnation)
	}
	good, missing := v.replicas(s, homeAlive)
	goodStores, missingStores := v.stores(s)
	good, missing = good+goodStores, append(missing, missingStores...)
	want := s.Volume.Spec.Replication.Copies + s.Volume.Spec.Replication.Stores
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
		v.Ready = state(false, v1alpha1.ReasonDeleted,
			"volume %s was deleted at %s and is in the trash until %s", s.Volume.Name, stamp(s.Volume.DeletedAt), stamp(s.Volume.PurgeAt()))
	case s.Control == nil:
		v.Ready, v.Working = State{false, v1alpha1.ReasonCreating, s.missingHome()}, true
	case !homeAlive:
		v.homeless(s)
	case s.Observed != nil && s.Observed.Opening != "":
		v.Ready, v.Working = state(false, v1alpha1.ReasonOpening, "home %s at site %s opens its copy, and serves nothing until then: %s",
			s.Control.Home.Gateway, s.Control.Home.Site, s.Observed.Opening), true
		if s.Observed.Replay != (federation.Progress{}) {
			v.Progress = s.Observed.Replay.String()
		}
	case s.Volume.Source.Unfinished() && !s.filled().Done:
		v.filling(s)
	case s.Volume.IsBlind(s.Control.Home.Site):
		v.Ready, v.Working = state(false, v1alpha1.ReasonMoving, "%s leads, and its copy at site %s is blind: it hands on to the first "+
			"copy that has the key, and nothing is served until then", s.Control.Home.Gateway, s.Control.Home.Site), true
	case s.Observed != nil && s.Observed.Message != "":
		v.Ready, v.Working = state(false, v1alpha1.ReasonWritesWait,
			"reads are served by home %s: %s", s.Control.Home.Gateway, s.Observed.Message), true
	case !v.Protected.True:
		v.Ready, v.Working = state(true, v1alpha1.ReasonDegraded,
			"served by home %s; %s", s.Control.Home.Gateway, v.Protected.Message), true
	case !v.InForce:
		v.Ready, v.Working = state(true, v1alpha1.ReasonUpdating, "served; generation %d of the volume is not in force at home %s yet",
			s.Volume.Generation, s.Control.Home.Gateway), true
	default:
		v.Ready = state(true, v1alpha1.ReasonReady, "served by home %s at site %s", s.Control.Home.Gateway, s.Control.Home.Site)
	}
}

// filled is how far the home is with what the volume is made of.
func (s Seen) filled() snapshots.Filled {
	if s.Observed == nil || s.Observed.Snapshots == nil || s.Observed.Snapshots.Filled == nil {
		return snapshots.Filled{}
	}
	return *s.Observed.Snapshots.Filled
}

// filling sets Ready while the volume does not have all of what it is made of.
func (v *View) filling(s Seen) {
	f, src := s.filled(), s.Volume.Source
	v.Progress = fmt.Sprintf("%s of %s, %d of %d files", federation.Bytes(f.Bytes), federation.Bytes(src.Bytes), f.Inodes, src.Inodes)
	say := "home %s at site %s copies snapshot %s of volume %s, and the volume is served when it has all: %s"
	a := []any{s.Control.Home.Gateway, s.Control.Home.Site, src.Snapshot, src.Volume, v.Progress}
	if f.Message != "" {
		say, a = say+"; it tries again: %s", append(a, f.Message)
	}
	v.Ready, v.Working = state(false, v1alpha1.ReasonFilling, say, a...), true
}

// homeless sets Ready while the home does not answer. Another member takes over by itself. Without
// one a person has to decide: only the home is sure to have all that was acknowledged.
func (v *View) homeless(s Seen) {
	h := s.Control.Home
	var heirs []string // members that are alive
	for _, m := range s.Control.Members {
		if m != h && s.Alive(m.Gateway, m.Incarnation) {
			heirs = append(heirs, m.Gateway)
		}
	}
	if len(heirs) > 0 {
		v.Ready = state(false, v1alpha1.ReasonMoving,
			"home %s at site %s does not answer: %s takes over by itself", h.Gateway, h.Site, strings.Join(heirs, " or "))
		v.Working = true
		return
	}
	report := "it never reported, so all that it acknowledged may be only there"
	if o := s.Observed; o != nil {
		report = fmt.Sprintf("writes that it acknowledged after its last report at %s may be only there", stamp(o.At))
		for _, r := range o.Replicas {
			switch {
			case r.Gateway == h.Gateway:
			case r.Unheard:
				report += fmt.Sprintf(", and how far %s was then behind is not known", r.Gateway)
			default:
				report += fmt.Sprintf(", and %s was then %s (%s) behind", r.Gateway, lag(r.LagSeconds), federation.Bytes(r.LagBytes))
			}
		}
	}
	v.Ready = state(false, v1alpha1.ReasonHomeLost,
		"home %s at site %s does not answer, and no other copy is sure to have all its writes: %s. "+
			"Start that gateway on its pool again; or, to give those writes up, `weir failover %s --accept-loss`",
		h.Gateway, h.Site, report, s.Volume.Name)
	v.Stalled = true
}

// missingHome says why a volume has had no home yet.
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

// replicas lists the copy at each of the volume's sites, then members at other sites. It counts the
// good copies at the volume's sites, and says what is wrong with the others.
func (v *View) replicas(s Seen, homeAlive bool) (good int, missing []string) {
	sites := slices.Clone(s.Volume.Sites)
	if s.Control != nil {
		for _, m := range s.Control.Members {
			if !slices.Contains(sites, m.Site) {
				sites = append(sites, m.Site)
			}
		}
	}
	worst, most := -1.0, int64(0)
	for i, site := range sites {
		r, seconds, problem := s.replica(site, homeAlive)
		if o, ok := s.observed(site); ok && r.Progress != "" && o.Progress.Total-o.Progress.Copied >= most {
			v.Progress, most = r.Progress, o.Progress.Total-o.Progress.Copied
		}
		s.scrubbed(&r)
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

// replica returns one site's copy, how many seconds it is behind (−1: not known), and why it is not
// a good copy.
func (s Seen) replica(site string, homeAlive bool) (v1alpha1.Replica, float64, string) {
	r := v1alpha1.Replica{Site: v1alpha1.SiteName(site), State: replicaUnknown, Blind: s.Volume.IsBlind(site)}
	c := s.Control
	if c != nil && c.Home.Site == site {
		r.Gateway, r.State = c.Home.Gateway, string(federation.ReplicaHome)
		if !homeAlive {
			r.State = string(federation.ReplicaLost)
			return r, -1, "the home " + r.Gateway + " does not answer"
		}
		return r, -1, ""
	}
	if o, ok := s.observed(site); ok {
		return s.reported(r, o, homeAlive)
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
		return r, -1, "the site was declared lost, or its organization was expelled"
	case r.Gateway != "" && !s.Alive(r.Gateway, ""):
		r.State = string(federation.ReplicaLost)
		return r, -1, r.Gateway + " does not answer"
	case !slices.ContainsFunc(s.Gateways(site), func(g string) bool { return s.Alive(g, "") }):
		return r, -1, "no gateway of the site is alive"
	}
	return r, -1, "the home has not reported it yet"
}

// observed returns what the home reported of a site's copy; false: nothing.
func (s Seen) observed(site string) (o federation.ObservedReplica, ok bool) {
	if s.Observed == nil {
		return o, false
	}
	i := slices.IndexFunc(s.Observed.Replicas, func(x federation.ObservedReplica) bool { return x.Site == site })
	if i < 0 {
		return o, false
	}
	return s.Observed.Replicas[i], true
}

// reported is replica for a copy that the home reported.
func (s Seen) reported(r v1alpha1.Replica, o federation.ObservedReplica, homeAlive bool) (v1alpha1.Replica, float64, string) {
	r.Gateway, r.State = o.Gateway, string(o.State)
	if o.Unheard {
		r.State = string(federation.ReplicaLost)
		return r, -1, o.Gateway + " has not answered the present home"
	}
	r.Lag = lag(o.LagSeconds)
	// Less than 2 MiB changes all the time and says nothing.
	if mib := (o.LagBytes + 1<<20 - 1) >> 20; mib > 1 {
		r.LagBytes = Quantity(federation.Bytes(mib << 20))
	}
	bound := s.Volume.Spec.Durability.MaxLag
	tooOld := o.LagSeconds > time.Duration(bound.Time).Seconds() && bound.Time > 0
	tooMuch := federation.Bytes(o.LagBytes) > bound.Bytes && bound.Bytes > 0
	if !s.Alive(o.Gateway, "") {
		r.State = string(federation.ReplicaLost)
		return r, o.LagSeconds, o.Gateway + " does not answer"
	}
	if homeAlive { // else nothing is copied
		r.Progress = o.Progress.String()
	}
	switch {
	case o.State != federation.ReplicaMember && o.State != federation.ReplicaFollower && o.State != federation.ReplicaHome:
		return r, o.LagSeconds, fmt.Sprintf("%s is %s, %s behind", o.Gateway, o.State, r.Lag)
	case tooOld || tooMuch:
		return r, o.LagSeconds, fmt.Sprintf("%s is %s and %s behind, more than maxLag", o.Gateway, r.Lag, federation.Bytes(o.LagBytes))
	}
	return r, o.LagSeconds, ""
}

// coarse rounds an amount up, by less than a hundredth or to a MiB. With each byte in it, the
// operator would write the status of every volume in use all the time.
func coarse(b federation.Bytes) federation.Bytes {
	step := federation.Bytes(1 << 20)
	for b/step >= 256 {
		step *= 2
	}
	return (b + step - 1) / step * step
}

// lag is short and coarse: with milliseconds in it, the operator would write the status all the
// time.
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
