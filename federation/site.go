// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
)

// Site is a place with gateways and perhaps a store. It is not bound to a lease: a site that is
// down is still known.
type Site struct {
	Name         string            `json:"name"`
	Organization string            `json:"organization"`
	Region       string            `json:"region,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Gateways     []Gateway         `json:"gateways,omitempty"`
	Store        SiteStore         `json:"store,omitzero"`
	// WrapKey is the site's public HPKE key (RFC 9180): data keys are wrapped for it (protocol-17).
	WrapKey []byte `json:"wrapKey,omitempty"`
	// Cluster is the UID of the Kubernetes cluster that the site is; its operator writes it, and
	// then Region and Labels too.
	Cluster string `json:"cluster,omitempty"`
	// Capacity is how much the site gives to copies of volumes; 0: not limited.
	Capacity Bytes `json:"capacity,omitempty"`
	// Lends are the organizations, besides its own, whose volumes may have copies at the site: "*"
	// is all. Its gateways write it, each the same.
	Lends []string `json:"lends,omitempty"`
}

// LendsToAll in Site.Lends stands for all organizations.
const LendsToAll = "*"

// Takes reports whether volumes of an organization may have copies at the site.
func (s Site) Takes(organization string) bool {
	return s.Organization == organization || slices.Contains(s.Lends, organization) || slices.Contains(s.Lends, LendsToAll)
}

// Gateway is a gateway process at a site.
type Gateway struct {
	Name string `json:"name"`
	// Addr is host:port of its gRPC service, NFSAddr that of NFS.
	Addr        string `json:"addr"`
	NFSAddr     string `json:"nfsAddr,omitempty"`
	Incarnation string `json:"incarnation"`
	// Pools are its pools, by which policies choose sites; none: it is of a release that did not
	// tell.
	Pools  []Pool `json:"pools,omitempty"`
	Format uint32 `json:"format,omitempty"` // newest format level of metadata that it knows; 0: 1
}

// Pool is one of a gateway's pools.
type Pool struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Has reports whether the pool has all of these labels.
func (p Pool) Has(labels map[string]string) bool {
	for k, v := range labels {
		if have, ok := p.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// SiteStore is the site's bucket; zero when it has none. Keys to it stay at the site.
type SiteStore struct {
	Endpoint string `json:"endpoint"`
	Bucket   string `json:"bucket"`
}

// Alive is a gateway's heartbeat.
type Alive struct {
	Gateway     string `json:"gateway"`
	Site        string `json:"site"`
	Incarnation string `json:"incarnation"`
}

// SiteStatus is a site and which of its gateways' heartbeats are there.
type SiteStatus struct {
	Site     Site
	Revision Revision
	// Alive has the names of the site's gateways whose heartbeat, with the registered incarnation,
	// has not expired.
	Alive map[string]bool
}

// Validate checks the record on its own; errors wrap ErrInvalid.
func (s Site) Validate() error {
	if err := CheckLabel("site", s.Name); err != nil {
		return err
	}
	if s.Organization == "" || strings.ContainsAny(s.Organization, "/\n") {
		return invalid("check", "site", s.Name, fmt.Sprintf("organization is %q: name the institution, without a slash", s.Organization))
	}
	for _, o := range s.Lends {
		if o == "" || strings.ContainsAny(o, "/\n") {
			return invalid("check", "site", s.Name, fmt.Sprintf("lends has %q: name institutions, without a slash, or %q for all", o,
				LendsToAll))
		}
	}
	seen := map[string]bool{}
	for _, g := range s.Gateways {
		if err := CheckLabel("gateway", g.Name); err != nil {
			return err
		}
		if seen[g.Name] {
			return invalid("check", "site", s.Name, fmt.Sprintf("gateway %s is there twice: name each once", g.Name))
		}
		seen[g.Name] = true
		for field, addr := range map[string]string{"addr": g.Addr, "nfsAddr": g.NFSAddr} {
			if addr == "" && field == "nfsAddr" {
				continue
			}
			if _, _, err := net.SplitHostPort(addr); err != nil {
				return invalid("check", "gateway", g.Name, fmt.Sprintf("%s is %q: write it as host:port", field, addr))
			}
		}
	}
	return nil
}

// MergeSite is what Register stores when next meets prev. A gateway registers itself: next's
// fields, and for gateways next's entries and those of prev that next does not name. A cluster's
// operator (next.Cluster is set) registers Cluster, Region and Labels, which from then on gateways
// do not change. Another organization or cluster is refused (ErrNameTaken): it is a second site of
// that name.
func MergeSite(prev, next Site) (Site, error) {
	if prev.Organization != next.Organization {
		return Site{}, &Error{Op: "register", Kind: "site", Name: next.Name, Err: ErrNameTaken, Detail: fmt.Sprintf(
			"organization: %q: the site belongs to organization %q: correct organization, and the certificate with it, or choose "+
				"another site name", next.Organization, prev.Organization)}
	}
	if prev.Cluster != "" && next.Cluster != "" && prev.Cluster != next.Cluster {
		return Site{}, &Error{Op: "register", Kind: "site", Name: next.Name, Err: ErrNameTaken, Detail: fmt.Sprintf(
			"another cluster, whose kube-system namespace has the UID %s, is that site, and this one has %s: install this cluster under "+
				"another site name; "+
				"if that cluster is gone for ever, `weir site remove %s` frees the name", prev.Cluster, next.Cluster, next.Name)}
	}
	if next.Cluster != "" {
		out := prev
		out.Cluster, out.Region, out.Labels = next.Cluster, next.Region, maps.Clone(next.Labels)
		return out, nil
	}
	named := map[string]bool{}
	for _, g := range next.Gateways {
		named[g.Name] = true
	}
	out := next
	out.Labels, out.Lends = maps.Clone(next.Labels), slices.Clone(next.Lends)
	out.Gateways = slices.Clone(next.Gateways)
	for _, g := range prev.Gateways {
		if !named[g.Name] {
			out.Gateways = append(out.Gateways, g)
		}
	}
	slices.SortFunc(out.Gateways, func(a, b Gateway) int { return strings.Compare(a.Name, b.Name) })
	if out.Cluster = prev.Cluster; out.Cluster != "" {
		out.Region, out.Labels = prev.Region, maps.Clone(prev.Labels)
	}
	if next.Store == (SiteStore{}) {
		out.Store = prev.Store
	}
	if len(next.WrapKey) == 0 {
		out.WrapKey = prev.WrapKey
	}
	return out, nil
}
