// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/view"
)

// TestLodged: who has a copy at ams by agreements x and y about 100 bytes each, and who may.
func TestLodged(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	agree := func(id string, change func(*paper.Answer)) []federation.Event {
		r := paper.Request{Terms: paper.Terms{ID: id, Guest: "B", Host: "A", Offer: "o", Kind: paper.KindCopy, Site: "ams", Amount: 100,
			Until: now.Add(time.Hour), AnswerBy: now}, Made: paper.Moment{At: now.Add(-2 * time.Hour), By: "p"}}
		a := paper.Answer{ID: id, Guest: "B", Host: "A", Ready: &paper.Place{},
			Accepted: &paper.Acceptance{Moment: paper.Moment{At: now.Add(-time.Hour), By: "q"}, Terms: r.Digest()}}
		change(&a)
		return []federation.Event{{Kind: federation.KindPaper, Name: paper.RequestName(id), Paper: &paper.Paper{Request: &r}},
			{Kind: federation.KindPaper, Name: paper.AnswerName(id), Paper: &paper.Paper{Answer: &a}}}
	}
	goesOn := func(*paper.Answer) {}
	deletes := func(a *paper.Answer) { a.Deleting = &paper.Moment{At: now, By: "q"} }
	made := 0
	of := func(uuid, owner string, size federation.Bytes, agreed []string, sites ...string) federation.Event {
		made++
		e := volumeEvent(uuid, 1, sites...)
		e.Volume.Owner, e.Volume.Agreed, e.Volume.Spec.Size, e.Volume.CreatedAt = owner, agreed, size, now.Add(time.Duration(made))
		return e
	}
	young := func(e federation.Event) federation.Event {
		e.Volume.CreatedAt = now.Add(time.Hour)
		return e
	}
	for _, tt := range []struct {
		name   string
		x, y   func(*paper.Answer)
		others []federation.Event
		agreed []string
		takes  bool
	}{
		{"by an agreement", goesOn, goesOn, nil, []string{"x"}, true},
		{"by none", goesOn, goesOn, nil, nil, false},
		{"another organization names it", goesOn, goesOn, []federation.Event{of("evil", "C", 1000, []string{"x"}, "cee", "ams")},
			[]string{"x"}, true},
		{"an older volume fills it", goesOn, goesOn, []federation.Event{of("old", "B", 95, []string{"x"}, "bee", "ams")}, []string{"x"},
			false},
		{"a younger volume that is held fills it", goesOn, goesOn,
			[]federation.Event{young(of("held", "B", 95, []string{"x"}, "bee", "ams"))}, []string{"x"}, false},
		{"a younger volume comes too", goesOn, goesOn,
			[]federation.Event{young(of("young", "B", 95, []string{"x"}, "bee", "ams"))}, []string{"x"}, true},
		{"an older volume of another place", goesOn, goesOn, []federation.Event{of("old", "B", 95, []string{"x"}, "bee")}, []string{"x"},
			true},
		{"the host deletes", deletes, goesOn, nil, []string{"x"}, false},
		{"the host deletes, and there is another that is full", deletes, goesOn,
			[]federation.Event{of("old", "B", 95, []string{"y"}, "bee", "ams")}, []string{"x", "y"}, false},
		{"nobody knows what the other says", deletes, goesOn, nil, []string{"x", "z"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			site := siteEvent("ams", "ams-1")
			site.Site.Organization = "A"
			all := append(append(agree("x", tt.x), agree("y", tt.y)...), tt.others...)
			v := view.New("ams", append(everyKind, federation.KindPaper)...)
			watch(t, v, append(all, site, of("mine", "B", 10, tt.agreed, "bee", "ams"), synced(9))...)
			s, _ := v.Site("ams")
			r, _ := v.Record("mine")
			if takes := v.Takes(s, r, now, func(id string) bool { return id == "held" }); takes != tt.takes {
				t.Errorf("takes %v", takes)
			}
		})
	}
}
