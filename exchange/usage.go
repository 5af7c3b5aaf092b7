// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"fmt"
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
		s.Of = map[string]paper.Counters{}
	}
	for g, c := range u.Of {
		s.Of[g] = s.Of[g].Plus(c)
		s.Counters = s.Plus(c)
	}
	if s.At.IsZero() || u.At.Before(s.At) {
		s.At = u.At
	}
	for g := range u.Taken {
		s.Taken = append(s.Taken, g)
	}
	slices.Sort(s.Taken)
}

// until is what a side counts up to a time, if nothing changes meanwhile.
func (s Sum) until(t time.Time) paper.Counters {
	c := s.Counters
	if t.After(s.At) {
		c.ByteHours += float64(c.Stored) * t.Sub(s.At).Hours()
	}
	return c
}

// differ says by what two sides disagree, at the later of their times. A side that counted nothing
// yet disagrees with nothing.
func differ(guest, host Sum) string {
	if guest.At.IsZero() || host.At.IsZero() {
		return ""
	}
	at := guest.At
	if host.At.After(at) {
		at = host.At
	}
	g, h := guest.until(at), host.until(at)
	var worst string
	most := 0.0
	for _, x := range []struct {
		what string
		g, h float64
		unit float64
	}{
		{"bytes stored", float64(g.Stored), float64(h.Stored), Trifle}, {"byte-hours", g.ByteHours, h.ByteHours, Trifle},
		{"bytes written", float64(g.In), float64(h.In), Trifle}, {"bytes read", float64(g.Out), float64(h.Out), Trifle},
		{"writes", float64(g.Puts), float64(h.Puts), 1}, {"reads", float64(g.Gets), float64(h.Gets), 1},
		{"deletions", float64(g.Deletes), float64(h.Deletes), 1},
	} {
		by := math.Abs(x.g - x.h)
		if part := by / max(x.g, x.h, 1); by > x.unit && part > Disagreement && part > most {
			most = part
			worst = fmt.Sprintf("%s: the guest counted %.0f, the host %.0f (%.2f %%)", x.what, x.g, x.h, 100*part)
		}
	}
	return worst
}
