// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/users"
)

// Grants are grants as the registry has them, and what is said of clients, by site: what grants
// say, of several to one site the first that does, and what a person said of sites that have no
// grant and had none in old, the volume's record (zero: there is none).
//
// Where a grant says of clients what cannot be, wrong says why: what was said of that site stays,
// and nothing more is granted to it than before.
func Grants(list []v1alpha1.Grant, old federation.Volume) (out []federation.Grant, at map[string]users.Policy, wrong *Verdict) {
	bad := map[string]bool{}
	for i, g := range list {
		if g.Clients == nil {
			continue
		}
		for _, p := range clients(*g.Clients).Problems() {
			bad[string(g.Site)] = true
			if wrong == nil {
				wrong = &Verdict{v1alpha1.ReasonInvalid, fmt.Sprintf("spec.grants[%d].clients.%s: %s: %s", i, p[0], p[1], p[2])}
			}
		}
	}
	at = map[string]users.Policy{}
	for site, c := range old.Clients {
		granted := slices.ContainsFunc(list, func(g v1alpha1.Grant) bool { return string(g.Site) == site }) ||
			slices.ContainsFunc(old.Grants, func(g federation.Grant) bool { return g.Site == site })
		if !granted || bad[site] {
			at[site] = c
		}
	}
	for _, g := range list {
		one := federation.Grant{Site: string(g.Site), Namespace: g.Namespace, Access: Access(g.Access)}
		if bad[one.Site] {
			out = append(out, Fewer([]federation.Grant{one}, old.Grants)...)
			continue
		}
		out = append(out, one)
		if _, said := at[one.Site]; !said && g.Clients != nil {
			at[one.Site] = clients(*g.Clients)
		}
	}
	if len(at) == 0 {
		at = nil
	}
	return out, at, wrong
}

// Seeing are those of some grants that are not for sites whose copies are blind. If there are
// others, wrong says so: no client of such a site can use the volume.
func Seeing(list []federation.Grant, blind []string) (out []federation.Grant, wrong *Verdict) {
	for _, g := range list {
		if !slices.Contains(blind, g.Site) {
			out = append(out, g)
		} else if wrong == nil {
			wrong = verdict(v1alpha1.ReasonInvalid, "spec.grants: site %s has a blind copy, which no client there can use, so nothing is "+
				"granted to it: take the grant back, or let the copy have the key (replication.otherOrganizations, sites.blind)",
				g.Site)
		}
	}
	return out, wrong
}

// Fewer are those of some grants that are in old too, for no more access than there.
func Fewer(list, old []federation.Grant) (out []federation.Grant) {
	for _, g := range list {
		i := slices.IndexFunc(old, func(o federation.Grant) bool { return o.Site == g.Site && o.Namespace == g.Namespace })
		if i < 0 {
			continue
		}
		if old[i].Access == federation.ReadOnly {
			g.Access = federation.ReadOnly
		}
		out = append(out, g)
	}
	return out
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

// clients are clients as the registry has them.
func clients(c v1alpha1.Clients) users.Policy {
	out := users.Policy{Squash: users.Squash(c.Squash), AnonymousUID: count(c.AnonymousUID), AnonymousGID: count(c.AnonymousGID),
		Mask: c.Mask}
	if c.Certificates == v1alpha1.CertificatesRequired {
		out.Certificates = users.CertificatesRequired
	}
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
		Mask: c.Mask, Certificates: v1alpha1.Certificates(c.Certificates)}
	for _, r := range c.UIDs {
		out.UIDs = append(out.UIDs, v1alpha1.IDRange{Client: int32(r.Client), Volume: int32(r.Volume), Count: some(r.Count)})
	}
	for _, r := range c.GIDs {
		out.GIDs = append(out.GIDs, v1alpha1.IDRange{Client: int32(r.Client), Volume: int32(r.Volume), Count: some(r.Count)})
	}
	return out
}
