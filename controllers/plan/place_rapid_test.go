// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/weir-storage/weir/federation"
)

// drawRequest draws a small request in which rules meet each other often.
func drawRequest(t *rapid.T) Request {
	names := []string{"a", "b", "c", "d", "e", "f"}[:rapid.IntRange(1, 6).Draw(t, "sites")]
	var r Request
	for _, n := range names {
		r.Sites = append(r.Sites, Candidate{
			Name:         n,
			Organization: rapid.SampledFrom([]string{"o1", "o2", "o3"}).Draw(t, "organization"),
			Region:       rapid.SampledFrom([]string{"", "r1", "r2"}).Draw(t, "region"),
			Labels:       map[string]string{"j": rapid.SampledFrom([]string{"x", "x", "x", "y"}).Draw(t, "label")},
			Pools: []federation.Pool{{Name: "main"}, {Name: "other", Labels: map[string]string{
				"tier": rapid.SampledFrom([]string{"nvme", "nvme", "hdd"}).Draw(t, "tier")}}},
			Keyed:    rapid.IntRange(0, 9).Draw(t, "keyed") > 0,
			Lost:     rapid.IntRange(0, 9).Draw(t, "lost") == 0,
			Capacity: federation.Bytes(rapid.SampledFrom([]int{0, 0, 10}).Draw(t, "capacity")),
			Promised: federation.Bytes(rapid.IntRange(0, 12).Draw(t, "promised")),
		})
	}
	some := func(label string, most int) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, min(most, len(names)), rapid.ID).Draw(t, label)
	}
	r.Spec.Size = federation.Bytes(rapid.IntRange(1, 8).Draw(t, "size"))
	r.PresentSize = federation.Bytes(rapid.IntRange(1, 8).Draw(t, "presentSize"))
	r.Spec.Replication = federation.Replication{
		Copies: rapid.IntRange(1, 4).Draw(t, "copies"),
		Spread: rapid.SampledFrom([]federation.Spread{federation.SpreadSite, federation.SpreadRegion,
			federation.SpreadOrganization}).Draw(t, "spread"),
		Sites: federation.SiteRules{Required: some("required", 2), Preferred: some("preferred", 3), Forbidden: some("forbidden", 2)},
	}
	r.Spec.Home.PreferredSites = some("home preferred", 2)
	r.Present, r.Needed = some("present", 4), some("needed", 1)
	if len(r.Present) > 0 {
		r.Home = rapid.SampledFrom(r.Present).Draw(t, "home")
	}
	if rapid.Bool().Draw(t, "selected") {
		r.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"j": "x"}}
	}
	if rapid.Bool().Draw(t, "pool") {
		r.Spec.Cache.Pool = map[string]string{"tier": "nvme"}
	}
	return r
}

// satisfies reports whether a choice of sites keeps the hard rules. It shares no line with Place.
func satisfies(r Request, choice []Candidate) bool {
	if len(choice) != r.Spec.Replication.Copies {
		return false
	}
	has := map[string]bool{}
	domains := map[string]bool{}
	for _, c := range choice {
		has[c.Name] = true
		present := slices.Contains(r.Present, c.Name)
		d := "s" + c.Name
		switch {
		case r.Spec.Replication.Spread == federation.SpreadOrganization:
			d = "o" + c.Organization
		case r.Spec.Replication.Spread == federation.SpreadRegion && c.Region != "":
			d = "r" + c.Region
		}
		grows := r.Spec.Size
		if present {
			grows = r.Spec.Size - r.PresentSize
		}
		if domains[d] || slices.Contains(r.Spec.Replication.Sites.Forbidden, c.Name) ||
			r.Selector != nil && c.Labels["j"] != "x" ||
			r.Spec.Cache.Pool != nil && c.Pools[1].Labels["tier"] != "nvme" ||
			!present && !c.Keyed ||
			c.Lost && !(present && slices.Contains(r.Needed, c.Name)) ||
			c.Capacity != 0 && grows > 0 && c.Promised+grows > c.Capacity {
			return false
		}
		domains[d] = true
	}
	for _, n := range r.Spec.Replication.Sites.Required {
		if !has[n] {
			return false
		}
	}
	return true
}

// most is how many present sites the best choice keeps; -1 when there is no choice.
func most(r Request) int {
	best := -1
	for set := range 1 << len(r.Sites) {
		var choice []Candidate
		kept := 0
		for i, c := range r.Sites {
			if set&(1<<i) == 0 {
				continue
			}
			choice = append(choice, c)
			if slices.Contains(r.Present, c.Name) {
				kept++
			}
		}
		if satisfies(r, choice) {
			best = max(best, kept)
		}
	}
	return best
}

func choice(r Request, names []string) []Candidate {
	var out []Candidate
	for _, c := range r.Sites {
		if slices.Contains(names, c.Name) {
			out = append(out, c)
		}
	}
	return out
}

func TestPlaceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRequest(t)
		p, err := Place(r)
		best := most(r)
		if err != nil {
			if best >= 0 {
				t.Fatalf("refused (%v), and there is a choice", err)
			}
			return
		}
		if !satisfies(r, choice(r, p.Sites)) || len(p.Sites) != r.Spec.Replication.Copies {
			t.Fatalf("%v breaks a hard rule", p.Sites)
		}
		kept := 0
		for _, s := range p.Sites {
			if slices.Contains(r.Present, s) {
				kept++
			}
		}
		if kept != best {
			t.Fatalf("%v keeps %d of the present sites %v; %d could stay", p.Sites, kept, r.Present, best)
		}
		if again, err := Place(r); err != nil || !slices.Equal(again.Sites, p.Sites) {
			t.Fatalf("%v, and for the same request %v, %v", p.Sites, again.Sites, err)
		}

		// Copies stay where they are, also when a site joins. The volume's own copies count as
		// promised.
		settled := r
		settled.Present, settled.PresentSize, settled.Sites = p.Sites, r.Spec.Size, slices.Clone(r.Sites)
		for i := range settled.Sites {
			if slices.Contains(p.Sites, settled.Sites[i].Name) {
				settled.Sites[i].Promised += r.Spec.Size
			}
		}
		settled.Needed = append(slices.Clone(r.Needed), p.Sites...)
		settled.Sites = append(settled.Sites,
			Candidate{Name: "z", Organization: "new", Region: "new", Keyed: true, Labels: map[string]string{"j": "x"}})
		if q, err := Place(settled); err != nil || !slices.Equal(q.Sites, p.Sites) {
			t.Fatalf("%v moves to %v (%v) when a site joins", p.Sites, q.Sites, err)
		}

		// One copy more only adds.
		settled.Spec.Replication.Copies++
		if q, err := Place(settled); err == nil && !slices.Equal(q.Sites[:len(p.Sites)], p.Sites) {
			t.Fatalf("with one copy more, %v becomes %v", p.Sites, q.Sites)
		}
	})
}

// The same check over all requests of a kind in which spread and capacity leave few choices.
func TestPlaceNeverRefusesWhatIsPossible(t *testing.T) {
	for bits := range 1 << 12 {
		r := Request{}
		r.Spec.Size, r.Spec.Replication.Spread = 1, federation.SpreadRegion
		r.Spec.Replication.Copies = 1 + bits>>10&3
		for i := range 5 {
			r.Sites = append(r.Sites, Candidate{Name: fmt.Sprint("s", i), Keyed: true, Region: fmt.Sprint("r", i/2),
				Capacity: 1, Promised: federation.Bytes(bits >> i & 1)})
		}
		if bits>>5&7 < 5 {
			r.Spec.Replication.Sites.Required = []string{fmt.Sprint("s", bits>>5&7)}
		}
		if n := bits >> 8 & 3; n < 2 {
			r.Spec.Replication.Sites.Preferred = []string{fmt.Sprint("s", 2*n), fmt.Sprint("s", 2*n+1)}
		}
		p, err := Place(r)
		if (err == nil) != (most(r) >= 0) {
			t.Fatalf("%+v: %v, %v; a choice exists: %v", r, p.Sites, err, most(r) >= 0)
		}
	}
}
