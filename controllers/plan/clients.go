// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/users"
)

// Grants are grants as the registry has them, and what is said of clients, by site: what grants
// say, of several to one site the first that does, and what a person said of sites that have no
// grant and had none in old, the volume's record (zero: there is none).
func Grants(list []v1alpha1.Grant, old federation.Volume) ([]federation.Grant, map[string]users.Policy) {
	var out []federation.Grant
	at := maps.Clone(old.Clients)
	for _, g := range list {
		delete(at, string(g.Site))
	}
	for _, g := range old.Grants {
		delete(at, g.Site)
	}
	for _, g := range list {
		out = append(out, federation.Grant{Site: string(g.Site), Namespace: g.Namespace, Access: Access(g.Access)})
		if _, said := at[string(g.Site)]; said || g.Clients == nil {
			continue
		}
		if at == nil {
			at = map[string]users.Policy{}
		}
		at[string(g.Site)] = clients(*g.Clients)
	}
	if len(at) == 0 {
		at = nil
	}
	return out, at
}

// DescribeGrants is the inverse of Grants. What is said of clients of a site without a grant is
// left out.
func DescribeGrants(list []federation.Grant, at map[string]users.Policy) []v1alpha1.Grant {
	var out []v1alpha1.Grant
	for _, g := range list {
		one := v1alpha1.Grant{Site: v1alpha1.SiteName(g.Site), Namespace: g.Namespace, Access: DescribeAccess(g.Access)}
		if c, ok := at[g.Site]; ok {
			one.Clients = new(describeClients(c))
		}
		out = append(out, one)
	}
	return out
}

// CheckClients returns why what is said of clients cannot be, nil if it can.
func CheckClients(at map[string]users.Policy) *Verdict {
	for _, site := range slices.Sorted(maps.Keys(at)) {
		for _, p := range at[site].Problems() {
			return &Verdict{v1alpha1.ReasonInvalid, fmt.Sprintf("spec.grants: clients of site %s: %s: %s: %s", site, p[0], p[1], p[2])}
		}
	}
	return nil
}

// clients are clients as the registry has them.
func clients(c v1alpha1.Clients) users.Policy {
	out := users.Policy{Squash: users.Squash(c.Squash), AnonymousUID: count(c.AnonymousUID), AnonymousGID: count(c.AnonymousGID),
		Mask: c.Mask}
	for _, r := range c.UIDs {
		out.UIDs = append(out.UIDs, users.Range{Client: int(r.Client), Volume: int(r.Volume), Count: count(r.Count)})
	}
	for _, r := range c.GIDs {
		out.GIDs = append(out.GIDs, users.Range{Client: int(r.Client), Volume: int(r.Volume), Count: count(r.Count)})
	}
	return out
}

// describeClients is the inverse of clients.
func describeClients(c users.Policy) v1alpha1.Clients {
	some := func(n int) *int32 {
		if n == 0 {
			return nil
		}
		return ptr(int32(n))
	}
	out := v1alpha1.Clients{Squash: v1alpha1.Squash(c.Squash), AnonymousUID: some(c.AnonymousUID), AnonymousGID: some(c.AnonymousGID),
		Mask: c.Mask}
	for _, r := range c.UIDs {
		out.UIDs = append(out.UIDs, v1alpha1.IDRange{Client: int32(r.Client), Volume: int32(r.Volume), Count: some(r.Count)})
	}
	for _, r := range c.GIDs {
		out.GIDs = append(out.GIDs, v1alpha1.IDRange{Client: int32(r.Client), Volume: int32(r.Volume), Count: some(r.Count)})
	}
	return out
}
