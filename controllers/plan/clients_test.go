// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"reflect"
	"strings"
	"testing"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/users"
)

// TestGrantsSayWhoClientsAre: what grants say of clients is in the record by site; what a person
// said of sites without a grant stays; a grant that says nothing any more takes its site's away.
func TestGrantsSayWhoClientsAre(t *testing.T) {
	root := &v1alpha1.Clients{Squash: v1alpha1.SquashRoot, AnonymousGID: new(int32(5))}
	list := []v1alpha1.Grant{{Site: "b", Namespace: "x", Access: v1alpha1.ReadWrite, Clients: root},
		{Site: "b", Namespace: "y", Access: v1alpha1.ReadOnly, Clients: root}, {Site: "c", Namespace: "x", Access: v1alpha1.ReadWrite}}
	old := federation.Volume{Clients: map[string]users.Policy{"c": {Mask: "077"}, "d": {Mask: "007"}, "e": {Mask: "070"}},
		Grants: []federation.Grant{{Site: "e", Namespace: "x"}}} // which is taken back
	grants, at, wrong := Grants(list, old)
	want := map[string]users.Policy{"b": {Squash: users.SquashRoot, AnonymousGID: 5}, "d": {Mask: "007"}}
	if wrong != nil || len(grants) != 3 || !reflect.DeepEqual(at, want) {
		t.Errorf("%v, %v; want %v", grants, at, want)
	}
	if got := DescribeGrants(grants, at); !reflect.DeepEqual(got, list) {
		t.Errorf("described: %+v, want %+v", got, list)
	}
	if _, at, _ := Grants([]v1alpha1.Grant{{Site: "b"}},
		federation.Volume{Clients: map[string]users.Policy{"b": {Mask: "077"}}}); at != nil {
		t.Errorf("a grant that says nothing leaves %v", at)
	}
	if grants, at, _ := Grants(nil, federation.Volume{}); grants != nil || at != nil {
		t.Errorf("no grants are %v, %v", grants, at)
	}
}

// TestImpossibleClients: a site whose grant says what cannot be of its clients is granted nothing
// more than before, and what was said of it stays; other sites are not held up.
func TestImpossibleClients(t *testing.T) {
	never := &v1alpha1.Clients{UIDs: []v1alpha1.IDRange{{Client: 0, Volume: 60000, Count: new(int32(10000))}}}
	root := &v1alpha1.Clients{Squash: v1alpha1.SquashRoot}
	old := federation.Volume{Clients: map[string]users.Policy{"b": {Mask: "077"}, "c": {Mask: "007"}},
		Grants: []federation.Grant{{Site: "b", Namespace: "x", Access: federation.ReadOnly},
			{Site: "c", Namespace: "x", Access: federation.ReadWrite}}}
	grants, at, wrong := Grants([]v1alpha1.Grant{{Site: "b", Namespace: "x", Access: v1alpha1.ReadWrite, Clients: never},
		{Site: "b", Namespace: "new", Access: v1alpha1.ReadOnly, Clients: never}, {Site: "d", Namespace: "x", Clients: never},
		{Site: "e", Namespace: "x", Access: v1alpha1.ReadWrite, Clients: root}}, old)
	if want := []federation.Grant{{Site: "b", Namespace: "x", Access: federation.ReadOnly},
		{Site: "e", Namespace: "x", Access: federation.ReadWrite}}; !reflect.DeepEqual(grants, want) {
		t.Errorf("grants %v, want %v", grants, want)
	}
	if want := map[string]users.Policy{"b": {Mask: "077"}, "e": {Squash: users.SquashRoot}}; !reflect.DeepEqual(at, want) {
		t.Errorf("clients %v, want %v", at, want)
	}
	if wrong == nil || !strings.Contains(wrong.Message, "spec.grants[0].clients.uids[0].volume") {
		t.Errorf("it says %v", wrong)
	}
}
