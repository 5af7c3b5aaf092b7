// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation"
)

// TestPlaceBlind: copies at other organizations, or at sites that are named, are blind; one at
// least has the key, and comes first of those that are new.
func TestPlaceBlind(t *testing.T) {
	for _, tt := range []struct {
		name, want, blind string
		wish              func(r *federation.Replication, q *Request)
		fails             string
	}{
		{name: "keyed", want: "utr ams", wish: func(*federation.Replication, *Request) {}},
		{name: "other organizations", want: "utr ein gro", blind: "ein gro", wish: func(r *federation.Replication, q *Request) {
			r.Copies, r.Spread, r.OtherOrganizations = 3, federation.SpreadOrganization, federation.CopiesBlind
		}},
		{name: "preferred ones come after one with the key", want: "utr gro", blind: "gro", wish: func(r *federation.Replication,
			q *Request) {
			r.OtherOrganizations, r.Sites.Preferred = federation.CopiesBlind, []string{"gro", "ein"}
		}},
		{name: "a site that is named", want: "ams utr", blind: "utr", wish: func(r *federation.Replication, q *Request) {
			r.Sites.Blind = []string{"utr"}
		}},
		{name: "what is there stays, and becomes blind", want: "ams gro", blind: "gro", wish: func(r *federation.Replication, q *Request) {
			q.Present, r.OtherOrganizations = []string{"gro", "ams"}, federation.CopiesBlind
		}},
		{name: "where clients may use it no copy is blind", want: "utr ein", blind: "ein", wish: func(r *federation.Replication,
			q *Request) {
			q.Granted, r.Spread, r.Sites.Preferred = []string{"gro"}, federation.SpreadOrganization, []string{"gro"}
			r.OtherOrganizations = federation.CopiesBlind
		}},
		{name: "a copy goes where it may be blind", want: "ams ein", blind: "ein", wish: func(r *federation.Replication, q *Request) {
			q.Present, q.Granted, r.Spread = []string{"ams", "gro"}, []string{"gro"}, federation.SpreadOrganization
			r.OtherOrganizations = federation.CopiesBlind
		}},
		{name: "a site without a public key, for a blind copy", want: "utr gro", blind: "gro", wish: func(r *federation.Replication,
			q *Request) {
			q.Sites = testSites(func(m map[string]*Candidate) { m["gro"].Keyed, m["ein"].Lost = false, true })
			r.OtherOrganizations, r.Spread = federation.CopiesBlind, federation.SpreadOrganization
		}},
		{name: "all would be blind", fails: "all copies would be blind", wish: func(r *federation.Replication, q *Request) {
			r.Sites.Required, r.OtherOrganizations = []string{"gro", "ein"}, federation.CopiesBlind
		}},
		{name: "the present ones would all be blind: one gives way", want: "utr gro", blind: "gro",
			wish: func(r *federation.Replication, q *Request) {
				q.Present, q.Home, r.OtherOrganizations = []string{"ein", "gro"}, "gro", federation.CopiesBlind
			}},
	} {
		r := Request{Owner: "uva", Near: "utr", Sites: testSites(nil), PresentSize: 1 << 30}
		r.Spec.Size, r.Spec.Replication.Copies, r.Spec.Replication.Spread = 1<<30, 2, federation.SpreadSite
		tt.wish(&r.Spec.Replication, &r)
		p, err := Place(r)
		switch {
		case tt.fails != "":
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%s: %v, %v", tt.name, p, err)
			}
		case err != nil || strings.Join(p.Sites, " ") != tt.want || strings.Join(p.Blind, " ") != tt.blind:
			t.Errorf("%s: %v, blind %v, %v; want %s, blind %s", tt.name, p.Sites, p.Blind, err, tt.want, tt.blind)
		}
	}
}

// TestNoGrantForBlindSites: what is granted to a site with a blind copy is left out, and told.
func TestNoGrantForBlindSites(t *testing.T) {
	all := []federation.Grant{{Site: "ams", Namespace: "x"}, {Site: "gro", Namespace: "x"}}
	if out, wrong := Seeing(all, nil); len(out) != 2 || wrong != nil {
		t.Errorf("%v, %v", out, wrong)
	}
	out, wrong := Seeing(all, []string{"gro"})
	if !slices.Equal(out, all[:1]) || wrong == nil || !strings.Contains(wrong.Message, "gro") {
		t.Errorf("%v, %v", out, wrong)
	}
}
