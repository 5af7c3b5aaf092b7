// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation/users"
)

// TestClientsOfGrants: what a grant says of clients is in the record by site. One that says what
// cannot be is told, changes nothing of that, and holds up no grant that is taken back; and what
// the volume says of clients counts although the rest of the wish cannot be fulfilled.
func TestClientsOfGrants(t *testing.T) {
	f, ams, utr, g, uuid := two(t, granted("utr", "app"))
	says := func(c *v1alpha1.Clients) {
		t.Helper()
		edit(ams, g, func(g *v1alpha1.GeoVolume) {
			granted("utr", "app")(&g.Spec)
			g.Spec.Grants[0].Clients = c
		})
		settleAll(ams, utr)
	}
	has := func(grants int, at map[string]users.Policy) {
		t.Helper()
		if v := f.record(uuid); len(v.Grants) != grants || !reflect.DeepEqual(v.Clients, at) {
			t.Errorf("the record has grants %v and clients %v, want %d and %v", v.Grants, v.Clients, grants, at)
		}
	}
	root := map[string]users.Policy{"utr": {Squash: users.SquashRoot}}
	says(&v1alpha1.Clients{Squash: v1alpha1.SquashRoot})
	has(1, root)
	says(&v1alpha1.Clients{UIDs: []v1alpha1.IDRange{{Client: 1, Volume: 10, Count: new(int32(5))}, {Client: 3, Volume: 20}}})
	has(1, root)
	ams.get(g)
	ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonInvalid, "has users of uids[0] too")
	edit(ams, g, func(g *v1alpha1.GeoVolume) {
		g.Spec.Grants[0].Site = "elsewhere"
		g.Spec.Clients = &v1alpha1.Clients{Mask: "077"}
	})
	settleAll(ams, utr)
	if v := f.record(uuid); len(v.Grants) != 0 || v.Spec.Clients.Mask != "077" { // utr's is taken back, and elsewhere gets none
		t.Errorf("the record has grants %v and %+v", v.Grants, v.Spec.Clients)
	}
	says(nil)
	has(1, nil)
	edit(ams, g, func(g *v1alpha1.GeoVolume) {
		g.Spec.Policy = "none such"
		g.Spec.Clients = &v1alpha1.Clients{Mask: "007"}
	})
	settleAll(ams, utr)
	if v := f.record(uuid); v.Spec.Clients.Mask != "077" { // what the policy says is not known
		t.Errorf("the record has %+v", v.Spec.Clients)
	}
}
