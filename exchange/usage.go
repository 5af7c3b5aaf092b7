// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// Disagreement is above how much two counts differ, as a part of the larger one. What is less than
// Trifle, in bytes, byte-hours or calls, differs by what is under way.
const (
	Disagreement = 0.001
	Trifle       = 1000
	// Overdue is how much later one side may say its counts than the other, which then may have
	// counted less: each says them hourly, at times of its own.
	Overdue = 2 * time.Hour
	// Moment is by how much the times differ at which both sides take an object to come or go, when
	// one of them was down.
	Moment = time.Minute
)

// Sum is what one side counted of an agreement in all.
type Sum struct {
	paper.Counters
	// At is up to when the oldest of its counts goes.
	At time.Time
	// Of are its counters by gateway of the guest.
	Of map[string]paper.Counters
	// Taken are the gateways whose counters it took from the other side.
	Taken []string

	at     map[string]time.Time // up to when, by gateway
	last   time.Time            // up to when the newest of its counts goes
	erased bool                 // everything was deleted, and counts as no deletion
}

// Usage is what both sides counted of an agreement.
type Usage struct {
	// Kind is what is counted; empty: the agreement is not known.
	Kind        paper.Kind
	Guest, Host Sum
	// Differs says by what they disagree; "": by nothing that counts. More is who counted more of
	// that.
	Differs string
	More    paper.Party
}

// Usages are what both sides counted, by agreement: of one, or of all for "".
func (d *Desk) Usages(ctx context.Context, id string) (map[string]Usage, error) {
	of := ""
	if id != "" {
		of = id + "/"
	}
	all, err := d.Book.ListPapers(ctx, string(paper.FormUsage)+"/"+of)
	if err != nil {
		return nil, err
	}
	given, err := d.Book.ListPapers(ctx, string(paper.FormRoom)+"/"+of)
	if err != nil {
		return nil, err
	}
	rooms := map[string]map[string]bool{}
	for _, p := range given {
		if p.Room == nil {
			continue
		}
		if rooms[p.Room.ID] == nil {
			rooms[p.Room.ID] = map[string]bool{}
		}
		rooms[p.Room.ID][p.Room.Gateway] = true
	}
	requests, err := d.requests(ctx, id)
	if err != nil {
		return nil, err
	}
	out, gateways := map[string]Usage{}, map[string][]string{}
	for _, p := range all {
		if p.Usage == nil {
			continue
		}
		u, counted := out[p.Usage.ID], p.Usage
		if r := requests[p.Usage.ID]; r != nil && r.Kind != paper.KindStore {
			if counted, err = d.present(ctx, r, counted, gateways); err != nil {
				return nil, err
			}
		}
		if counted.Organization == counted.Guest {
			u.Guest.add(counted)
		} else {
			u.Host.add(counted)
		}
		out[p.Usage.ID] = u
	}
	for id, u := range out {
		if r := requests[id]; r != nil {
			u.Kind = r.Kind
		}
		if u.Kind == "" || u.Kind == paper.KindStore {
			u.Differs, u.More = differ(u.Guest, u.Host, rooms[id])
		} else {
			u.Differs, u.More = differLodged(u.Guest, u.Host)
		}
		out[id] = u
	}
	return out, nil
}

// requests are those of the agreements: of one, or of all for "".
func (d *Desk) requests(ctx context.Context, id string) (map[string]*paper.Request, error) {
	all, err := d.Book.ListPapers(ctx, paper.RequestName(id))
	if err != nil {
		return nil, err
	}
	out := map[string]*paper.Request{}
	for _, p := range all {
		if p.Request != nil {
			out[p.Request.ID] = p.Request
		}
	}
	return out, nil
}

// present is what somebody counted of room that is no store's. A gateway of the host may be one
// that its site has no more: what it saw last is not there any more then.
func (d *Desk) present(ctx context.Context, r *paper.Request, u *paper.Usage, known map[string][]string) (_ *paper.Usage, err error) {
	if d.Gateways == nil || u.Organization == u.Guest {
		return u, nil
	}
	gateways, asked := known[r.Site]
	if !asked {
		if gateways, err = d.Gateways(ctx, r.Site); err != nil {
			return nil, err
		}
		known[r.Site] = gateways
	}
	if len(gateways) == 0 || slices.Contains(gateways, u.By) {
		return u, nil
	}
	gone := *u
	gone.Of = map[string]paper.Counters{}
	for of, c := range u.Of {
		c.Stored = 0
		gone.Of[of] = c
	}
	return &gone, nil
}

func (s *Sum) add(u *paper.Usage) {
	if s.Of == nil {
		s.Of, s.at = map[string]paper.Counters{}, map[string]time.Time{}
	}
	for g, c := range u.Of {
		s.Counters = s.Plus(c)
		at := u.At
		if was, several := s.at[g]; several {
			if was.After(at) {
				at = was
			}
			c = until(s.Of[g], was, at).Plus(until(c, u.At, at))
		}
		s.Of[g], s.at[g] = c, at
	}
	if s.At.IsZero() || u.At.Before(s.At) {
		s.At = u.At
	}
	if u.At.After(s.last) {
		s.last = u.At
	}
	s.erased = s.erased || u.Erased != nil
	for g := range u.Taken {
		s.Taken = append(s.Taken, g)
	}
	slices.Sort(s.Taken)
}

// until is what was counted up to a time, if nothing changed since.
func until(c paper.Counters, since, t time.Time) paper.Counters {
	c.ByteHours += float64(c.Stored) * t.Sub(since).Hours()
	return c
}

// differ says by what two sides disagree most, and who counted more of it. A side that counted
// nothing yet disagrees with nothing, nor does a gateway that has room: it counts soon.
func differ(guest, host Sum, rooms map[string]bool) (worst string, more paper.Party) {
	for _, g := range slices.Sorted(maps.Keys(host.Of)) {
		if _, counts := guest.Of[g]; !counts && !rooms[g] && host.Of[g] != (paper.Counters{}) {
			return fmt.Sprintf("the host counted what gateway %s did, which has no room, and counted nothing", g), paper.Host
		}
	}
	if guest.At.IsZero() || host.At.IsZero() {
		return "", paper.Nobody
	}
	most := 0.0
	for _, g := range slices.Sorted(maps.Keys(guest.Of)) {
		d := difference{guest: guest.Of[g], host: host.Of[g], gAt: guest.at[g], hAt: host.last, gateway: g}
		// Who deletes what another gateway has counts that, and the other one hears of it later.
		d.deleted, d.erased = max(host.In-host.Stored, guest.In-guest.Stored, 0), host.erased
		if part, what, who := d.worst(); part > most {
			most, worst, more = part, what, who
		}
	}
	return worst, more
}

// differLodged says by what two sides disagree about room that is no store's. How much is taken
// goes by the registry's records, and either side says so as soon as it hears of a change: so the
// byte-hours of both are the same, up to when the later one counted, but for a moment. Who says
// nothing counts nothing: that is a difference when the other has counted for longer than Overdue.
func differLodged(guest, host Sum) (worst string, more paper.Party) {
	last := guest.last
	if host.last.After(last) {
		last = host.last
	}
	sum := func(s Sum) (all paper.Counters) {
		for of, c := range s.Of {
			all = all.Plus(until(c, s.at[of], last))
		}
		return all
	}
	g, h := sum(guest), sum(host)
	moment := Moment
	if guest.At.IsZero() || host.At.IsZero() {
		moment = Overdue
	}
	by := math.Abs(g.ByteHours-h.ByteHours) - float64(max(g.Stored, h.Stored))*moment.Hours()
	most := max(g.ByteHours, h.ByteHours)
	if by <= Trifle || by/most <= Disagreement {
		return "", paper.Nobody
	}
	if more = paper.Guest; h.ByteHours > g.ByteHours {
		more = paper.Host
	}
	return fmt.Sprintf("byte-hours: the guest counted %.0f, the host %.0f (%.2f %%)", g.ByteHours, h.ByteHours,
		100*math.Abs(g.ByteHours-h.ByteHours)/most), more
}

// difference is what two sides counted of a gateway, up to when, and how much was deleted of the
// agreement in all.
type difference struct {
	guest, host paper.Counters
	gAt, hAt    time.Time
	gateway     string
	deleted     quantity.Bytes
	erased      bool
}

// worst says by what part of it two sides disagree most. Counts only grow: so who spoke first has
// not counted more than the other, and may have counted less. If nothing was written or deleted in
// between, what is stored and byte-hours are the same too, at the later time.
func (d difference) worst() (most float64, worst string, more paper.Party) {
	g, h := d.guest, d.host
	still := g.Puts == h.Puts && g.Deletes == h.Deletes
	apart := d.gAt.Sub(d.hAt).Abs()
	late := apart > Overdue
	if still || late {
		at := d.gAt
		if d.hAt.After(at) {
			at = d.hAt
		}
		g, h = until(g, d.gAt, at), until(h, d.hAt, at)
	}
	// What a side may count more, as long as it has not heard of what other gateways deleted.
	stale := float64(d.deleted)
	for _, x := range []struct {
		what    string
		g, h    float64
		unit    float64
		both    bool // they are the same at both times, or too long went by
		level   bool // it goes up and down
		because float64
	}{
		{"bytes stored", float64(g.Stored), float64(h.Stored), Trifle, (still || late) && !d.erased, true, stale},
		{"byte-hours", g.ByteHours, h.ByteHours, Trifle, (still || late) && !d.erased, false, stale * max(apart, Overdue).Hours()},
		{"bytes written", float64(g.In), float64(h.In), Trifle, late, false, 0},
		{"bytes read", float64(g.Out), float64(h.Out), Trifle, late, false, 0},
		{"writes", float64(g.Puts), float64(h.Puts), 1, late, false, 0}, {"reads", float64(g.Gets), float64(h.Gets), 1, late, false, 0},
		{"deletions", float64(g.Deletes), float64(h.Deletes), 1, late, false, 0},
	} {
		who, first, by := paper.Guest, !d.gAt.After(d.hAt), x.g-x.h-x.because
		if x.h > x.g {
			who, first, by = paper.Host, !d.hAt.After(d.gAt), x.h-x.g
			if first && x.both { // of what is the same at both times if nobody deletes anything
				by -= x.because
			}
		}
		counts := x.both || first && (!x.level || d.gAt.Equal(d.hAt) && !d.erased)
		if x.what == "byte-hours" {
			by -= float64(max(g.Stored, h.Stored)) * Moment.Hours()
		}
		if part := by / max(x.g, x.h, 1); counts && by > x.unit && part > Disagreement && part > most {
			most, more = part, who
			worst = fmt.Sprintf("%s: the guest counted %.0f, the host %.0f (%.2f %%), of gateway %s", x.what, x.g, x.h,
				100*math.Abs(x.g-x.h)/max(x.g, x.h, 1), d.gateway)
		}
	}
	return most, worst, more
}

// Clears reports whether these counts show that a side does not count more than the other: it spoke
// first of each gateway. While it speaks last, what it counts more may have happened since. A
// gateway that says nothing any more is left out.
func (u Usage) Clears(side paper.Party) bool {
	if u.Differs != "" || u.Guest.At.IsZero() || u.Host.At.IsZero() {
		return false
	}
	if side == paper.Guest {
		return !u.Guest.last.After(u.Host.last)
	}
	heard := false
	for g := range u.Host.Of {
		switch at := u.Guest.at[g]; {
		case u.Host.last.Sub(at) > Overdue:
		case at.Before(u.Host.last):
			return false
		default:
			heard = true
		}
	}
	return heard
}
