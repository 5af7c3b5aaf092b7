// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/spec"
)

// Resolved is a policy in force.
type Resolved struct {
	Spec federation.VolumeSpec
	// Selector chooses sites by label. The registry's record has the chosen sites and no selector:
	// only the owner places.
	Selector *metav1.LabelSelector
}

// Resolve takes each field from overrides, else from the policy (nil: none), else from the defaults
// of federation/spec. A list in overrides replaces the policy's. durability.sites has a meaning
// only with acknowledge: Sites, and maxStaleness only with mode: Bounded. When overrides choose
// another acknowledge or mode, the policy's sites or maxStaleness does not count. The error is a
// *Verdict.
func Resolve(size resource.Quantity, policy, overrides *v1alpha1.VolumePolicySpec) (Resolved, error) {
	m := merge(policy, overrides)
	out := Resolved{Selector: m.Replication.Sites.Selector, Spec: federation.VolumeSpec{
		Size: federation.Bytes(size.Value()),
		Replication: federation.Replication{
			Copies: count(m.Replication.Copies),
			Spread: federation.Spread(m.Replication.Spread),
			Sites: federation.SiteRules{
				Required:  names(m.Replication.Sites.Required),
				Preferred: names(m.Replication.Sites.Preferred),
				Forbidden: names(m.Replication.Sites.Forbidden),
				Blind:     names(m.Replication.Sites.Blind),
			},
			OtherOrganizations: federation.Copies(m.Replication.OtherOrganizations),
			Stores:             count(m.Replication.Stores),
		},
		Durability: federation.Durability{
			Acknowledge:  federation.Acknowledge(m.Durability.Acknowledge),
			Sites:        count(m.Durability.Sites),
			WhenDegraded: federation.WhenDegraded(m.Durability.WhenDegraded),
			MaxLag:       federation.MaxLag{Time: span(m.Durability.MaxLag.Time), Bytes: amount(m.Durability.MaxLag.Bytes)},
		},
		Consistency: federation.Consistency{
			Mode:         federation.ConsistencyMode(m.Consistency.Mode),
			MaxStaleness: span(m.Consistency.MaxStaleness),
		},
		Cache: federation.Cache{Size: amount(m.Cache.Size), Reserve: amount(m.Cache.Reserve), Memory: amount(m.Cache.Memory),
			ARC: federation.Kept(m.Cache.ARC), L2ARC: federation.Kept(m.Cache.L2ARC), Log: federation.LogBias(m.Cache.Log),
			Prefetch:  federation.Prefetch(m.Cache.Prefetch),
			BlockSize: amount(m.Cache.BlockSize), Compression: federation.Compression(m.Cache.Compression)},
		Home:    federation.HomeRules{PreferredSites: names(m.Home.PreferredSites)},
		Clients: clients(m.Clients), Snapshots: snapshotsOf(m.Snapshots),
		Trash:      snapshots.Trash{Keep: span(m.Trash.Keep)},
		Encryption: encryptionOf(m.Encryption),
	}}
	upkeepOf(m, &out.Spec)
	if m.Cache.Pool != nil {
		out.Spec.Cache.Pool = m.Cache.Pool.MatchLabels
	}
	for _, pin := range m.Cache.Pin {
		out.Spec.Cache.Pin = append(out.Spec.Cache.Pin, federation.Pin{Path: pin.Path, Sites: names(pin.Sites)})
	}
	if m.Cache.ReadAhead != nil {
		out.Spec.Cache.ReadAhead = new(amount(m.Cache.ReadAhead))
	}
	spec.Default(&out.Spec)
	// These are the checks of volume.yaml. Who writes the record checks the name.
	err := spec.Validate(spec.VolumeManifest{APIVersion: spec.APIVersion, Kind: spec.Kind,
		Metadata: spec.Metadata{Name: "volume"}, Spec: out.Spec})
	if err != nil {
		return out, &Verdict{v1alpha1.ReasonInvalid, oneLine(err)}
	}
	if _, err := selector(out.Selector); err != nil {
		return out, &Verdict{v1alpha1.ReasonInvalid, "spec.replication.sites.selector: " + err.Error() + ": correct it"}
	}
	return out, nil
}

func merge(policy, overrides *v1alpha1.VolumePolicySpec) v1alpha1.VolumePolicySpec {
	var p, o v1alpha1.VolumePolicySpec
	if policy != nil {
		p = *policy.DeepCopy()
	}
	if overrides == nil {
		return p
	}
	o = *overrides.DeepCopy()
	over(&p.Replication.Copies, o.Replication.Copies)
	over(&p.Replication.Spread, o.Replication.Spread)
	overList(&p.Replication.Sites.Required, o.Replication.Sites.Required)
	overList(&p.Replication.Sites.Preferred, o.Replication.Sites.Preferred)
	overList(&p.Replication.Sites.Forbidden, o.Replication.Sites.Forbidden)
	overList(&p.Replication.Sites.Blind, o.Replication.Sites.Blind)
	over(&p.Replication.OtherOrganizations, o.Replication.OtherOrganizations)
	over(&p.Replication.Stores, o.Replication.Stores)
	over(&p.Replication.Sites.Selector, o.Replication.Sites.Selector)
	if o.Durability.Acknowledge != "" && o.Durability.Acknowledge != v1alpha1.AcknowledgeSites {
		p.Durability.Sites = nil
	}
	over(&p.Durability.Acknowledge, o.Durability.Acknowledge)
	over(&p.Durability.Sites, o.Durability.Sites)
	over(&p.Durability.WhenDegraded, o.Durability.WhenDegraded)
	over(&p.Durability.MaxLag.Time, o.Durability.MaxLag.Time)
	over(&p.Durability.MaxLag.Bytes, o.Durability.MaxLag.Bytes)
	if o.Consistency.Mode == v1alpha1.ConsistencyStrong {
		p.Consistency.MaxStaleness = nil
	}
	over(&p.Consistency.Mode, o.Consistency.Mode)
	over(&p.Consistency.MaxStaleness, o.Consistency.MaxStaleness)
	over(&p.Cache.Pool, o.Cache.Pool)
	over(&p.Cache.Size, o.Cache.Size)
	over(&p.Cache.Reserve, o.Cache.Reserve)
	over(&p.Cache.Memory, o.Cache.Memory)
	over(&p.Cache.ARC, o.Cache.ARC)
	over(&p.Cache.L2ARC, o.Cache.L2ARC)
	over(&p.Cache.Log, o.Cache.Log)
	over(&p.Cache.ReadAhead, o.Cache.ReadAhead)
	over(&p.Cache.Prefetch, o.Cache.Prefetch)
	over(&p.Cache.BlockSize, o.Cache.BlockSize)
	over(&p.Cache.Compression, o.Cache.Compression)
	overList(&p.Cache.Pin, o.Cache.Pin)
	overList(&p.Home.PreferredSites, o.Home.PreferredSites)
	over(&p.Clients.Squash, o.Clients.Squash)
	over(&p.Clients.AnonymousUID, o.Clients.AnonymousUID)
	over(&p.Clients.AnonymousGID, o.Clients.AnonymousGID)
	overList(&p.Clients.UIDs, o.Clients.UIDs)
	overList(&p.Clients.GIDs, o.Clients.GIDs)
	over(&p.Clients.Mask, o.Clients.Mask)
	over(&p.Clients.Certificates, o.Clients.Certificates)
	overList(&p.Snapshots.Schedule, o.Snapshots.Schedule)
	over(&p.Snapshots.Window, o.Snapshots.Window)
	over(&p.Snapshots.Directory, o.Snapshots.Directory)
	over(&p.Trash.Keep, o.Trash.Keep)
	over(&p.Encryption.RotateEvery, o.Encryption.RotateEvery)
	over(&p.Encryption.Rotation, o.Encryption.Rotation)
	over(&p.Encryption.Erase, o.Encryption.Erase)
	over(&p.Encryption.Reseal, o.Encryption.Reseal)
	over(&p.Encryption.AcceptOneSite, o.Encryption.AcceptOneSite)
	over(&p.Quota.Files, o.Quota.Files)
	over(&p.Scrub.Every, o.Scrub.Every)
	over(&p.Scrub.Rate, o.Scrub.Rate)
	over(&p.Compaction.Rate, o.Compaction.Rate)
	over(&p.Compaction.Hours, o.Compaction.Hours)
	return p
}

func over[T comparable](field *T, v T) {
	var zero T
	if v != zero {
		*field = v
	}
}

func overList[T any](field *[]T, v []T) {
	if v != nil {
		*field = v
	}
}

// Describe is the inverse of Resolve. It fills every field, so that the result does not depend on a
// policy or on defaults.
func Describe(s federation.VolumeSpec) v1alpha1.VolumePolicySpec {
	d := v1alpha1.VolumePolicySpec{
		Replication: v1alpha1.Replication{
			Copies: ptr(int32(s.Replication.Copies)),
			Spread: v1alpha1.Spread(s.Replication.Spread),
			Sites: v1alpha1.SiteRules{
				Required:  siteNames(s.Replication.Sites.Required),
				Preferred: siteNames(s.Replication.Sites.Preferred),
				Forbidden: siteNames(s.Replication.Sites.Forbidden),
				Blind:     siteNames(s.Replication.Sites.Blind),
			},
			OtherOrganizations: v1alpha1.Copies(s.Replication.OtherOrganizations),
		},
		Durability: v1alpha1.Durability{
			Acknowledge:  v1alpha1.Acknowledge(s.Durability.Acknowledge),
			WhenDegraded: v1alpha1.WhenDegraded(s.Durability.WhenDegraded),
			MaxLag: v1alpha1.MaxLag{
				Time:  &metav1.Duration{Duration: time.Duration(s.Durability.MaxLag.Time)},
				Bytes: Quantity(s.Durability.MaxLag.Bytes),
			},
		},
		Consistency: v1alpha1.Consistency{Mode: v1alpha1.ConsistencyMode(s.Consistency.Mode)},
		Home:        v1alpha1.Home{PreferredSites: siteNames(s.Home.PreferredSites)},
		Clients:     describeClients(s.Clients),
		Snapshots:   describeSnapshots(s.Snapshots),
		Encryption:  describeEncryption(s.Encryption),
	}
	describeUpkeep(s, &d)
	if s.Trash.Keep > 0 {
		d.Trash.Keep = &metav1.Duration{Duration: time.Duration(s.Trash.Keep)}
	}
	if s.Replication.Stores > 0 {
		d.Replication.Stores = ptr(int32(s.Replication.Stores))
	}
	if s.Durability.Sites > 0 {
		d.Durability.Sites = ptr(int32(s.Durability.Sites))
	}
	if s.Consistency.MaxStaleness > 0 {
		d.Consistency.MaxStaleness = &metav1.Duration{Duration: time.Duration(s.Consistency.MaxStaleness)}
	}
	if len(s.Cache.Pool) > 0 {
		d.Cache.Pool = &v1alpha1.PoolSelector{MatchLabels: s.Cache.Pool}
	}
	if s.Cache.Size > 0 {
		d.Cache.Size = Quantity(s.Cache.Size)
	}
	if s.Cache.Reserve > 0 {
		d.Cache.Reserve = Quantity(s.Cache.Reserve)
	}
	if s.Cache.Memory > 0 {
		d.Cache.Memory = Quantity(s.Cache.Memory)
	}
	if s.Cache.BlockSize > 0 {
		d.Cache.BlockSize = Quantity(s.Cache.BlockSize)
	}
	if s.Cache.ReadAhead != nil {
		d.Cache.ReadAhead = Quantity(*s.Cache.ReadAhead)
	}
	d.Cache.ARC, d.Cache.L2ARC, d.Cache.Log = v1alpha1.Kept(s.Cache.ARC), v1alpha1.Kept(s.Cache.L2ARC), v1alpha1.LogBias(s.Cache.Log)
	for _, pin := range s.Cache.Pin {
		one := v1alpha1.Pin{Path: pin.Path}
		for _, site := range pin.Sites {
			one.Sites = append(one.Sites, v1alpha1.SiteName(site))
		}
		d.Cache.Pin = append(d.Cache.Pin, one)
	}
	d.Cache.Prefetch = v1alpha1.Prefetch(s.Cache.Prefetch)
	d.Cache.Compression = v1alpha1.Compression(s.Cache.Compression)
	return d
}

// Quantity is b in the form in which the API server would write it.
func Quantity(b federation.Bytes) *resource.Quantity {
	q, err := resource.ParseQuantity(b.String())
	if err != nil { // federation's units are Kubernetes'
		q = *resource.NewQuantity(int64(b), resource.BinarySI)
	}
	// A parsed quantity keeps its text. With the canonical text, equal amounts are equal
	// structures.
	q = resource.MustParse(q.String())
	return &q
}

// Access is an access as the registry has it.
func Access(a v1alpha1.Access) federation.Access {
	if a == v1alpha1.ReadOnly {
		return federation.ReadOnly
	}
	return federation.ReadWrite
}

// DescribeAccess is the inverse of Access.
func DescribeAccess(a federation.Access) v1alpha1.Access {
	if a == federation.ReadOnly {
		return v1alpha1.ReadOnly
	}
	return v1alpha1.ReadWrite
}

func ptr[T any](v T) *T { return &v }

func count(n *int32) int {
	if n == nil {
		return 0
	}
	return int(*n)
}

func span(d *metav1.Duration) federation.Duration {
	if d == nil {
		return 0
	}
	return federation.Duration(d.Duration)
}

func amount(q *resource.Quantity) federation.Bytes {
	if q == nil {
		return 0
	}
	return federation.Bytes(q.Value())
}

func names(list []v1alpha1.SiteName) []string {
	var out []string
	for _, n := range list {
		out = append(out, string(n))
	}
	return out
}

func siteNames(list []string) []v1alpha1.SiteName {
	var out []v1alpha1.SiteName
	for _, n := range list {
		out = append(out, v1alpha1.SiteName(n))
	}
	return out
}

func oneLine(err error) string {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return err.Error()
	}
	var parts []string
	for _, e := range joined.Unwrap() {
		parts = append(parts, e.Error())
	}
	return strings.Join(parts, "; ")
}
