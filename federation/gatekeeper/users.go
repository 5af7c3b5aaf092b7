// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"slices"
	"strings"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/gatekeeper/papers"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// personLeaves judges a person who takes gateways away that are gone: of his own organization.
func (q *request) personLeaves(w write, left []string) error {
	for _, g := range left {
		s, err := before[federation.Site](q, join(federation.KindSite, q.siteOf(g)))
		if err != nil {
			return err
		}
		organization := ""
		if s != nil {
			organization = s.Organization
		}
		if !q.removes(organization) {
			return q.deny(w.key, "a person takes away gateways of his own organization, and %s is none", g)
		}
	}
	return nil
}

// more returns keys that the rules look at, and that only the facts so far show.
func (q *request) more() (keys []string) {
	keys = append(q.signers(), q.named()...)
	for _, w := range q.writes {
		if k := kindOf(w.key); (k == string(federation.KindPaper) || k == string(federation.KindVolume)) && !w.prefixed {
			keys = append(keys, papers.Keys(w.key, w.value, q.facts[w.key].value)...)
		}
		if kindOf(w.key) != string(federation.KindPurged) || w.prefixed || w.deletes {
			continue
		}
		gone := map[string]bool{}
		if prev, err := before[federation.Purge](q, w.key); err == nil && prev != nil {
			for _, g := range prev.Pending {
				gone[g] = true
			}
		}
		if next, err := decode[federation.Purge](w.key, w.value); err == nil && next != nil {
			for _, g := range next.Pending {
				delete(gone, g)
			}
		}
		uuid := strings.TrimPrefix(w.key, string(federation.KindPurged)+"/")
		if c, err := before[federation.Control](q, join(federation.KindControl, uuid)); err == nil && c != nil {
			for _, m := range c.Members {
				gone[m.Gateway] = true
			}
		}
		for g := range gone {
			keys = append(keys, kindGateway+"/"+g)
			if s := q.siteOf(g); s != "" {
				keys = append(keys, join(federation.KindSite, s))
			}
		}
	}
	return slices.DeleteFunc(keys, func(k string) bool { _, known := q.facts[k]; return known })
}

// named returns the sites that the index names for gateways which a request registers: it is not
// signed.
func (q *request) named() (keys []string) {
	for _, w := range q.writes {
		names := []string{}
		switch kindOf(w.key) {
		case string(federation.KindSite):
			names = signed.GatewaysOf(w.value)
		case kindGateway:
			if p := path(w.key, 1); p != nil {
				names = p
			}
		}
		for _, g := range names {
			if at := string(q.facts[kindGateway+"/"+g].value); federation.CheckLabel("site", at) == nil {
				keys = append(keys, join(federation.KindSite, at))
			}
		}
	}
	return keys
}

// mayDelete judges the deletion of what a site wrote about a volume: that site's part may, a person
// of its organization, the owner, and a gateway when the volume was purged.
func (q *request) mayDelete(w write, uuid, site string, part pki.Part) error {
	if f, known := q.facts[w.key]; known && f.revision == 0 {
		return nil // it is not there
	}
	if q.purged(uuid) {
		if q.who.Part == pki.PartPerson {
			return nil // nobody can use it any more
		}
		return q.gatewaysOnly(w)
	}
	ok, err := q.at(site, part)
	if err != nil || ok {
		return err
	}
	s, err := before[federation.Site](q, join(federation.KindSite, site))
	if err != nil {
		return err
	}
	v, err := before[federation.Volume](q, join(federation.KindVolume, uuid))
	if err != nil {
		return err
	}
	organization := ""
	if s != nil {
		organization = s.Organization
	}
	if q.removes(organization) {
		return nil
	}
	if v != nil {
		if ok, err = q.owner(v); err != nil || ok {
			return err
		}
	}
	return q.deny(w.key, "it is site %s's, or the volume's owner's, to delete", site)
}

// user reads the volume that somebody is to use, and judges who says so, and how much: a part of
// the site, or without parts a person of the volume's owner.
func (q *request) user(w write, uuid, site, namespace string, access federation.Access, parts ...pki.Part) error {
	v, err := before[federation.Volume](q, join(federation.KindVolume, uuid))
	if err != nil {
		return err
	}
	if v == nil || v.Deleted {
		return q.deny(w.key, "there is no such volume, or it is deleted")
	}
	if len(parts) == 0 {
		if !q.personOf(v.Owner) {
			return q.deny(w.key, "a person of its owner %q admits clients that are no nodes", v.Owner)
		}
		return nil
	}
	mine, err := q.at(site, parts...)
	if err != nil {
		return err
	}
	if !mine {
		return q.deny(w.key, "it is written at site %s", site)
	}
	most, err := q.allowed(v, site, namespace)
	switch {
	case err != nil:
		return err
	case most == "":
		return q.deny(w.key, "volume %s belongs to %s, who grants site %s nothing: ask the owner for a grant", v.Name, v.Owner, site)
	case !within(access, most):
		return q.deny(w.key, "volume %s is granted to site %s for %q, and this is %q: ask the owner for more", v.Name, site, most, access)
	}
	return nil
}

// admission is gatekeeper-6. One of a node needs an attachment that allows as much.
func (q *request) admission(w write) error {
	p := path(w.key, 3)
	if p == nil {
		return q.deny(w.key, "there is no such record")
	}
	site, uuid := p[0], p[1]
	if w.deletes {
		return q.mayDelete(w, uuid, site, pki.PartGateway)
	}
	a, err := after[federation.Admission](q, w)
	if err != nil {
		return err
	}
	if err := a.Validate(); err != nil {
		return q.deny(w.key, "%v", err)
	}
	if join(federation.KindAdmission, a.Site, a.Volume, a.Client) != w.key {
		return q.deny(w.key, "its value is of %s at %s to volume %s", a.Client, a.Site, a.Volume)
	}
	if a.Node == "" {
		return q.user(w, uuid, site, "", a.Access)
	}
	at, err := before[federation.Attachment](q, join(federation.KindAttachment, site, uuid, a.Node))
	if err != nil {
		return err
	}
	if at == nil || !within(a.Access, at.Access) {
		return q.deny(w.key, "node %s is not attached, or not for %q", a.Node, a.Access)
	}
	return q.user(w, uuid, site, "", a.Access, pki.PartGateway)
}

// attachment is gatekeeper-6.
func (q *request) attachment(w write) error {
	p := path(w.key, 3)
	if p == nil {
		return q.deny(w.key, "there is no such record")
	}
	if w.deletes {
		return q.mayDelete(w, p[1], p[0], pki.PartController)
	}
	a, err := after[federation.Attachment](q, w)
	if err != nil {
		return err
	}
	if err := a.Validate(); err != nil {
		return q.deny(w.key, "%v", err)
	}
	if join(federation.KindAttachment, a.Site, a.Volume, a.Node) != w.key {
		return q.deny(w.key, "its value is of node %s at %s to volume %s", a.Node, a.Site, a.Volume)
	}
	return q.user(w, a.Volume, a.Site, "", a.Access, pki.PartController)
}

// claim is gatekeeper-6.
func (q *request) claim(w write) error {
	p := path(w.key, 4)
	if p == nil {
		return q.deny(w.key, "there is no such record")
	}
	if w.deletes {
		return q.mayDelete(w, p[0], p[1], pki.PartOperator)
	}
	c, err := after[federation.Claim](q, w)
	if err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return q.deny(w.key, "%v", err)
	}
	if join(federation.KindClaim, c.Volume, c.Site, c.Namespace, c.Name) != w.key {
		return q.deny(w.key, "its value is of %s/%s at %s to volume %s", c.Namespace, c.Name, c.Site, c.Volume)
	}
	return q.user(w, c.Volume, c.Site, c.Namespace, c.Access, pki.PartOperator)
}
