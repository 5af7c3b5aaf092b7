// SPDX-License-Identifier: Apache-2.0

// Package report reports the status of volumes to people, to the operator and to nodes. It also
// writes what a home observes to the registry, at a low rate.
//
// # Rules
//
//   - report-1: When the registry does not take what a home observes, other homes wait too.
//   - report-2: A home that has not opened its copy yet says so, and why.
//   - report-3: What is told of other gateways is as old as the registry's last answer and its
//     watch, and how old that is, is told too.
package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/upkeep"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/replica/protocol"
)

// VolumeStatus is a volume as one gateway sees it.
type VolumeStatus struct {
	Name     string                       `json:"name"`
	UUID     string                       `json:"uuid"`
	Gateway  string                       `json:"gateway"` // the one that reports
	Role     string                       `json:"role"`
	Blind    bool                         `json:"blind,omitempty"` // the copy holds ciphertext only
	Epoch    uint64                       `json:"epoch"`
	Home     string                       `json:"home"`
	HomeSite string                       `json:"homeSite"`
	Members  []string                     `json:"members"`
	Commit   federation.Position          `json:"commit"`
	End      federation.Position          `json:"end"`
	LogEpoch uint64                       `json:"logEpoch"`          // of the last of the log
	Stalled  bool                         `json:"stalled"`           // fewer members than wanted: nothing is acknowledged
	Waiting  string                       `json:"waiting,omitempty"` // why writes wait, or this copy, if for room
	Serving  bool                         `json:"serving"`           // reads are answered here
	Replicas []federation.ObservedReplica `json:"replicas,omitempty"`
	Stores   []federation.ObservedStore   `json:"stores,omitempty"`  // lent ones
	Salvage  []string                     `json:"salvage,omitempty"` // copies set aside at this gateway
	Scrub    *upkeep.Scrubbed             `json:"scrub,omitempty"`   // how the copy here is that was read again
	Problem  string                       `json:"problem,omitempty"`
	Doubt    bool                         `json:"doubt,omitempty"`   // Problem is that a member's log lost something
	Leaving  string                       `json:"leaving,omitempty"` // why a copy that is to leave is still here
}

// Status returns the status of one volume, by UUID or name, or of all for "". It leaves deleted
// volumes out.
func (p *Reporter) Status(id string) []VolumeStatus {
	out := []VolumeStatus{}
	all, _ := p.cfg.View.Volumes()
	for _, known := range all {
		if known.Record == nil || known.Record.Deleted || id != "" && known.UUID != id && known.Name() != id {
			continue
		}
		v := *known.Record
		s := VolumeStatus{Name: v.Name, UUID: v.UUID, Gateway: p.cfg.Gateway, Salvage: p.cfg.Copies.Salvaged(v.UUID),
			Scrub: p.cfg.Scrubs.Scrubbed(v.UUID)}
		s.Home, s.Epoch = p.cfg.View.Home(v.UUID)
		state, begun := p.cfg.Copies.State(v.UUID)
		s.Leaving = state.Leaving
		switch {
		case !begun:
			s.Problem = "not open yet"
		case state.Copy == nil && state.Problem != nil:
			left := p.cfg.Copies.Doubt(v.UUID)
			s.Problem, s.Doubt, s.End, s.LogEpoch = state.Problem.Error(), left.Why != nil, federation.Position(left.End), left.Epoch
		case state.Copy == nil:
			s.Role = "None"
		default:
			s.describe(state.Copy, v)
		}
		if s.Waiting != "" && len(s.Salvage) > 0 {
			s.Waiting += fmt.Sprintf("; copies that were set aside are on the pool too: decide whether anybody needs them: %s",
				strings.Join(s.Salvage, ", "))
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b VolumeStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Steward is the Role of a gateway that leads with a blind copy (protocol-28).
const Steward = "Steward"

// describe fills in the state of the local copy.
func (s *VolumeStatus) describe(c *copies.Copy, v federation.Volume) {
	st := c.Replica.Status()
	s.Role, s.Epoch, s.Stalled, s.Blind = st.Role.String(), st.Epoch, st.Stalled, c.Blind()
	if s.Blind && st.Role == protocol.Home {
		s.Role = Steward
	}
	s.Commit, s.End, s.LogEpoch = federation.Position(st.Commit), federation.Position(st.End), c.LogEpoch()
	s.Waiting, s.Serving = c.Replica.Waiting(), c.MayServe() == nil
	if st.Control != nil {
		s.Home, s.HomeSite = st.Control.Home.Gateway, st.Control.Home.Site
		for _, m := range st.Control.Members {
			s.Members = append(s.Members, m.Gateway)
		}
	}
	s.Replicas, s.Stores = c.Replicas(v), c.Replica.Stores()
}

// Trouble returns why a volume is not healthy according to its home; empty if it is. silent are
// members that do not answer.
func (s VolumeStatus) Trouble(silent []string, wanted int) string {
	switch {
	case s.Blind:
		return "its copy holds ciphertext only: all waits until a copy that has the key can be home, to which it hands on"
	case len(silent) > 0:
		return fmt.Sprintf("%s does not answer: writes wait until it does, or until the home goes on without it, as "+
			"the volume's durability says", strings.Join(silent, ", "))
	case len(s.stuck()) > 0:
		return s.held("writes wait")
	case s.Stalled:
		return fmt.Sprintf("%d of %d members: writes wait until another copy is one", len(s.Members), wanted)
	case s.Waiting != "":
		return "writes wait: " + s.Waiting
	case len(s.Members) < wanted:
		return fmt.Sprintf("%d of %d members: writes go on, on fewer copies than wanted", len(s.Members), wanted)
	case !s.Serving:
		return "reads wait: the home has not heard from a member lately"
	}
	return ""
}

// Delay returns what the home knows of why its epoch does not begin; empty if nothing.
func (s VolumeStatus) Delay() string {
	if len(s.stuck()) > 0 {
		return s.held("all waits")
	}
	return ""
}

// held says that stuck members hold the volume up.
func (s VolumeStatus) held(what string) string {
	return fmt.Sprintf("%s stores nothing, and %s for it: see its problem, make room on its pool or replace its disk, "+
		"or give the volume one more copy, which then counts instead", strings.Join(s.stuck(), ", "), what)
}

// stuck returns the members that answer and store nothing.
func (s VolumeStatus) stuck() (out []string) {
	for _, r := range s.Replicas {
		if r.StuckSeconds > 0 && slices.Contains(s.Members, r.Gateway) {
			out = append(out, r.Gateway)
		}
	}
	return out
}

// Silent returns the members that the home does not hear.
func (s VolumeStatus) Silent() (out []string) {
	for _, r := range s.Replicas {
		if r.State == federation.ReplicaLost && slices.Contains(s.Members, r.Gateway) {
			out = append(out, r.Gateway)
		}
	}
	return out
}

// HomeStatus returns the volume's status according to its home, or why there is none.
func (p *Reporter) HomeStatus(ctx context.Context, v federation.Volume) (s VolumeStatus, err error) {
	home, _ := p.cfg.View.Home(v.UUID)
	var all []VolumeStatus
	switch home {
	case "":
		return s, errors.New("it has no home yet")
	case p.cfg.Gateway:
		all = p.Status(v.UUID)
	default:
		client, err := p.cfg.Peers.Forward(home)
		if err != nil {
			return s, err
		}
		reply, err := client.Status(ctx, &forwardpb.StatusRequest{Volume: v.UUID})
		if err != nil {
			p.cfg.Logger.Debug("home does not answer", "volume", v.Name, "home", home, "error", err)
			return s, fmt.Errorf("home %s does not answer", home)
		}
		if err := json.Unmarshal(reply.GetJson(), &all); err != nil {
			return s, fmt.Errorf("home %s gives an answer that can not be read: %w", home, err)
		}
	}
	switch {
	case len(all) != 1:
		return s, fmt.Errorf("home %s does not know it yet", home)
	case all[0].Problem != "":
		return s, fmt.Errorf("home %s can not open it: %s", home, all[0].Problem)
	case all[0].Role == Steward:
		return s, fmt.Errorf("%s: %s", home, all[0].Trouble(nil, 0))
	case all[0].Role != protocol.Home.String():
		return s, fmt.Errorf("%s begins a new epoch", home)
	}
	return all[0], nil
}

// MaybeLost describes what a forced takeover by this gateway may lose.
func (p *Reporter) MaybeLost(ctx context.Context, volume, home string) string {
	seen, err := p.cfg.Registry.ListObserved(ctx, volume)
	if err != nil {
		return fmt.Sprintf("What it alone has is not known (%v).", err)
	}
	for _, o := range seen {
		if o.Gateway != home {
			continue
		}
		behind := "this copy ends where the home's last report did"
		for _, r := range o.Replicas {
			switch {
			case r.Gateway != p.cfg.Gateway:
			case r.Unheard:
				behind = "how far this copy was then behind is not known"
			case r.LagBytes > 0:
				behind = fmt.Sprintf("this copy was then %d bytes and %.1f s behind", r.LagBytes, r.LagSeconds)
			}
		}
		return fmt.Sprintf("Writes acknowledged after its last report at %s may be lost; %s.", o.At.UTC().Format(time.RFC3339), behind)
	}
	return "The home never reported: everything that it acknowledged and that is not here may be lost."
}
