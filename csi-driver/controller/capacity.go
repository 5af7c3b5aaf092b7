// SPDX-License-Identifier: Apache-2.0

package controller

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
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

// unlimited is GetCapacity's answer, in bytes, when no site that would be chosen has a limit: 1
// EiB. CSI has no value that means it.
const unlimited = int64(1) << 60

// GetCapacity implements csi.ControllerServer. It answers the size of the largest volume that could
// be made with the policy now, if its copies went to the sites with most room. Sites promise room
// by the size of volumes, not by what is in them.
func (s *service) GetCapacity(ctx context.Context, q *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	for _, vc := range q.GetVolumeCapabilities() {
		if rpc.CheckCapability("volume_capabilities", vc) != nil {
			return &csi.GetCapacityResponse{}, nil
		}
	}
	if site, ok := q.GetAccessibleTopology().GetSegments()[v1alpha1.TopologyKey]; ok && site != s.cfg.Site {
		return &csi.GetCapacityResponse{}, nil // another cluster's nodes
	}
	policy := new(v1alpha1.VolumePolicy)
	if name := q.GetParameters()[v1alpha1.PolicyParameter]; name != "" {
		err := s.cfg.Client.Get(ctx, client.ObjectKey{Name: name}, policy)
		if apierrors.IsNotFound(err) {
			return nil, noPolicy(name)
		}
		if err != nil {
			return nil, fromAPI(err, "get VolumePolicy %s", name)
		}
	}
	var sites v1alpha1.SiteList
	if err := s.cfg.Client.List(ctx, &sites); err != nil {
		return nil, fromAPI(err, "list Sites")
	}
	return &csi.GetCapacityResponse{AvailableCapacity: available(policy.Spec.Replication, sites.Items)}, nil
}

// available chooses sites for r so that the smallest room among them is as large as it can be, and
// returns that room. It is 0 when no choice satisfies r.
func available(r v1alpha1.Replication, sites []v1alpha1.Site) int64 {
	copies := 2 // the operator's default
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
	// Required sites come first, then those with most room: the greedy choice is the best one.
	slices.SortFunc(sites, func(a, b v1alpha1.Site) int {
		return cmp.Or(
			-compareBool(required[v1alpha1.SiteName(a.Name)], required[v1alpha1.SiteName(b.Name)]),
			-cmp.Compare(room(a), room(b)),
			cmp.Compare(a.Name, b.Name))
	})
	least := unlimited
	taken := make(map[string]bool)
	for _, s := range sites {
		name, d := v1alpha1.SiteName(s.Name), domain(r.Spread, s)
		refused := lost(s) || slices.Contains(r.Sites.Forbidden, name) || !required[name] && !selector.Matches(siteLabels(s))
		if len(taken) == copies || taken[d] || refused {
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

// room is how many bytes a site can still promise.
func room(s v1alpha1.Site) int64 {
	if s.Status.Capacity == nil {
		return unlimited
	}
	promised := int64(0)
	if s.Status.Promised != nil {
		promised = s.Status.Promised.Value()
	}
	return min(unlimited, max(0, s.Status.Capacity.Value()-promised))
}

// lost reports whether a person declared the site lost.
func lost(s v1alpha1.Site) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Status != metav1.ConditionTrue && c.Reason == v1alpha1.ReasonLost
}

// domain is what no two copies may share. A site without a region is a region of its own.
func domain(spread v1alpha1.Spread, s v1alpha1.Site) string {
	switch {
	case spread == v1alpha1.SpreadOrganization:
		return "organization " + s.Spec.Organization
	case spread == v1alpha1.SpreadRegion && s.Spec.Region != "":
		return "region " + s.Spec.Region
	}
	return "site " + s.Name
}

// siteLabels are a site's labels, with its organization and region.
func siteLabels(s v1alpha1.Site) labels.Set {
	l := labels.Set{}
	maps.Copy(l, s.Labels)
	l[v1alpha1.OrganizationLabel] = s.Spec.Organization
	if s.Spec.Region != "" {
		l[v1alpha1.RegionLabel] = s.Spec.Region
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
