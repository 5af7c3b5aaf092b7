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
)

// Disagreement is above how much two counts differ, as a part of the larger one. What is less than
// Trifle, in bytes, byte-hours or calls, differs by what is under way.
const (
	Disagreement = 0.001
	Trifle       = 1000
	// Overdue is how much later one side may say its counts than the other, which then may have
	// counted less: each says them hourly, at times of its own.
	Overdue = 2 * time.Hour
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

	at   map[string]time.Time // up to when, by gateway
	last time.Time            // up to when the newest of its counts goes
}

// Usage is what both sides counted of an agreement.
type Usage struct {
	Guest, Host Sum
	// Differs says by what they disagree; "": by nothing that counts.
	Differs string
}

// Usages are what both sides counted, by agreement: of one, or of all for "".
func (d *Desk) Usages(ctx context.Context, id string) (map[string]Usage, error) {
	prefix := string(paper.FormUsage) + "/"
	if id != "" {
		prefix += id + "/"
	}
	all, err := d.Book.ListPapers(ctx, prefix)
	if err != nil {
		return nil, err
	}
	out := map[string]Usage{}
	for _, p := range all {
		if p.Usage == nil {
			continue
		}
		u := out[p.Usage.ID]
		if p.Usage.Organization == p.Usage.Guest {
			u.Guest.add(p.Usage)
		} else {
			u.Host.add(p.Usage)
		}
		out[p.Usage.ID] = u
	}
	for id, u := range out {
		u.Differs = differ(u.Guest, u.Host)
		out[id] = u
	}
	return out, nil
}

func (s *Sum) add(u *paper.Usage) {
	if s.Of == nil {
		s.Of, s.at = map[string]paper.Counters{}, map[string]time.Time{}
	}
	for g, c := range u.Of {
		s.Of[g], s.at[g] = s.Of[g].Plus(c), u.At
		s.Counters = s.Plus(c)
	}
	if s.At.IsZero() || u.At.Before(s.At) {
		s.At = u.At
	}
	if u.At.After(s.last) {
		s.last = u.At
	}
	for g := range u.Taken {
		s.Taken = append(s.Taken, g)
	}
	slices.Sort(s.Taken)
}

// counted is what a side counted of a gateway, and up to when.
func (s Sum) counted(gateway string) (paper.Counters, time.Time) {
	if at, ok := s.at[gateway]; ok {
		return s.Of[gateway], at
	}
	return paper.Counters{}, s.last
}

// until is what was counted up to a time, if nothing changed since.
func until(c paper.Counters, since, t time.Time) paper.Counters {
	c.ByteHours += float64(c.Stored) * t.Sub(since).Hours()
	return c
}

// differ says by what two sides disagree most. A side that counted nothing yet disagrees with
// nothing.
func differ(guest, host Sum) (worst string) {
	if guest.At.IsZero() || host.At.IsZero() {
		return ""
	}
	all := map[string]bool{}
	for g := range guest.Of {
		all[g] = true
	}
	for g := range host.Of {
		all[g] = true
	}
	most := 0.0
	for _, g := range slices.Sorted(maps.Keys(all)) {
		if part, what := differs(guest, host, g); part > most {
			most, worst = part, what
		}
	}
	return worst
}

// differs says by what part of it two sides disagree about what a gateway did. Counts only grow: so
// who spoke first has not counted more than the other, and may have counted less. If nothing was
// written or deleted in between, what is stored and byte-hours are the same too, at the later time.
func differs(guest, host Sum, gateway string) (most float64, worst string) {
	g, gAt := guest.counted(gateway)
	h, hAt := host.counted(gateway)
	still := g.Puts == h.Puts && g.Deletes == h.Deletes
	apart := gAt.Sub(hAt).Abs()
	late := apart > Overdue
	if still || late {
		at := gAt
		if hAt.After(at) {
			at = hAt
		}
		g, h = until(g, gAt, at), until(h, hAt, at)
	}
	for _, x := range []struct {
		what string
		g, h float64
		unit float64
		both bool // they are the same at both times, or too long went by
	}{
		{"bytes stored", float64(g.Stored), float64(h.Stored), Trifle, still || late},
		{"byte-hours", g.ByteHours, h.ByteHours, Trifle, still || late},
		{"bytes written", float64(g.In), float64(h.In), Trifle, late}, {"bytes read", float64(g.Out), float64(h.Out), Trifle, late},
		{"writes", float64(g.Puts), float64(h.Puts), 1, late}, {"reads", float64(g.Gets), float64(h.Gets), 1, late},
		{"deletions", float64(g.Deletes), float64(h.Deletes), 1, late},
	} {
		by := math.Abs(x.g - x.h)
		first := apart == 0 || gAt.Before(hAt) && x.g > x.h || hAt.Before(gAt) && x.h > x.g // who spoke first counted more
		if x.what == "bytes stored" {
			first = apart == 0
		}
		if part := by / max(x.g, x.h, 1); (first || x.both) && by > x.unit && part > Disagreement && part > most {
			most = part
			worst = fmt.Sprintf("%s: the guest counted %.0f, the host %.0f (%.2f %%), of gateway %s", x.what, x.g, x.h, 100*part, gateway)
		}
	}
	return most, worst
}
