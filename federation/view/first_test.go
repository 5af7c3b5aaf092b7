// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"testing"

	"github.com/weir-storage/weir/federation"
)

// Each organization has a first gateway of its own; and who may have something of a volume is who
// it concerns, and nobody else.
func TestFirstAndMayHave(t *testing.T) {
	events := []federation.Event{}
	for site, organization := range map[string]string{"a1": "A", "a2": "A", "b1": "B", "c1": "C", "d1": "D", "e1": "E", "f1": "F"} {
		g := "g" + site
		events = append(events,
			federation.Event{Kind: federation.KindSite, Name: site, Revision: 1, Site: &federation.Site{Name: site,
				Organization: organization, Gateways: []federation.Gateway{{Name: g, Incarnation: "i"}}}},
			federation.Event{Kind: federation.KindAlive, Name: g, Revision: 1,
				Alive: &federation.Alive{Gateway: g, Site: site, Incarnation: "i"}})
	}
	is := federation.Volume{UUID: "v", Name: "v", Owner: "A", Sites: []string{"b1"}, Former: []string{"c1"},
		Grants: []federation.Grant{{Site: "d1", Namespace: "lab", Access: federation.ReadOnly}}}
	events = append(events, federation.Event{Kind: federation.KindVolume, Name: "v", Revision: 1, Volume: &is},
		federation.Event{Kind: federation.KindControl, Name: "v", Revision: 1, Control: &federation.Control{Volume: "v", Epoch: 1,
			Home: federation.Member{Gateway: "ge1", Site: "e1"}, Members: []federation.Member{{Gateway: "ge1", Site: "e1"}}}}, synced(2))
	v := filled(t, events...)
	first := map[string]bool{"ga1": true, "ga2": false, "gb1": true, "gc1": true, "nobody": false}
	for g, want := range first {
		equal(t, g+" is first", v.First(g), want)
	}
	for site, want := range map[string]bool{"a1": true, "a2": true, "b1": true, "c1": true, "d1": true, "e1": true, "f1": false} {
		equal(t, "gateway of "+site+" may have something", v.MayHave(is, federation.Member{Gateway: "g" + site, Site: site}), want)
	}
}
