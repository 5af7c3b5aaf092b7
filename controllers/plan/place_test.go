// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

// testSites are ams and utr of uva, in one region; ein of tue and gro of rug, each in its own
// region; and lei of uva, without a region.
func testSites(change func(map[string]*Candidate)) []Candidate {
	all := []Candidate{
		{Name: "ams", Organization: "uva", Region: "west", Keyed: true, Labels: map[string]string{"jurisdiction": "nl"}},
		{Name: "ein", Organization: "tue", Region: "south", Keyed: true, Labels: map[string]string{"jurisdiction": "nl"}},
		{Name: "gro", Organization: "rug", Region: "north", Keyed: true, Labels: map[string]string{"jurisdiction": "nl"}},
		{Name: "lei", Organization: "uva", Keyed: true, Labels: map[string]string{"jurisdiction": "eu"}},
		{Name: "utr", Organization: "uva", Region: "west", Keyed: true, Labels: map[string]string{"jurisdiction": "nl"}},
	}
	if change != nil {
		by := map[string]*Candidate{}
		for i := range all {
			by[all[i].Name] = &all[i]
		}
		change(by)
	}
	return all
}

func TestPlace(t *testing.T) {
	type req = Request
	rules := func(r *req, f func(*federation.SiteRules)) { f(&r.Spec.Replication.Sites) }
	for _, tt := range []struct {
		name  string
		sites []Candidate
		wish  func(*req)
		want  string // the sites, or what the message contains
		fail  bool
	}{
		{name: "two copies, near the owner", want: "utr ams", wish: func(*req) {}},
		{name: "the preferred home comes first", want: "gro utr", wish: func(r *req) { r.Spec.Home.PreferredSites = []string{"gro"} }},
		{name: "preferred sites come next", want: "ein gro", wish: func(r *req) {
			rules(r, func(s *federation.SiteRules) { s.Preferred = []string{"ein", "gro"} })
		}},
		{name: "a pool that few sites have", want: "ein gro", sites: testSites(func(s map[string]*Candidate) {
			for _, n := range []string{"ein", "gro"} {
				s[n].Pools = []federation.Pool{{Name: "main"}, {Name: "fast", Labels: map[string]string{"tier": "nvme", "rack": "1"}}}
			}
		}), wish: func(r *req) { r.Spec.Cache.Pool = map[string]string{"tier": "nvme"} }},
		{name: "a pool that too few sites have", fail: true, sites: testSites(func(s map[string]*Candidate) {
			s["gro"].Pools = []federation.Pool{{Name: "main"}, {Name: "fast", Labels: map[string]string{"tier": "nvme"}}}
			s["ein"].Pools = []federation.Pool{{Name: "main", Labels: map[string]string{"tier": "hdd"}}}
		}), want: "ein: none of its pools has the labels of spec.cache.pool (tier=nvme); it has main (tier=hdd)",
			wish: func(r *req) { r.Spec.Cache.Pool = map[string]string{"tier": "nvme"} }},
		{name: "a site whose gateway does not tell of its pools keeps what it has", want: "ams gro",
			sites: testSites(func(s map[string]*Candidate) {
				s["gro"].Pools = []federation.Pool{{Name: "fast", Labels: map[string]string{"tier": "nvme"}}}
			}), wish: func(r *req) { r.Present, r.Spec.Cache.Pool = []string{"ams"}, map[string]string{"tier": "nvme"} }},
		{name: "a pool that no site has", fail: true, want: "give a CachePool there these labels",
			wish: func(r *req) { r.Spec.Cache.Pool = map[string]string{"tier": "tape"} }},
		{name: "a site that lends nothing is passed over", fail: true, want: "gro: it belongs to rug, and lends no room",
			sites: testSites(func(s map[string]*Candidate) { s["gro"].Closed = true }),
			wish:  func(r *req) { r.Spec.Replication.Copies = 5 }},
		{name: "a site that lends nothing any more keeps what it has", want: "gro utr", sites: testSites(func(s map[string]*Candidate) {
			s["gro"].Closed = true
		}), wish: func(r *req) { r.Present = []string{"gro"} }},
		{name: "a required site that lends nothing", fail: true, want: "lends no room to the volume's organization",
			sites: testSites(func(s map[string]*Candidate) { s["gro"].Closed = true }),
			wish:  func(r *req) { rules(r, func(s *federation.SiteRules) { s.Required = []string{"gro"} }) }},
		{name: "spread over regions", want: "utr ein gro lei", wish: func(r *req) {
			r.Spec.Replication.Copies, r.Spec.Replication.Spread = 4, federation.SpreadRegion
		}},
		{name: "spread over organizations", want: "utr ein gro", wish: func(r *req) {
			r.Spec.Replication.Copies, r.Spec.Replication.Spread = 3, federation.SpreadOrganization
		}},
		{name: "a required site takes its domain", want: "ams ein", wish: func(r *req) {
			r.Spec.Replication.Spread = federation.SpreadRegion
			rules(r, func(s *federation.SiteRules) { s.Required = []string{"ams"} })
		}},
		{name: "the site with the least promised", want: "utr gro", sites: testSites(func(m map[string]*Candidate) {
			m["ams"].Promised, m["ein"].Promised, m["lei"].Promised = 3, 2, 1
		}), wish: func(*req) {}},
		{name: "a full site is left out", want: "ams ein", sites: testSites(func(m map[string]*Candidate) {
			m["utr"].Capacity, m["utr"].Promised = 10<<30, 9<<30+1
		}), wish: func(*req) {}},
		{name: "present sites stay", want: "lei gro", wish: func(r *req) { r.Present = []string{"lei", "gro"} }},
		{name: "a copy more is added", want: "lei gro utr",
			wish: func(r *req) { r.Present, r.Spec.Replication.Copies = []string{"lei", "gro"}, 3 }},
		{name: "a copy fewer: the home stays", want: "gro", wish: func(r *req) {
			r.Present, r.Home, r.Spec.Replication.Copies = []string{"lei", "gro"}, "gro", 1
		}},
		{name: "a present site that is now forbidden is replaced", want: "lei utr", wish: func(r *req) {
			r.Present = []string{"lei", "gro"}
			rules(r, func(s *federation.SiteRules) { s.Forbidden = []string{"gro"} })
		}},
		{name: "a present site that is over its capacity stays", want: "lei gro", sites: testSites(func(m map[string]*Candidate) {
			m["lei"].Capacity, m["lei"].Promised = 1, 1<<40
		}), wish: func(r *req) { r.Present = []string{"lei", "gro"} }},
		{name: "a present site without room for growth is replaced", want: "gro utr", sites: testSites(func(m map[string]*Candidate) {
			m["lei"].Capacity, m["lei"].Promised = 2<<30, 1<<30
		}), wish: func(r *req) { r.Present, r.Spec.Size = []string{"lei", "gro"}, 5<<30 }},
		{name: "a lost site is replaced", want: "gro utr", sites: testSites(func(m map[string]*Candidate) { m["lei"].Lost = true }),
			wish: func(r *req) { r.Present = []string{"lei", "gro"} }},
		{name: "a lost site that may have what nobody else has stays", want: "lei gro",
			sites: testSites(func(m map[string]*Candidate) { m["lei"].Lost = true }),
			wish:  func(r *req) { r.Present, r.Needed = []string{"lei", "gro"}, []string{"lei"} }},
		{name: "selected by label", want: "lei", wish: func(r *req) {
			r.Spec.Replication.Copies, r.Selector = 1, &metav1.LabelSelector{MatchLabels: map[string]string{"jurisdiction": "eu"}}
		}},
		{name: "selected by organization and region", want: "utr ams", wish: func(r *req) {
			r.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.OrganizationLabel: "uva",
				v1alpha1.RegionLabel: "west"}}
		}},

		{name: "too few domains", fail: true, wish: func(r *req) {
			r.Spec.Replication.Copies, r.Spec.Replication.Spread = 4, federation.SpreadOrganization
		},
			want: "4 copies are wanted, but only 3 of 5 sites can have one (utr, ein, gro): register another site, borrow " +
				"room for objects (StorageRequest), or lower " +
				"spec.replication.copies, or spread over Site; " +
				"ams: in organization uva, which has a copy at utr; lei: in organization uva, which has a copy at utr"},
		{name: "everything refused, each by its rule", fail: true, sites: testSites(func(m map[string]*Candidate) {
			m["ein"].Lost, m["gro"].Keyed = true, false
			m["utr"].Capacity, m["utr"].Promised = 10, 5
		}), wish: func(r *req) {
			r.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"jurisdiction": "nl"}}
			rules(r,
				func(s *federation.SiteRules) { s.Forbidden = []string{"ams"} })
		},
			want: "2 copies are wanted, but only 0 of 5 sites can have one (none): register another site, borrow " +
				"room for objects (StorageRequest), or lower " +
				"spec.replication.copies, or forbid fewer sites, or select more sites, " +
				"or give a site more capacity, or start a gateway at a site without one; utr: it lacks room: 1Gi more are needed, and of " +
				"its 10, 5 are promised; ams: forbidden by spec.replication.sites.forbidden; " +
				"ein: it was declared lost; gro: no gateway has registered its key yet: start one there; lei: its labels do not match " +
				"spec.replication.sites.selector (jurisdiction=nl)"},
		{name: "required sites in one domain", fail: true, wish: func(r *req) {
			r.Spec.Replication.Spread = federation.SpreadRegion
			rules(r, func(s *federation.SiteRules) { s.Required = []string{"ams", "utr"} })
		}, want: "site utr is required, and cannot have a copy: in region west, which has a copy at ams"},
		{name: "a required site without room", fail: true, sites: testSites(func(m map[string]*Candidate) { m["ams"].Capacity = 1 }),
			wish: func(r *req) {
				rules(r, func(s *federation.SiteRules) { s.Required = []string{"ams"} })
			}, want: "site ams is required, and cannot have a copy: it lacks room"},
		{name: "a forbidden site that nobody has", fail: true, wish: func(r *req) {
			rules(r, func(s *federation.SiteRules) { s.Forbidden = []string{"asm"} })
		}, want: "spec.replication.sites.forbidden: no site asm is registered; the federation has ams, ein, gro, lei, utr: correct " +
			"the name"},
		{name: "no sites at all", fail: true, sites: []Candidate{}, wish: func(*req) {},
			want: "only 0 of 0 sites can have one (none): register another site"},
		{name: "a selector that is none", fail: true, wish: func(r *req) {
			r.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
		}, want: "spec.replication.sites.selector: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Request{Near: "utr", Sites: tt.sites, PresentSize: 1 << 30}
			if r.Sites == nil {
				r.Sites = testSites(nil)
			}
			r.Spec.Size, r.Spec.Replication.Copies, r.Spec.Replication.Spread = 1<<30, 2, federation.SpreadSite
			tt.wish(&r)
			p, err := Place(r)
			if tt.fail {
				if u := (*Unplaceable)(nil); !errors.As(err, &u) || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got %v, %v\nwant %s", p.Sites, err, tt.want)
				}
				return
			}
			if got := strings.Join(p.Sites, " "); err != nil || got != tt.want {
				t.Fatalf("got %s, %v, want %s", got, err, tt.want)
			}
			if len(p.Refused)+len(p.Sites) != len(r.Sites) {
				t.Errorf("of %d sites %v are chosen and only %v explained", len(r.Sites), p.Sites, p.Refused)
			}
		})
	}
}

func TestAMessageIsBounded(t *testing.T) {
	var sites []Candidate
	for i := range 200 {
		sites = append(sites, Candidate{Name: fmt.Sprintf("s%03d", i), Keyed: true, Lost: true})
	}
	r := Request{Sites: sites}
	r.Spec.Replication.Copies = 1
	_, err := Place(r)
	if err == nil || len(err.Error()) > 4000 || !strings.Contains(err.Error(), "and 176 more") {
		t.Errorf("got %v", err)
	}
}

// benchmarkRequests are volumes and sites of a large federation, with room for all volumes.
func benchmarkRequests(volumes, sites int) []Request {
	all := make([]Candidate, sites)
	for i := range all {
		all[i] = Candidate{Name: fmt.Sprintf("site-%03d", i), Organization: fmt.Sprintf("org-%02d", i/4),
			Region: fmt.Sprintf("region-%02d", i/10), Keyed: true, Capacity: 1 << 50,
			Labels: map[string]string{"jurisdiction": []string{"nl", "de", "fr"}[i%3]}}
	}
	out := make([]Request, volumes)
	for i := range out {
		r := Request{Near: all[i%sites].Name, Sites: all}
		r.Spec.Size, r.Spec.Replication.Copies = 10<<30, 2+i%3
		r.Spec.Replication.Spread = []federation.Spread{federation.SpreadSite, federation.SpreadRegion, federation.SpreadOrganization}[i%3]
		r.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "jurisdiction", Operator: metav1.LabelSelectorOpIn, Values: []string{"nl", "de"}}}}
		out[i] = r
	}
	return out
}

func BenchmarkPlace10000x100(b *testing.B) {
	requests := benchmarkRequests(10_000, 100)
	b.ReportAllocs()
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		placed := make([][]string, len(requests))
		for i := range requests {
			p, err := Place(requests[i])
			if err != nil {
				b.Fatal(err)
			}
			placed[i] = p.Sites
			for _, s := range p.Sites { // what the next volume finds promised
				sites := requests[i].Sites
				k, _ := slices.BinarySearchFunc(sites, s, func(c Candidate, n string) int { return strings.Compare(c.Name, n) })
				sites[k].Promised += requests[i].Spec.Size
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/(1<<20), "MiB-kept")
		runtime.KeepAlive(placed)
		for i := range requests[0].Sites {
			requests[0].Sites[i].Promised = 0
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/10000-volumes")
}
