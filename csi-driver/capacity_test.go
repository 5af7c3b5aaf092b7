// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

func TestCapacity(t *testing.T) {
	site := func(name, organization, capacity, promised string, labels map[string]string) *v1alpha1.Site {
		s := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec: v1alpha1.SiteSpec{Organization: organization, Federation: testFederation}}
		if capacity != "" {
			c, p := resource.MustParse(capacity), resource.MustParse(promised)
			s.Status.Capacity, s.Status.Promised = &c, &p
		}
		return s
	}
	n := func(i int32) *int32 { return &i }
	large := site("large", "a", "100Gi", "10Gi", nil)
	middle := site("middle", "a", "60Gi", "10Gi", map[string]string{"law": "eu"})
	small := site("small", "b", "20Gi", "19Gi", map[string]string{"law": "eu"})
	none := site("none", "c", "", "", nil)
	gone := site("gone", "d", "", "", nil)
	gone.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonLost}}
	for name, x := range map[string]struct {
		r     v1alpha1.Replication
		sites []*v1alpha1.Site
		want  int64
	}{
		"the two with most room": {v1alpha1.Replication{}, []*v1alpha1.Site{small, large, middle}, 50 << 30},
		"one":                    {v1alpha1.Replication{Copies: n(1)}, []*v1alpha1.Site{small, large, middle}, 90 << 30},
		"too few":                {v1alpha1.Replication{}, []*v1alpha1.Site{large}, 0},
		"lost":                   {v1alpha1.Replication{}, []*v1alpha1.Site{large, gone}, 0},
		"spread": {v1alpha1.Replication{Spread: v1alpha1.SpreadOrganization}, []*v1alpha1.Site{small, large, middle},
			1 << 30},
		"required": {v1alpha1.Replication{Sites: v1alpha1.SiteRules{Required: []v1alpha1.SiteName{"small"}}},
			[]*v1alpha1.Site{small, large, middle}, 1 << 30},
		"required, not there": {v1alpha1.Replication{Sites: v1alpha1.SiteRules{Required: []v1alpha1.SiteName{"x"}}},
			[]*v1alpha1.Site{small, large, middle}, 0},
		"forbidden": {v1alpha1.Replication{Sites: v1alpha1.SiteRules{Forbidden: []v1alpha1.SiteName{"middle"}}},
			[]*v1alpha1.Site{small, large, middle}, 1 << 30},
		"labels": {v1alpha1.Replication{Copies: n(1),
			Sites: v1alpha1.SiteRules{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"law": "eu"}}}},
			[]*v1alpha1.Site{large, middle}, 50 << 30},
		"organization's label": {v1alpha1.Replication{Copies: n(1),
			Sites: v1alpha1.SiteRules{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"organization.weir.dev": "b"}}}},
			[]*v1alpha1.Site{large, small}, 1 << 30},
		"no limit": {v1alpha1.Replication{Copies: n(1)}, []*v1alpha1.Site{large, none}, 1 << 60},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.VolumePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.VolumePolicySpec{Replication: x.r}}
			objects := []client.Object{p}
			for _, s := range x.sites {
				objects = append(objects, s.DeepCopy())
			}
			c := newWorld(t, objects...).controller(t)
			r, err := c.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"policy": "p"}})
			wantOK(t, err)
			if r.GetAvailableCapacity() != x.want {
				t.Errorf("%d, want %d", r.GetAvailableCapacity(), x.want)
			}
			r, err = c.GetCapacity(t.Context(), &csi.GetCapacityRequest{
				Parameters: map[string]string{"policy": "p"}, AccessibleTopology: rpc.Topology("there")})
			if err != nil || r.GetAvailableCapacity() != 0 {
				t.Errorf("at another site's nodes: %v, %v", r, err)
			}
		})
	}
}
