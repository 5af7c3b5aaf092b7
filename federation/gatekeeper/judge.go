// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"errors"
	"slices"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// reads reports whether a part of the federation may read the registry (gatekeeper-1).
func reads(p pki.Part) bool {
	switch p {
	case pki.PartGateway, pki.PartOperator, pki.PartController, pki.PartPerson, pki.PartAdministrator, pki.PartStore:
		return true
	}
	return false
}

// judge returns why a request is refused (*denial), or that a record cannot be read; nil: it is
// allowed.
func judge(q *request) error {
	seen := map[string]bool{}
	for _, w := range q.writes {
		if seen[w.key] {
			return q.deny(w.key, "it is written twice in one request")
		}
		seen[w.key] = true
		if err := q.judge(w); err != nil {
			return err
		}
	}
	return nil
}

// mostValue is how large a record may be, in bytes: a registry is no place for more.
const mostValue = 256 << 10

func (q *request) judge(w write) error {
	if w.key == kindCharter && !w.prefixed {
		return q.charter(w)
	}
	if done, err := q.signature(w); done || err != nil {
		return err
	}
	err := q.rules(w)
	if d := (*denial)(nil); errors.As(err, &d) && q.putsBack(w) {
		return nil // its own word, over what somebody forged
	}
	return err
}

// rules judges a write by the rules of its kind.
func (q *request) rules(w write) error {
	if q.who.Part == pki.PartAdministrator && (q.refused || w.prefixed || w.key == kindReconciled) {
		return q.reconciles(w)
	}
	if len(w.value) > mostValue {
		return q.deny(w.key, "it has %d bytes, and %d are the most", len(w.value), mostValue)
	}
	if w.prefixed {
		return q.deny(w.key, "many records at once are deleted by an administrator only, to end a reconciliation")
	}
	if path(w.key, 1) == nil {
		return q.deny(w.key, "there is no such record")
	}
	switch federation.Kind(kindOf(w.key)) {
	case federation.KindVolume:
		return q.volume(w)
	case kindName:
		return q.name(w)
	case federation.KindControl:
		return q.control(w)
	case federation.KindKeyring:
		return q.keyring(w)
	case federation.KindSite:
		return q.siteRecord(w)
	case kindGateway:
		return q.gatewayName(w)
	case federation.KindAdmission:
		return q.admission(w)
	case federation.KindAttachment:
		return q.attachment(w)
	case federation.KindClaim:
		return q.claim(w)
	case federation.KindLost:
		return q.lost(w)
	case federation.KindPurged:
		return q.purge(w)
	case federation.KindObserved:
		return q.observed(w)
	case federation.KindPaper:
		return q.paper(w)
	case kindNotice, kindTestimony, kindCanary:
		return q.own(w)
	case federation.KindAlive:
		return q.deny(w.key, "a heartbeat is bound to a lease")
	}
	return q.deny(w.key, "there is no such record")
}

// reconciles is gatekeeper-9, of a registry that went back.
func (q *request) reconciles(w write) error {
	switch {
	case w.prefixed && (w.key == kindNotice+"/" || w.key == kindTestimony+"/") && w.deletes && q.written(kindReconciled) != nil:
		return nil
	case w.prefixed:
		return q.deny(w.key, "many records at once are deleted only to end a reconciliation, which is written with it")
	case w.key == kindReconciled && !w.deletes:
		r, err := after[federation.Reconciliation](q, w)
		if err == nil && r.By != q.who.String() {
			err = q.deny(w.key, "it is by %q, and the certificate is of %q", r.By, q.who)
		}
		return err
	case w.key != kindReconciled && q.refused:
		return nil
	}
	return q.deny(w.key, "no gateway says that the registry went back")
}

// own is for what a gateway writes of its own (gatekeeper-5).
func (q *request) own(w write) error {
	name := path(w.key+"/", 2)[0]
	ok, err := q.gateway(name)
	if err != nil {
		return err
	}
	if !ok {
		return q.deny(w.key, "it is written by gateway %s, registered at its site, and nobody else", name)
	}
	if w.deletes {
		return nil
	}
	switch kindOf(w.key) {
	case kindNotice:
		return q.notice(w, name)
	case kindTestimony:
		return q.testimony(w, name)
	}
	_, err = after[struct {
		After federation.Revision `json:"after"`
	}](q, w)
	return q.unreadable(w, err)
}

// unreadable refuses a value that is no record: who reads it could not go on.
func (q *request) unreadable(w write, err error) error {
	if err != nil {
		err = q.deny(w.key, "%v", err)
	}
	return err
}

// notice judges what a gateway says of a registry that went back: in its own name. It may know of a
// later reconciliation than the registry, but of none that is still to come.
func (q *request) notice(w write, name string) error {
	n, err := after[federation.Notice](q, w)
	if err != nil {
		return q.unreadable(w, err)
	}
	if n.Gateway != name || n.Reconciled > q.now.Add(time.Hour).UTC().Format(reconciliationForm) {
		return q.deny(w.key, "it is of gateway %q, and knows of reconciliation %q", n.Gateway, n.Reconciled)
	}
	return nil
}

// reconciliationForm is how IDs of reconciliations begin, which ascend: with the time.
const reconciliationForm = "20060102T150405"

// testimony judges what a gateway knows better than a registry that went back, which it said first.
func (q *request) testimony(w write, name string) error {
	t, err := after[federation.Testimony](q, w)
	if err != nil {
		return q.unreadable(w, err)
	}
	if p := path(w.key, 2); p == nil || t.Gateway != name || t.Key != p[1] {
		return q.deny(w.key, "it is of gateway %q about %q", t.Gateway, t.Key)
	}
	if q.facts[kindNotice+"/"+name].revision == 0 && q.written(kindNotice+"/"+name) == nil {
		return q.deny(w.key, "gateway %s does not say that the registry went back", name)
	}
	return nil
}

func (q *request) observed(w write) error {
	p := path(w.key, 2)
	if p == nil {
		return q.deny(w.key, "there is no such record")
	}
	if w.deletes && q.purged(p[0]) {
		return q.gatewaysOnly(w)
	}
	ok, err := q.gateway(p[1])
	if err != nil {
		return err
	}
	if !ok || w.deletes {
		return q.deny(w.key, "it is written by gateway %s, registered at its site, and nobody else", p[1])
	}
	if q.facts[join(federation.KindVolume, p[0])].revision == 0 {
		return q.deny(w.key, "there is no such volume")
	}
	o, err := after[federation.Observed](q, w)
	if err == nil && (o.Volume != p[0] || o.Gateway != p[1]) {
		err = q.deny(w.key, "its value is of volume %s and gateway %s", o.Volume, o.Gateway)
	}
	return err
}

// purged reports whether a volume's records are gone for good.
func (q *request) purged(uuid string) bool {
	return q.facts[join(federation.KindPurged, uuid)].revision != 0 && q.facts[join(federation.KindVolume, uuid)].revision == 0
}

// gatewaysOnly allows what any registered site's gateway may do.
func (q *request) gatewaysOnly(w write) error {
	if q.who.Part == pki.PartAdministrator {
		return nil
	}
	ok, err := q.at(q.who.Site, pki.PartGateway)
	if err == nil && !ok {
		err = q.deny(w.key, "a gateway of a registered site does that")
	}
	return err
}

// siteRecord is gatekeeper-5 for the record of a site.
func (q *request) siteRecord(w write) error {
	prev, err := before[federation.Site](q, w.key)
	if err != nil {
		return err
	}
	if w.deletes {
		if prev != nil && !q.removes(prev.Organization) {
			return q.deny(w.key, "a person of its organization %q removes a site, or an administrator", prev.Organization)
		}
		return nil
	}
	next, err := after[federation.Site](q, w)
	if err != nil {
		return err
	}
	if err := next.Validate(); err != nil {
		return q.deny(w.key, "%v", err)
	}
	if join(federation.KindSite, next.Name) != w.key {
		return q.deny(w.key, "its value is of site %s", next.Name)
	}
	if prev != nil && prev.Organization != next.Organization {
		return q.deny(w.key, "it belongs to organization %q, and not to %q", prev.Organization, next.Organization)
	}
	for _, g := range next.Gateways {
		if of := q.siteOf(g.Name); of != "" && of != next.Name {
			return q.deny(w.key, "gateway %s is of site %s", g.Name, of)
		}
	}
	switch {
	case q.who.Part == pki.PartPerson || q.who.Part == pki.PartAdministrator:
		if prev == nil || !q.removes(prev.Organization) || !signed.OnlyRemoves(*prev, *next) {
			return q.deny(w.key, "a person of its organization may take gateways out of it, and no more")
		}
		return nil
	case q.who.Site != next.Name || q.who.Organization != next.Organization:
	case q.who.Part == pki.PartGateway:
		return q.registers(w, prev, next)
	case q.who.Part == pki.PartOperator:
		was := federation.Site{}
		if prev != nil {
			was = *prev
		}
		was.Name, was.Organization = next.Name, next.Organization
		was.Cluster, was.Region, was.Labels = next.Cluster, next.Region, next.Labels
		if prev != nil && prev.Cluster != "" && prev.Cluster != next.Cluster || !signed.Same(was, *next) {
			return q.deny(w.key, "an operator writes cluster, region and labels of its own cluster's site")
		}
		return nil
	}
	return q.deny(w.key, "it is the record of site %s of organization %q", next.Name, next.Organization)
}

// registers is a gateway's own registration.
func (q *request) registers(w write, prev, next *federation.Site) error {
	mine := func(g federation.Gateway) bool { return g.Name == q.who.Gateway }
	others := func(s *federation.Site) []federation.Gateway {
		if s == nil {
			return nil
		}
		return slices.DeleteFunc(slices.Clone(s.Gateways), mine)
	}
	switch {
	case !slices.ContainsFunc(next.Gateways, mine):
		return q.deny(w.key, "a gateway registers itself, and %s is not in it", q.who.Gateway)
	case !slices.EqualFunc(others(prev), others(next), func(a, b federation.Gateway) bool { return signed.Same(a, b) }):
		return q.deny(w.key, "a gateway registers itself, and changes no other gateway's entry")
	case prev == nil && next.Cluster != "":
		return q.deny(w.key, "the operator says which cluster the site is")
	case prev != nil && prev.Cluster != "" && (prev.Cluster != next.Cluster || prev.Region != next.Region || !signed.Same(prev.Labels,
		next.Labels)):
		return q.deny(w.key, "cluster, region and labels are written by the site's operator")
	}
	return nil
}

// gatewayName is gatekeeper-5 for the index of gateways.
func (q *request) gatewayName(w write) error {
	name := path(w.key, 1)[0]
	was := q.siteOf(name)
	if w.deletes {
		s, err := before[federation.Site](q, join(federation.KindSite, was))
		if err != nil || was == "" {
			return err
		}
		if site := q.written(join(federation.KindSite, was)); site == nil {
			return q.deny(w.key, "a gateway's name goes together with its entry in the record of site %s", was)
		} else if s == nil {
			return nil // its site's record is judged, and there is none
		}
		if !q.removes(s.Organization) {
			return q.deny(w.key, "a person of organization %q removes it, or an administrator", s.Organization)
		}
		return nil
	}
	site := string(w.value)
	switch record := q.written(join(federation.KindSite, site)); {
	case was != "" && was != site:
		return q.deny(w.key, "site %s has a gateway of that name", was)
	case q.who.Part != pki.PartGateway || q.who.Gateway != name || q.who.Site != site:
		return q.deny(w.key, "gateway %s of site %s registers itself", name, site)
	case record == nil || record.deletes:
		return q.deny(w.key, "a gateway's name is taken together with its entry in the site's record")
	}
	return nil
}

// lost is gatekeeper-7.
func (q *request) lost(w write) error {
	site := path(w.key, 1)[0]
	s, err := before[federation.Site](q, join(federation.KindSite, site))
	if err != nil {
		return err
	}
	organization := ""
	if s != nil {
		organization = s.Organization
	}
	if !q.removes(organization) {
		return q.deny(w.key, "a person of its organization %q says that a site is lost or found, or an administrator", organization)
	}
	if w.deletes {
		return nil
	}
	l, err := after[federation.Lost](q, w)
	if err == nil && (l.Site != site || l.By != q.who.String()) {
		err = q.deny(w.key, "its value is of site %s and by %s", l.Site, l.By)
	}
	return err
}
