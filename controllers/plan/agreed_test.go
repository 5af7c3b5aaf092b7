// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation"
)

// TestPlaceByAgreement: a site of another organization has a copy if an agreement has room for it.
// What ends gets nothing new, and leaves when there is another site.
func TestPlaceByAgreement(t *testing.T) {
	// ein lends by agreement only, and of the other sites those that are named are there.
	few := func(names string, rooms ...Room) []Candidate {
		return testSites(func(m map[string]*Candidate) {
			for n, c := range m {
				c.Lost = n != "ein" && !strings.Contains(names, n)
			}
			m["ein"].Closed, m["ein"].Rooms = true, rooms
		})
	}
	room := func(id string, change ...func(*Room)) Room {
		r := Room{Agreement: id, Site: "ein", Organization: "tue", Region: "south", Amount: 4 << 30, Writes: true}
		for _, f := range change {
			f(&r)
		}
		return r
	}
	ends := func(r *Room) { r.Ending, r.Writes = true, false }
	full := func(r *Room) { r.Promised = 4<<30 - 1 }
	for _, tt := range []struct {
		name, sites, agreed string
		all                 []Candidate
		wish                func(q *Request)
		fails               string
	}{
		{name: "by an agreement", all: few("utr", room("x1")), sites: "utr ein", agreed: "x1"},
		{name: "not without one", all: few("utr"), fails: "ein: it belongs to tue, and lends no room"},
		{name: "that has most room", all: few("utr", room("x1", full), room("x2")), sites: "utr ein", agreed: "x2"},
		{name: "that has room", all: few("utr", room("x1", full)),
			fails: "ein: it lacks room: of the 4Gi agreed on with tue, 4294967295 are promised, and 1073741823 too little is left"},
		{name: "the one by which it is there", all: few("utr", room("x1", full), room("x2")), sites: "utr ein", agreed: "x1",
			wish: func(q *Request) {
				q.Present, q.PresentAgreed, q.PresentSize = []string{"utr", "ein"}, []string{"x1"}, 1<<30
			}},
		{name: "a volume that grows beyond it", all: few("utr", room("x1", full)), fails: "ein: it lacks room",
			wish: func(q *Request) {
				q.Present, q.PresentAgreed, q.PresentSize = []string{"utr", "ein"}, []string{"x1"}, 1<<29
			}},
		{name: "another if the first ends", all: few("utr", room("x1", ends), room("x2")), sites: "utr ein", agreed: "x2",
			wish: func(q *Request) {
				q.Present, q.PresentAgreed, q.PresentSize = []string{"utr", "ein"}, []string{"x1"}, 1<<30
			}},
		{name: "what ends gets nothing new", all: few("utr", room("x1", ends)), fails: "ein: the agreement with tue ends"},
		{name: "what ends is left", all: few("utr gro", room("x1", ends)), sites: "utr gro",
			wish: func(q *Request) {
				q.Present, q.PresentAgreed, q.PresentSize = []string{"ein", "utr"}, []string{"x1"}, 1<<30
			}},
		{name: "what ends stays if there is nothing else", all: few("utr", room("x1", ends)), sites: "ein utr", agreed: "x1",
			wish: func(q *Request) {
				q.Present, q.PresentAgreed, q.PresentSize = []string{"ein", "utr"}, []string{"x1"}, 1<<30
			}},
		{name: "what lends needs no agreement", sites: "utr ams", all: testSites(func(m map[string]*Candidate) {
			m["ams"].Rooms = []Room{room("x1")}
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Request{Owner: "uva", Near: "utr", Sites: tt.all}
			r.Spec.Size, r.Spec.Replication.Copies, r.Spec.Replication.Spread = 1<<30, 2, federation.SpreadSite
			if tt.wish != nil {
				tt.wish(&r)
			}
			p, err := Place(r)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Fatalf("placed at %v by %v, %v; want %q", p.Sites, p.Agreed, err, tt.fails)
				}
				return
			}
			got, agreed := strings.Join(p.Sites, " "), strings.Join(p.Agreed, " ")
			if err != nil || got != tt.sites || agreed != tt.agreed {
				t.Fatalf("placed at %q by %q, %v; want %q by %q", got, agreed, err, tt.sites, tt.agreed)
			}
		})
	}
}
