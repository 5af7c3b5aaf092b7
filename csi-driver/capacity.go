// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// Unlimited is what GetCapacity answers when no site that would be chosen has a limit: 1 EiB. CSI has no word for it.
const Unlimited = int64(1) << 60

// GetCapacity implements csi.ControllerServer: the size of the largest volume with the policy that could be made now, if its copies went to where there is most
// room. Sites promise room by the size of volumes, not by what is in them.
func (c *Controller) GetCapacity(ctx context.Context, q *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	for _, vc := range q.GetVolumeCapabilities() {
		if checkCapability("volume_capabilities", vc) != nil {
			return &csi.GetCapacityResponse{}, nil
		}
	}
	if s, ok := q.GetAccessibleTopology().GetSegments()[v1alpha1.TopologyKey]; ok && s != c.cfg.Site {
		return &csi.GetCapacityResponse{}, nil // another cluster's nodes
	}
	policy := new(v1alpha1.VolumePolicy)
	if name := q.GetParameters()[v1alpha1.PolicyParameter]; name != "" {
		err := c.cfg.Client.Get(ctx, client.ObjectKey{Name: name}, policy)
		if apierrors.IsNotFound(err) {
			return nil, invalid("parameter "+v1alpha1.PolicyParameter, name, "this cluster has no VolumePolicy of that name: make one, or name another")
		}
		if err != nil {
			return nil, fromAPI(err, "get VolumePolicy %s", name)
		}
	}
	var sites v1alpha1.SiteList
	if err := c.cfg.Client.List(ctx, &sites); err != nil {
		return nil, fromAPI(err, "list Sites")
	}
	return &csi.GetCapacityResponse{AvailableCapacity: available(policy.Spec.Replication, sites.Items)}, nil
}

// available is the room at the site with least of it, of the choice of sites where that is most; 0 when no choice satisfies r.
func available(r v1alpha1.Replication, sites []v1alpha1.Site) int64 {
	copies := 2 // as the operator's default
	if r.Copies != nil {
		copies = int(*r.Copies)
	}
	selector, err := metav1.LabelSelectorAsSelector(r.Sites.Selector)
	if err != nil {
		return 0
	}
	if r.Sites.Selector == nil {
		selector = labels.Everything()
	}
	required := make(map[v1alpha1.SiteName]bool)
	for _, name := range r.Sites.Required {
		required[name] = true
	}
	// Required sites first, and then those with most room: taken greedily, the least of them is as large as it can be.
	slices.SortFunc(sites, func(a, b v1alpha1.Site) int {
		return cmp.Or(-compareBool(required[v1alpha1.SiteName(a.Name)], required[v1alpha1.SiteName(b.Name)]), -cmp.Compare(room(a), room(b)), cmp.Compare(a.Name, b.Name))
	})
	least := Unlimited
	taken := make(map[string]bool)
	for _, s := range sites {
		name, d := v1alpha1.SiteName(s.Name), domain(r.Spread, s)
		if len(taken) == copies || taken[d] || lost(s) || slices.Contains(r.Sites.Forbidden, name) || !required[name] && !selector.Matches(siteLabels(s)) {
			continue
		}
		taken[d] = true
		delete(required, name)
		least = min(least, room(s))
	}
	if len(taken) < copies || len(required) > 0 {
		return 0
	}
	return least
}

func room(s v1alpha1.Site) int64 {
	if s.Status.Capacity == nil {
		return Unlimited
	}
	promised := int64(0)
	if s.Status.Promised != nil {
		promised = s.Status.Promised.Value()
	}
	return min(Unlimited, max(0, s.Status.Capacity.Value()-promised))
}

func lost(s v1alpha1.Site) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Status != metav1.ConditionTrue && c.Reason == v1alpha1.ReasonLost
}

// domain is what no two copies share. A site without a region is a region of its own.
func domain(spread v1alpha1.Spread, s v1alpha1.Site) string {
	switch {
	case spread == v1alpha1.SpreadOrganization:
		return "organization " + s.Spec.Organization
	case spread == v1alpha1.SpreadRegion && s.Spec.Region != "":
		return "region " + s.Spec.Region
	}
	return "site " + s.Name
}

// siteLabels are a site's, with its organization and region.
func siteLabels(s v1alpha1.Site) labels.Set {
	l := labels.Set{}
	maps.Copy(l, s.Labels)
	l["organization.weir.dev"] = s.Spec.Organization
	if s.Spec.Region != "" {
		l["region.weir.dev"] = s.Spec.Region
	}
	return l
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
