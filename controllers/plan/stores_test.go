// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

// TestPlaceStores: sites come first, of the organization's own and of others; lent stores have what
// the policy wants besides, and copies for which there is no site.
func TestPlaceStores(t *testing.T) {
	few := func(names ...string) []Candidate {
		return testSites(func(m map[string]*Candidate) {
			for n, c := range m {
				c.Lost = !strings.Contains(strings.Join(names, " "), n)
			}
		})
	}
	rooms := func() []Room {
		return []Room{
			{Agreement: "x1", Site: "ein", Organization: "tue", Region: "south", Amount: 100 << 30},
			{Agreement: "x2", Site: "gro", Organization: "rug", Region: "north", Amount: 100 << 30, Promised: 50 << 30},
			{Agreement: "x3", Site: "gro", Organization: "rug", Region: "north", Amount: 100 << 30},
		}
	}
	for _, tt := range []struct {
		name, sites, stores string
		wish                func(r *federation.Replication, q *Request)
		fails               string
	}{
		{name: "own sites come first", sites: "utr ams", wish: func(*federation.Replication, *Request) {}},
		{name: "besides", sites: "utr ams", stores: "x1", wish: func(r *federation.Replication, _ *Request) { r.Stores = 1 }},
		{name: "two besides are not at one site", sites: "utr ams", stores: "x1 x3", wish: func(r *federation.Replication, _ *Request) {
			r.Stores = 2
		}},
		{name: "besides may be where a copy is", sites: "utr ein", stores: "x1", wish: func(r *federation.Replication, _ *Request) {
			r.Stores, r.Sites.Required, r.Sites.Preferred = 1, []string{"utr", "ein"}, []string{"ein"}
		}},
		{name: "instead of a copy", sites: "utr", stores: "x1", wish: func(_ *federation.Replication, q *Request) { q.Sites = few("utr") }},
		{name: "instead, and besides", sites: "utr", stores: "x1 x3", wish: func(r *federation.Replication, q *Request) {
			q.Sites, r.Stores = few("utr"), 1
		}},
		{name: "instead is not where a copy is", sites: "ein", stores: "x3", wish: func(_ *federation.Replication, q *Request) {
			q.Sites = few("ein")
		}},
		{name: "what is there stays", sites: "utr", stores: "x2", wish: func(_ *federation.Replication, q *Request) {
			q.Sites, q.PresentStores = few("utr"), []string{"x2"}
		}},
		{name: "what ends is replaced", sites: "utr", stores: "x3", wish: func(_ *federation.Replication, q *Request) {
			q.Sites, q.PresentStores, q.Rooms[0].Ending, q.Rooms[1].Ending = few("utr"), []string{"x1"}, true, true
		}},
		{name: "what ends stays if there is nothing else", sites: "utr", stores: "x1", wish: func(_ *federation.Replication, q *Request) {
			q.Sites, q.PresentStores, q.Rooms = few("utr"), []string{"x1"}, q.Rooms[:1]
			q.Rooms[0].Ending = true
		}},
		{name: "what ends gets nothing new", wish: func(_ *federation.Replication, q *Request) {
			q.Sites, q.Rooms = few("utr"), q.Rooms[:1]
			q.Rooms[0].Ending = true
		}, fails: "store of agreement x1 at ein: the agreement ends"},
		{name: "forbidden", sites: "utr", stores: "x3", wish: func(r *federation.Replication, q *Request) {
			q.Sites, r.Sites.Forbidden = few("utr"), []string{"ein"}
		}},
		{name: "preferred", sites: "utr", stores: "x3", wish: func(r *federation.Replication, q *Request) {
			q.Sites, r.Sites.Preferred = few("utr"), []string{"gro"}
		}},
		{name: "no room", sites: "utr", stores: "x3", wish: func(_ *federation.Replication, q *Request) {
			q.Sites, q.Rooms[0].Promised = few("utr"), 100<<30
		}},
		{name: "too few besides", wish: func(r *federation.Replication, _ *Request) { r.Stores = 3 },
			fails: "3 lent stores are wanted, and 1 more than there are: borrow more room (StorageRequest)"},
		{name: "stores acknowledge nothing", wish: func(_ *federation.Replication, q *Request) {
			q.Sites, q.Spec.Durability.Acknowledge, q.Spec.Durability.Sites = few("utr"), federation.AcknowledgeSites, 2
		}, fails: "2 copies are wanted, but only 1 of 5 sites can have one (utr)"},
		{name: "no site at all", wish: func(_ *federation.Replication, q *Request) { q.Sites = few("-") },
			fails: "2 copies are wanted, but only 0 of 5 sites can have one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Request{Owner: "uva", Near: "utr", Sites: testSites(nil), PresentSize: 0, Rooms: rooms()}
			r.Spec.Size, r.Spec.Replication.Copies, r.Spec.Replication.Spread = 1<<30, 2, federation.SpreadSite
			tt.wish(&r.Spec.Replication, &r)
			p, err := Place(r)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Fatalf("placed at %v and %v, %v; want %q", p.Sites, p.Stores, err, tt.fails)
				}
				return
			}
			if got, stores := strings.Join(p.Sites, " "), strings.Join(p.Stores, " "); err != nil || got != tt.sites ||
				stores != tt.stores {
				t.Fatalf("placed at %q and %q, %v; want %q and %q", got, stores, err, tt.sites, tt.stores)
			}
		})
	}
}

// TestLookAtStores: a lent store counts as a copy while it has everything and is not behind.
func TestLookAtStores(t *testing.T) {
	for _, tt := range []struct {
		name, copies, says, state string
		is                        *federation.ObservedStore
	}{
		{"whole", "4/4", "4/4 copies are alive and not behind", "Whole", &federation.ObservedStore{Whole: true, LagBytes: 5,
			LagSeconds: 9}},
		{"not reported", "3/4", "store of agreement 0a6b4c1e: the home has not reported it yet", "Unknown", nil},
		{"filling", "3/4", "it is being filled, and 5Mi behind", "Filling", &federation.ObservedStore{LagBytes: 5 << 20}},
		{"failing", "3/4", "store of agreement 0a6b4c1e: no room", "Failing", &federation.ObservedStore{Whole: true, Problem: "no room"}},
		{"behind", "3/4", "it is 2Gi behind, more than maxLag", "Whole", &federation.ObservedStore{Whole: true, LagBytes: 2 << 30}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := testWorld()
			w.Volume.Stores, w.Volume.Spec.Replication.Stores = []string{"0a6b4c1e-7a0b-4a42-9a2e-0000000000aa"}, 1
			if tt.is != nil {
				tt.is.Agreement, tt.is.Site = w.Volume.Stores[0], "ein"
				w.Observed.Stores = []federation.ObservedStore{*tt.is}
			}
			v := Look(w.Seen)
			if v.Copies != tt.copies || !strings.Contains(v.Protected.Message, tt.says) || v.Protected.True != (tt.copies == "4/4") {
				t.Errorf("%s copies, %+v", v.Copies, v.Protected)
			}
			if len(v.Stores) != 1 || v.Stores[0].State != tt.state || v.Ready.True != true {
				t.Errorf("stores are %+v, and Ready %+v", v.Stores, v.Ready)
			}
			if want := map[bool]string{true: v1alpha1.ReasonReady,
				false: v1alpha1.ReasonDegraded}[v.Protected.True]; v.Ready.Reason != want {
				t.Errorf("Ready is %+v, want %s", v.Ready, want)
			}
		})
	}
}
