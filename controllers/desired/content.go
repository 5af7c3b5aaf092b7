// SPDX-License-Identifier: Apache-2.0

// Package desired makes Kubernetes objects as they should be: the spec of a GeoVolumeContent, and
// the PersistentVolume and PersistentVolumeClaim that pods use. Its functions are pure.
package desired

import (
	"reflect"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/view"
)

// Content returns the spec of the content that a GeoVolume wishes for, but for the claims. site is
// this cluster's and name the volume's in the federation.
func Content(g *v1alpha1.GeoVolume, site, name string) v1alpha1.GeoVolumeContentSpec {
	s := g.Spec
	out := v1alpha1.GeoVolumeContentSpec{FederationName: name, Owner: v1alpha1.SiteName(site), Policy: s.Policy, Grants: s.Grants,
		ReclaimPolicy: s.ReclaimPolicy}
	if s.Size != nil {
		out.Size = *s.Size
	}
	if out.ReclaimPolicy == "" {
		out.ReclaimPolicy = v1alpha1.Retain
	}
	var o v1alpha1.VolumePolicySpec
	override(&o.Replication, s.Replication)
	override(&o.Durability, s.Durability)
	override(&o.Consistency, s.Consistency)
	override(&o.Cache, s.Cache)
	override(&o.Home, s.Home)
	override(&o.Clients, s.Clients)
	override(&o.Snapshots, s.Snapshots)
	override(&o.Trash, s.Trash)
	override(&o.Encryption, s.Encryption)
	override(&o.Quota, s.Quota)
	override(&o.Scrub, s.Scrub)
	override(&o.Compaction, s.Compaction)
	if !apiequality.Semantic.DeepEqual(o, v1alpha1.VolumePolicySpec{}) {
		out.Overrides = &o
	}
	return *out.DeepCopy()
}

func override[T any](field *T, v *T) {
	if v != nil {
		*field = *v
	}
}

// Mirrored returns the content's spec of a volume as the registry has it, with the claims of a
// site's cluster. old are the claims that the content has. All fields of the policy are set: the
// spec stays the same if the cluster becomes the volume's owner.
func Mirrored(v *view.Volume, site string, old []v1alpha1.ClaimReference) v1alpha1.GeoVolumeContentSpec {
	r := v.Record
	policy := plan.Describe(r.Spec)
	return v1alpha1.GeoVolumeContentSpec{
		FederationName: r.Name,
		Owner:          v1alpha1.SiteName(r.OwnerSite),
		Size:           *plan.Quantity(r.Spec.Size),
		Overrides:      &policy,
		Grants:         plan.DescribeGrants(r.Grants, r.Clients),
		ReclaimPolicy:  v1alpha1.Retain,
		Claims:         References(v, site, old),
	}
}

// References returns the claims of a site's cluster. Claims of GeoVolumes are the registry's,
// because the operator writes them there. Claims of PersistentVolumeClaims are old's, because the
// CSI controller writes them into the content.
func References(v *view.Volume, site string, old []v1alpha1.ClaimReference) []v1alpha1.ClaimReference {
	var out []v1alpha1.ClaimReference
	for _, c := range old {
		if c.Kind == string(federation.ClaimPVC) {
			out = append(out, c)
		}
	}
	for _, c := range v.ClaimsOf(site) {
		if c.Kind == federation.ClaimGeoVolume {
			out = append(out, v1alpha1.ClaimReference{Kind: string(c.Kind), Namespace: c.Namespace, Name: c.Name, UID: c.UID,
				Access: plan.DescribeAccess(c.Access)})
		}
	}
	slices.SortStableFunc(out, func(a, b v1alpha1.ClaimReference) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return out
}

// Differing returns the JSON names of the fields in which a spec is not as wanted. Quantities and
// durations are compared by value.
func Differing(is, want v1alpha1.GeoVolumeContentSpec) []string {
	var out []string
	normal(&is)
	normal(&want)
	a, b := reflect.ValueOf(is), reflect.ValueOf(want)
	for i := range a.NumField() {
		if !apiequality.Semantic.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			out = append(out, name)
		}
	}
	return out
}

// normal fills in what the API server fills in, and drops overrides that are all empty.
func normal(s *v1alpha1.GeoVolumeContentSpec) {
	if s.ReclaimPolicy == "" {
		s.ReclaimPolicy = v1alpha1.Delete
	}
	if s.Overrides != nil && apiequality.Semantic.DeepEqual(*s.Overrides, v1alpha1.VolumePolicySpec{}) {
		s.Overrides = nil
	}
	s.Grants = slices.Clone(s.Grants)
	for i := range s.Grants {
		if s.Grants[i].Access == "" {
			s.Grants[i].Access = v1alpha1.ReadWrite
		}
	}
}
