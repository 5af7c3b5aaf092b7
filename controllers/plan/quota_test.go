// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

func where(t interface{ Fatal(...any) }, w v1alpha1.QuotaWhere) Where {
	out, err := NewWhere(w, "uva")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPlaceQuota: a site or a lent store for which a quota is used up is like one without room.
// What is there stays, and growth needs quota.
func TestPlaceQuota(t *testing.T) {
	type in = v1alpha1.QuotaWhere
	quota := func(amount, used, has federation.Bytes, w in) Quota {
		return Quota{Name: "q", Who: "namespace lab", Where: where(t, w), Amount: amount << 30, Used: used << 30, Has: has << 30}
	}
	at := func(sites ...v1alpha1.SiteName) in { return in{Sites: sites} }
	some := func(names ...string) []Candidate {
		return slices.DeleteFunc(testSites(nil), func(c Candidate) bool { return !slices.Contains(names, c.Name) })
	}
	rooms := []Room{{Agreement: "x1", Site: "ein", Organization: "tue", Region: "south", Amount: 100 << 30},
		{Agreement: "x2", Site: "gro", Organization: "rug", Region: "north", Amount: 100 << 30}}
	byAgreement := func(ids ...string) []Candidate {
		out := some("ein", "utr")
		out[0].Closed = true
		for _, id := range ids {
			out[0].Rooms = append(out[0].Rooms, Room{Agreement: id, Site: "ein", Organization: "tue", Amount: 100 << 30})
		}
		return out
	}
	for _, tt := range []struct {
		name   string
		sites  []Candidate
		quotas []Quota
		wish   func(*Request)
		want   string // sites, stores and agreements, or what the message contains
		fail   bool
	}{
		{name: "it fits", want: "utr ams", quotas: []Quota{quota(10, 8, 0, in{})}},
		{name: "another site", want: "utr ein", quotas: []Quota{quota(10, 10, 0, at("ams", "lei"))}},
		{name: "one copy of two", want: "utr ein", quotas: []Quota{quota(10, 9, 0, at("ams", "lei", "utr"))}},
		{name: "both copies count", fail: true, quotas: []Quota{quota(10, 9, 0, in{})},
			want: "ams: PlacementQuota q is used up: of the 10Gi that namespace lab may place there, other volumes have 9Gi, and this " +
				"one would have 2Gi"},
		{name: "what to do", fail: true, quotas: []Quota{quota(10, 9, 0, in{})},
			want: "or have an administrator raise spec.amount of the PlacementQuota, or delete volumes that it counts"},
		{name: "nothing", fail: true, quotas: []Quota{quota(0, 0, 0, in{})},
			want: "utr: PlacementQuota q lets namespace lab place nothing there"},
		{name: "nothing at others", want: "utr ams", quotas: []Quota{quota(0, 0, 0, in{Whose: v1alpha1.RoomOthers})},
			wish: func(r *Request) { r.Spec.Replication.Sites.Preferred = []string{"gro"} }},
		{name: "nothing of one's own", want: "ein gro", quotas: []Quota{quota(0, 0, 0, in{Whose: v1alpha1.RoomOwn})}},
		{name: "each quota counts", want: "gro lei", quotas: []Quota{quota(10, 1, 0, in{}), quota(0, 0, 0, at("ein")),
			quota(0, 0, 0, at("ams", "utr"))}, wish: func(r *Request) { r.Spec.Replication.Sites.Preferred = []string{"gro"} }},
		{name: "a required site", fail: true, quotas: []Quota{quota(0, 0, 0, at("gro"))},
			wish: func(r *Request) { r.Spec.Replication.Sites.Required = []string{"gro"} },
			want: "site gro is required, and cannot have a copy: PlacementQuota q lets namespace lab place nothing there"},
		{name: "a required site takes what another has", want: "utr gro", quotas: []Quota{quota(1, 0, 1, at("gro", "ein"))},
			wish: func(r *Request) {
				r.Present, r.PresentSize, r.Spec.Replication.Sites.Required = []string{"ein"}, 1<<30, []string{"gro"}
			}},
		{name: "what is there stays", want: "ein gro", quotas: []Quota{quota(0, 7, 2, in{})},
			wish: func(r *Request) { r.Present, r.PresentSize = []string{"ein", "gro"}, 1<<30 }},
		{name: "one more where it is used up", fail: true, quotas: []Quota{quota(2, 0, 2, in{})}, want: "PlacementQuota q is used up",
			wish: func(r *Request) {
				r.Present, r.PresentSize, r.Spec.Replication.Copies = []string{"ein", "gro"}, 1<<30, 3
			}},
		{name: "it grows", want: "ein gro", quotas: []Quota{quota(6, 2, 2, in{})},
			wish: func(r *Request) { r.Present, r.PresentSize, r.Spec.Size = []string{"ein", "gro"}, 1<<30, 2<<30 }},
		{name: "it grows too much", fail: true, quotas: []Quota{quota(6, 3, 2, in{})}, want: "and this one would have 4Gi",
			wish: func(r *Request) { r.Present, r.PresentSize, r.Spec.Size = []string{"ein", "gro"}, 1<<30, 2<<30 }},
		{name: "it grows and moves", want: "ein utr", quotas: []Quota{quota(2, 1, 1, at("gro"))},
			wish: func(r *Request) { r.Present, r.PresentSize, r.Spec.Size = []string{"ein", "gro"}, 1<<30, 2<<30 }},
		{name: "the best site uses up what another needs", want: "lei ein", sites: some("ein", "lei", "utr"),
			quotas: []Quota{quota(1, 0, 0, at("utr", "ein"))},
			wish:   func(r *Request) { r.Spec.Replication.Spread = federation.SpreadOrganization }},
		{name: "a store instead", want: "utr; x1", sites: some("utr", "ams"), quotas: []Quota{quota(0, 0, 0, at("ams"))},
			wish: func(r *Request) { r.Rooms = rooms }},
		{name: "another store", want: "utr ams; x2", quotas: []Quota{quota(0, 0, 0, in{Agreements: []v1alpha1.AgreementName{"x1"}})},
			wish: func(r *Request) { r.Rooms, r.Spec.Replication.Stores = rooms, 1 }},
		{name: "stores count together", fail: true, quotas: []Quota{quota(1, 0, 0, in{Kind: v1alpha1.PlacedStore})},
			want: "store of agreement x2 at gro: PlacementQuota q is used up",
			wish: func(r *Request) { r.Rooms, r.Spec.Replication.Stores = rooms, 2 }},
		{name: "a store stays", want: "utr ams; x1", quotas: []Quota{quota(0, 5, 1, in{Kind: v1alpha1.PlacedStore})},
			wish: func(r *Request) {
				r.Rooms, r.Spec.Replication.Stores, r.PresentStores, r.PresentSize = rooms, 1, []string{"x1"}, 1<<30
			}},
		{name: "a copy by agreement", fail: true, sites: byAgreement("x1"), want: "ein: PlacementQuota q lets namespace lab",
			quotas: []Quota{quota(0, 0, 0, in{Agreements: []v1alpha1.AgreementName{"x1"}})}},
		{name: "a copy by another agreement", want: "utr ein; ; x2", sites: byAgreement("x1", "x2"),
			quotas: []Quota{quota(0, 0, 0, in{Agreements: []v1alpha1.AgreementName{"x1"}})}},
		{name: "the agreement that it uses up", want: "utr ein; ; x1", sites: byAgreement("x1", "x2"),
			quotas: []Quota{quota(1, 0, 0, in{Agreements: []v1alpha1.AgreementName{"x1"}})}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Request{Owner: "uva", Near: "utr", Sites: tt.sites, Quotas: tt.quotas}
			if r.Sites == nil {
				r.Sites = testSites(nil)
			}
			r.Spec.Size, r.Spec.Replication.Copies, r.Spec.Replication.Spread = 1<<30, 2, federation.SpreadSite
			if tt.wish != nil {
				tt.wish(&r)
			}
			p, err := Place(r)
			got := strings.Join([]string{strings.Join(p.Sites, " "), strings.Join(p.Stores, " "), strings.Join(p.Agreed, " ")}, "; ")
			switch got = strings.TrimRight(got, "; "); {
			case tt.fail && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("placed at %q, %v; want %q", got, err, tt.want)
			case !tt.fail && (err != nil || got != tt.want):
				t.Errorf("placed at %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// TestQuotaWhere: a spot counts if it is all that a quota says.
func TestQuotaWhere(t *testing.T) {
	type in = v1alpha1.QuotaWhere
	spots := []Spot{
		{Kind: v1alpha1.PlacedCopy, Site: "ams", Organization: "uva", Region: "west", Labels: map[string]string{"tier": "nvme"}},
		{Kind: v1alpha1.PlacedCopy, Site: "ein", Organization: "tue", Region: "south", Labels: map[string]string{"tier": "hdd"}},
		{Kind: v1alpha1.PlacedCopy, Site: "gro", Organization: "rug", Agreement: "x1"},
		{Kind: v1alpha1.PlacedStore, Site: "ein", Organization: "tue", Region: "south", Agreement: "x2"},
	}
	labels := func(k, v string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
	}
	for name, tt := range map[string]struct {
		in   in
		want string // by index
	}{
		"everywhere":          {in{}, "0123"},
		"sites":               {in{Sites: []v1alpha1.SiteName{"ams", "ein"}}, "013"},
		"selector":            {in{Selector: labels("tier", "nvme")}, "0"},
		"of an organization":  {in{Selector: labels(v1alpha1.OrganizationLabel, "tue")}, "13"},
		"of a region":         {in{Selector: labels(v1alpha1.RegionLabel, "south")}, "13"},
		"organizations":       {in{Organizations: []v1alpha1.OrganizationName{"rug", "uva"}}, "02"},
		"agreements":          {in{Agreements: []v1alpha1.AgreementName{"x1", "x2"}}, "23"},
		"own":                 {in{Whose: v1alpha1.RoomOwn}, "0"},
		"others":              {in{Whose: v1alpha1.RoomOthers}, "123"},
		"copies":              {in{Kind: v1alpha1.PlacedCopy}, "012"},
		"stores":              {in{Kind: v1alpha1.PlacedStore}, "3"},
		"all that is said":    {in{Sites: []v1alpha1.SiteName{"ein"}, Kind: v1alpha1.PlacedCopy}, "1"},
		"nothing is all that": {in{Sites: []v1alpha1.SiteName{"ams"}, Whose: v1alpha1.RoomOthers}, ""},
	} {
		w, got := where(t, tt.in), ""
		for i, s := range spots {
			if w.Has(s) {
				got += string(rune('0' + i))
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q are selected, want %q", name, got, tt.want)
		}
	}
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}
	w, err := NewWhere(in{Selector: bad}, "uva")
	if err == nil || !strings.Contains(err.Error(), "spec.where.selector: ") || !w.Has(spots[0]) {
		t.Errorf("a selector that cannot be read: %v", err)
	}
}

// TestQuotaProperties: with one quota a volume is placed whenever there is a choice, and no quota
// is exceeded more than it is. A volume that stays as it is stays where it is.
func TestQuotaProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRequest(t)
		var names []v1alpha1.SiteName
		for _, c := range r.Sites {
			names = append(names, v1alpha1.SiteName(c.Name))
		}
		one := rapid.Bool().Draw(t, "one")
		if one {
			r.Present, r.Needed, r.Home = nil, nil, ""
		}
		count := map[bool]int{true: 1, false: 3}[one]
		total := func(q Quota, sites []string, size federation.Bytes) (sum federation.Bytes) {
			for _, s := range sites {
				if slices.Contains(q.Where.Sites, v1alpha1.SiteName(s)) {
					sum += size
				}
			}
			return sum
		}
		for range count {
			some := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, len(names), rapid.ID).Draw(t, "quota at")
			q := Quota{Name: "q", Who: "all", Where: where(t, v1alpha1.QuotaWhere{Sites: some}),
				Amount: federation.Bytes(rapid.IntRange(0, 24).Draw(t, "amount")),
				Used:   federation.Bytes(rapid.IntRange(0, 8).Draw(t, "used"))}
			q.Has = total(q, r.Present, r.PresentSize)
			r.Quotas = append(r.Quotas, q)
		}
		p, err := Place(r)
		for _, q := range r.Quotas {
			if is := total(q, p.Sites, r.Spec.Size); err == nil && is > max(q.Amount-q.Used, q.Has) {
				t.Fatalf("%v has %v there, where %v are free and it had %v", p.Sites, is, q.Amount-q.Used, q.Has)
			}
		}
		without := r
		without.Quotas = nil
		free, freely := Place(without)
		if r.Spec.Size == r.PresentSize && freely == nil && slices.Equal(sorted(free.Sites), sorted(r.Present)) &&
			(err != nil || !slices.Equal(free.Sites, p.Sites)) {
			t.Fatalf("it stays without quotas, and with them it is at %v: %v", p.Sites, err)
		}
		if !one || err == nil {
			return
		}
		for set := range 1 << len(r.Sites) {
			var c []Candidate
			for i := range r.Sites {
				if set&(1<<i) != 0 {
					c = append(c, r.Sites[i])
				}
			}
			var at []string
			for _, x := range c {
				at = append(at, x.Name)
			}
			if q := r.Quotas[0]; satisfies(r, c) && total(q, at, r.Spec.Size) <= q.Amount-q.Used {
				t.Fatalf("refused (%v), and there is %v", err, at)
			}
		}
	})
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}
