// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"testing"

	"github.com/weir-storage/weir/federation"
)

// A site has the newest data key and is not to: it has no copy, no member, and no grant. No key
// follows that a site with a copy would not get.
func TestSurplus(t *testing.T) {
	site := func(name, organization string) federation.Event {
		return federation.Event{Kind: federation.KindSite, Name: name, Site: &federation.Site{Name: name, Organization: organization,
			WrapKey: []byte("key of " + name)}}
	}
	for name, c := range map[string]struct {
		change  func(v *federation.Volume, ctl *federation.Control)
		has     []string
		without string // a site that is not registered
		surplus bool
	}{
		"all have a reason":                 {nil, []string{"ams", "fra"}, "", false},
		"a site of another without grant":   {nil, []string{"ams", "fra", "waw"}, "", true},
		"one of the owner's organization":   {nil, []string{"ams", "fra", "ein"}, "", false},
		"one that is not registered":        {nil, []string{"ams", "fra", "gro"}, "", true},
		"a site with a copy would go short": {nil, []string{"ams", "waw"}, "", false},
		"a site with a copy is away":        {nil, []string{"ams", "fra", "waw"}, "fra", false},
		"one with a grant": {func(v *federation.Volume, _ *federation.Control) {
			v.Grants = []federation.Grant{{Site: "waw", Namespace: "lab", Access: federation.ReadOnly}}
		}, []string{"ams", "fra", "waw"}, "", false},
		"one with a member that leaves": {func(_ *federation.Volume, ctl *federation.Control) {
			ctl.Members = append(ctl.Members, federation.Member{Gateway: "w", Site: "waw", Incarnation: "i"})
		}, []string{"ams", "fra", "waw"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			v := federation.Volume{UUID: "u1", Name: "data", Owner: "SURF", Sites: []string{"ams", "fra"}}
			home := federation.Member{Gateway: "a", Site: "ams", Incarnation: "i"}
			ctl := federation.Control{Volume: "u1", Epoch: 1, Home: home, Members: []federation.Member{home}}
			if c.change != nil {
				c.change(&v, &ctl)
			}
			events := []federation.Event{{Kind: federation.KindVolume, Name: "u1", Volume: &v},
				{Kind: federation.KindControl, Name: "u1", Control: &ctl}, keyringEvent("u1", c.has...)}
			for s, organization := range map[string]string{"ams": "SURF", "ein": "SURF", "fra": "DFN", "waw": "PSNC"} {
				if s != c.without {
					events = append(events, site(s, organization))
				}
			}
			surplus, keep := filled(t, events...).Surplus(v)
			if surplus != c.surplus {
				t.Errorf("surplus is %t", surplus)
			}
			if surplus && (len(keep) != 2 || string(keep["ams"]) != "key of ams" || string(keep["fra"]) != "key of fra") {
				t.Errorf("others are %v", keep)
			}
		})
	}
}
