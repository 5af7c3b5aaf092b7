// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

var (
	testSelf = Self{Organization: "uva", Site: "ams", Cluster: "uid-ams"}
	testTime = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
)

func volumeOf(change func(*federation.Volume)) federation.Volume {
	v := federation.Volume{UUID: "u", Name: "ns.data", Owner: "uva", OwnerSite: "utr", OwnerCluster: "uid-utr", Generation: 3}
	if change != nil {
		change(&v)
	}
	return v
}

func own(v *federation.Volume) { v.OwnerSite, v.OwnerCluster = "ams", "uid-ams" }

func grant(site, namespace string, access federation.Access) func(*federation.Volume) {
	return func(v *federation.Volume) {
		v.Grants = append(v.Grants, federation.Grant{Site: site, Namespace: namespace, Access: access})
	}
}

func TestAdmit(t *testing.T) {
	for _, tt := range []struct {
		name      string
		volume    func(*federation.Volume)
		namespace string
		access    v1alpha1.Access
		reason    string // "" is admitted
		says      string
	}{
		{"nothing is granted by itself", nil, "ns", v1alpha1.ReadWrite, v1alpha1.ReasonNotGranted,
			"its owner site utr has to add {site: ams, namespace: ns} to spec.grants"},
		{"granted", grant("ams", "ns", federation.ReadWrite), "ns", v1alpha1.ReadWrite, "", ""},
		{"granted to another site", grant("gro", "ns", federation.ReadWrite), "ns", v1alpha1.ReadWrite, v1alpha1.ReasonNotGranted, ""},
		{"granted to another namespace", grant("ams", "other", federation.ReadWrite), "ns", v1alpha1.ReadWrite, v1alpha1.ReasonNotGranted,
			""},
		{"read-only is less", grant("ams", "ns", federation.ReadOnly), "ns", v1alpha1.ReadWrite, v1alpha1.ReasonNotGranted,
			"access: ReadOnly"},
		{"read-only is enough", grant("ams", "ns", federation.ReadOnly), "ns", v1alpha1.ReadOnly, "", ""},
		{"the namespace that made it", own, "ns", v1alpha1.ReadWrite, "", ""},
		{"another namespace of the owner", own, "n", v1alpha1.ReadWrite, v1alpha1.ReasonNotGranted, "GeoVolumeContent u"},
		{"another cluster that has the owner's site", func(v *federation.Volume) { v.OwnerSite, v.OwnerCluster = "ams", "uid-other" }, "ns",
			v1alpha1.ReadWrite, v1alpha1.ReasonNotGranted, ""},
		{"a name without a namespace", func(v *federation.Volume) { own(v); v.Name = "ns" }, "ns", v1alpha1.ReadWrite,
			v1alpha1.ReasonNotGranted, ""},
		{"of the command line", func(v *federation.Volume) { v.OwnerSite, v.OwnerCluster = "", "" }, "ns", v1alpha1.ReadWrite,
			v1alpha1.ReasonNotGranted, "organization uva"},
		{"closing", func(v *federation.Volume) { own(v); v.Closing = true }, "ns", v1alpha1.ReadWrite, v1alpha1.ReasonDeleting,
			"no new import begins"},
		{"deleted", func(v *federation.Volume) { own(v); v.Closing, v.Deleted, v.DeletedAt = true, true, testTime }, "ns",
			v1alpha1.ReadWrite, v1alpha1.ReasonDeleted, "2026-05-01T12:00:00Z"},
	} {
		got := Admit(volumeOf(tt.volume), testSelf, tt.namespace, tt.access)
		if (got == nil) != (tt.reason == "") || got != nil && (got.Reason != tt.reason || !strings.Contains(got.Message, tt.says)) {
			t.Errorf("%s: got %+v, want %s with %q", tt.name, got, tt.reason, tt.says)
		}
	}
}

func TestDispose(t *testing.T) {
	ours, theirs := volumeOf(own), volumeOf(nil)
	deleted := ours
	deleted.Deleted = true
	for _, tt := range []struct {
		name          string
		v             *federation.Volume
		reclaim       v1alpha1.ReclaimPolicy
		known, forget bool
		want          Disposal
	}{
		{"retained", &ours, v1alpha1.Retain, true, false, Keep},
		{"deleted", &ours, v1alpha1.Delete, true, false, Trash},
		{"of another", &theirs, v1alpha1.Delete, true, false, LetGo},
		{"in the trash already", &deleted, v1alpha1.Delete, true, false, LetGo},
		{"never made", nil, v1alpha1.Delete, false, false, LetGo},
		{"forgotten by the registry", nil, v1alpha1.Delete, true, false, Undecided},
		{"to be forgotten", nil, v1alpha1.Delete, true, true, LetGo},
	} {
		if got := Dispose(tt.v, testSelf, tt.reclaim, tt.known, tt.forget); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestNamed(t *testing.T) {
	claims := []federation.Claim{{Site: "ams", Namespace: "ns", Name: "x"}}
	for _, tt := range []struct {
		change func(*federation.Volume)
		claims []federation.Claim
		says   string
	}{
		{own, nil, "was kept when its claim was deleted (reclaimPolicy: Retain), and no second one is made: to use it again, delete " +
			"this GeoVolume and make one with spec.import.volume: ns.data"},
		{own, claims, "it is volume u of site ams, and no second one is made"},
		{nil, nil, "it is volume u of site utr, and no second one is made: choose another name; or if you mean that volume, have it " +
			"granted there"},
		{func(v *federation.Volume) { v.Deleted, v.DeletedAt = true, testTime }, nil,
			"is in the trash until it is purged, after"},
	} {
		got := Named(volumeOf(tt.change), testSelf, tt.claims)
		if got.Reason != v1alpha1.ReasonNameTaken || !strings.Contains(got.Message, tt.says) {
			t.Errorf("got %+v, want %q", got, tt.says)
		}
	}
}

func TestInUse(t *testing.T) {
	if InUse("ns.data", nil) != nil {
		t.Error("a volume that nobody claims is in use")
	}
	var many []federation.Claim
	for i := range 30 {
		many = append(many, federation.Claim{Site: "utr", Namespace: "ns", Name: fmt.Sprint("c", i)})
	}
	got := InUse("ns.data", many)
	if got.Reason != v1alpha1.ReasonInUse || !strings.Contains(got.Message, "used by utr/ns/c0, utr/ns/c1") ||
		!strings.Contains(got.Message, "and 6 more") {
		t.Errorf("got %+v", got)
	}
}

// People look for the words of a refusal: docs/kubernetes/troubleshooting.md has them as they are.
func TestRefusalsAreInTheDocumentation(t *testing.T) {
	doc, err := os.ReadFile("../../docs/kubernetes/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	ams, utr := Self{Organization: "uva", Site: "ams", Cluster: "uid-ams"}, Self{Organization: "uva", Site: "utr", Cluster: "uid-utr"}
	v := federation.Volume{UUID: "UUID", Name: "lab.shared", Owner: "uva", OwnerSite: "ams", OwnerCluster: "uid-ams"}
	readOnly, closing, deleted, moved := v, v, v, v
	readOnly.Grants = []federation.Grant{{Site: "utr", Namespace: "NAMESPACE", Access: federation.ReadOnly}}
	closing.Closing = true
	deleted.Deleted, deleted.DeletedAt, deleted.PurgeAfter = true, testTime, testTime
	moved.OwnerSite, moved.OwnerCluster = "utr", "uid-utr"
	for _, verdict := range []*Verdict{
		Admit(v, utr, "NAMESPACE", v1alpha1.ReadWrite),
		Admit(readOnly, utr, "NAMESPACE", v1alpha1.ReadWrite),
		Admit(v, ams, "NAMESPACE", v1alpha1.ReadWrite),
		Admit(closing, utr, "NAMESPACE", v1alpha1.ReadWrite),
		Admit(deleted, utr, "NAMESPACE", v1alpha1.ReadWrite),
		InUse(v.Name, []federation.Claim{{Site: "utr", Namespace: "lab", Name: "shared"}}),
		Named(v, ams, nil),
		Named(v, utr, nil),
		Named(deleted, ams, nil),
		Superseded(moved),
	} {
		says := strings.ReplaceAll(verdict.Message, stamp(testTime), "TIME")
		if !strings.Contains(string(doc), "| "+says+" |") || !strings.Contains(string(doc), "`"+verdict.Reason+"`") {
			t.Errorf("%s is not in troubleshooting.md: %s", verdict.Reason, says)
		}
	}
}
