// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"slices"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/gatekeeper/papers"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// volume is gatekeeper-2.
func (q *request) volume(w write) error {
	uuid := path(w.key, 1)[0]
	prev, err := before[federation.Volume](q, w.key)
	if err != nil {
		return err
	}
	if w.deletes {
		if p := q.written(join(federation.KindPurged, uuid)); p == nil || p.deletes {
			return q.deny(w.key, "a volume's record goes when the volume is purged")
		}
		return nil // the purge is judged
	}
	next, err := after[federation.Volume](q, w)
	if err != nil {
		return err
	}
	if prev == nil {
		return q.makes(w, next)
	}
	if err := federation.CheckUpdate(*prev, *next); err != nil {
		return q.deny(w.key, "%v", err)
	}
	was := *prev
	was.PurgeAfter = next.PurgeAfter
	if prev.Deleted && prev.PurgeAfter.IsZero() && signed.Same(was, *next) && q.who.Part == pki.PartGateway &&
		next.PurgeAfter.Sub(q.now.Add(federation.TrashTime)).Abs() <= time.Hour {
		return q.gatewaysOnly(w)
	}
	ok, err := q.owner(prev)
	if ok && err == nil {
		err = q.placed(w, prev, next)
	}
	switch {
	case err != nil:
		return err
	case !ok:
		return q.deny(w.key, "it belongs to organization %q, site %q: its operator writes it, or a person of its owner", prev.Owner,
			prev.OwnerSite)
	case q.who.Part == pki.PartOperator &&
		(prev.Owner != next.Owner || prev.OwnerSite != next.OwnerSite || prev.OwnerCluster != next.OwnerCluster):
		return q.deny(w.key, "a person of its owner gives a volume to another site, an operator does not")
	}
	return nil
}

// placed judges where a volume is to be.
func (q *request) placed(w write, prev, next *federation.Volume) error {
	if c, _ := q.credentials.Charter(); c.Conceals && prev != nil {
		for _, s := range slices.Concat(prev.Sites, prev.Former) {
			if !slices.Contains(next.Sites, s) && !slices.Contains(next.Former, s) {
				return q.deny(w.key, "former does not have site %s, which had a copy and would not see that it is to have none", s)
			}
		}
	}
	if err := (papers.Placing{Prev: prev, Next: *next, Now: q.now, Seal: q.seal,
		Site: func(name string) (*federation.Site, error) {
			return before[federation.Site](q, join(federation.KindSite, name))
		},
		Read: func(key string) []byte { return q.facts[key].value }}).Judge(); err != nil {
		return q.deny(w.key, "%v", err)
	}
	return nil
}

// makes judges a new volume's record.
func (q *request) makes(w write, v *federation.Volume) error {
	if err := v.Validate(); err != nil {
		return q.deny(w.key, "%v", err)
	}
	name, ring := q.written(kindName+"/"+v.Name), q.written(join(federation.KindKeyring, v.UUID))
	switch {
	case join(federation.KindVolume, v.UUID) != w.key:
		return q.deny(w.key, "its value is of volume %s", v.UUID)
	case q.facts[join(federation.KindControl, v.UUID)].revision != 0:
		return q.deny(w.key, "there is a control record of a volume with this UUID")
	case q.facts[join(federation.KindPurged, v.UUID)].revision != 0:
		return q.deny(w.key, "the volume was purged, and a UUID is never used again")
	case name == nil || name.deletes || ring == nil || ring.deletes:
		return q.deny(w.key, "a volume is made together with its name and its keyring: upgrade the program that makes it")
	case v.Owner != q.who.Organization:
		return q.deny(w.key, "its owner is %q, and the certificate is of organization %q", v.Owner, q.who.Organization)
	case q.who.Part == pki.PartPerson && v.OwnerSite == "":
		return q.placed(w, nil, v)
	case q.who.Part != pki.PartOperator:
		return q.deny(w.key, "an operator makes a volume of its site, or a person one of no site")
	}
	ok, err := q.owner(v)
	if ok && err == nil {
		err = q.placed(w, nil, v)
	}
	if err == nil && !ok {
		err = q.deny(w.key, "its owner is site %s with cluster %s, which the operator is not of", v.OwnerSite, v.OwnerCluster)
	}
	return err
}

// name goes with its volume.
func (q *request) name(w write) error {
	uuid := string(q.facts[w.key].value)
	if w.deletes {
		v, err := before[federation.Volume](q, join(federation.KindVolume, uuid))
		if err != nil || uuid == "" {
			return err
		}
		if record := q.written(join(federation.KindVolume, uuid)); record == nil || !record.deletes || v == nil ||
			kindName+"/"+v.Name != w.key {
			return q.deny(w.key, "a volume's name goes when the volume is purged")
		}
		return nil
	}
	if uuid != "" {
		return q.deny(w.key, "it names volume %s", uuid)
	}
	record := q.written(join(federation.KindVolume, string(w.value)))
	if record == nil || record.deletes {
		return q.deny(w.key, "a name is taken together with its volume's record")
	}
	v, err := after[federation.Volume](q, *record)
	if err == nil && (kindName+"/"+v.Name != w.key || q.facts[record.key].revision != 0) {
		err = q.deny(w.key, "it is not the name of volume %s, or not of a new one", w.value)
	}
	return err
}

// mostSkipped is how many numbers of epochs a takeover may leave out, of a registry that was
// reconciled: what some log has may be newer than all that the registry heard of.
const mostSkipped = 1000

// control is gatekeeper-3.
func (q *request) control(w write) error {
	uuid := path(w.key, 1)[0]
	v, err := before[federation.Volume](q, join(federation.KindVolume, uuid))
	if err != nil {
		return err
	}
	if w.deletes {
		if p := q.written(join(federation.KindPurged, uuid)); p == nil || p.deletes {
			return q.deny(w.key, "a control record goes when the volume is purged")
		}
		return nil
	}
	prev, err := before[federation.Control](q, w.key)
	if err != nil {
		return err
	}
	next, err := after[federation.Control](q, w)
	if err != nil {
		return err
	}
	if err := federation.CheckSwap(prev, *next); err != nil {
		return q.deny(w.key, "%v", err)
	}
	heir := next.Clone()
	heir.Succeed(prev)
	switch {
	case next.Volume != uuid:
		return q.deny(w.key, "its value is of volume %s", next.Volume)
	case v == nil:
		return q.deny(w.key, "there is no such volume")
	case !signed.Same(heir, *next):
		return q.deny(w.key, "its change is %d and its trail does not end with the record that it replaces: read that again", next.Change)
	}
	if ok, err := q.at(q.who.Site, pki.PartGateway); err != nil {
		return err
	} else if !ok {
		return q.deny(w.key, "only a gateway of a registered site changes it")
	}
	if err := q.mayComeIn(w, v, prev, next); err != nil {
		return err
	}
	if prev == nil {
		return q.begins(w, v, next)
	}
	me := func(m federation.Member) bool { return m.Gateway == q.who.Gateway && m.Site == q.who.Site }
	if next.Epoch == prev.Epoch {
		if !me(prev.Home) {
			return q.deny(w.key, "in epoch %d only its home %s changes it", prev.Epoch, prev.Home.Gateway)
		}
		return nil
	}
	if !me(next.Home) {
		return q.deny(w.key, "the next epoch is taken by its home, %s, for itself", next.Home.Gateway)
	}
	if most := prev.Epoch + 1; next.Epoch > most && (q.facts[kindReconciled].revision == 0 || next.Epoch > most+mostSkipped) {
		return q.deny(w.key, "epoch %d does not follow %d", next.Epoch, prev.Epoch)
	}
	return q.takes(w, v, prev, next)
}

// mayComeIn judges the members that were none before.
func (q *request) mayComeIn(w write, v *federation.Volume, prev, next *federation.Control) error {
	for _, m := range next.Members {
		switch {
		case prev != nil && prev.IsMember(m):
		case q.siteOf(m.Gateway) != m.Site:
			return q.deny(w.key, "member %s is not a registered gateway of site %s", m.Gateway, m.Site)
		case slices.Contains(v.Sites, m.Site), prev != nil && prev.CountsOn(m):
		case prev != nil && v.IsBlind(q.who.Site) && q.inherits(v, m): // a steward hands on to a copy that is to go
		default:
			return q.deny(w.key, "member %s is at site %s, where the volume is to have no copy", m.Gateway, m.Site)
		}
	}
	return nil
}

// inherits reports whether a member is at a site of the volume's organization that has the newest
// data key.
func (q *request) inherits(v *federation.Volume, m federation.Member) bool {
	ring, err := before[federation.Keyring](q, join(federation.KindKeyring, v.UUID))
	s, err2 := before[federation.Site](q, join(federation.KindSite, m.Site))
	return err == nil && err2 == nil && ring != nil && s != nil && s.Organization == v.Owner && len(ring.Newest()[m.Site]) > 0
}

// begins judges the first control record.
func (q *request) begins(w write, v *federation.Volume, next *federation.Control) error {
	if v.Deleted || len(v.Sites) == 0 || v.Sites[0] != q.who.Site || next.Home.Site != q.who.Site || next.Home.Gateway != q.who.Gateway ||
		next.Epoch != 1 || len(next.Members) != 1 {
		return q.deny(w.key, "a gateway of the volume's first site makes it, for itself alone, in epoch 1")
	}
	return nil
}

// takes judges a takeover.
func (q *request) takes(w write, v *federation.Volume, prev, next *federation.Control) error {
	for _, e := range next.History {
		if e.Epoch != next.Epoch && !slices.Contains(prev.History, e) {
			return q.deny(w.key, "its history gains epoch %d, and what begins is epoch %d", e.Epoch, next.Epoch)
		}
	}
	last := next.History
	began := len(last) > 0 && last[len(last)-1].Epoch == next.Epoch
	if began && last[len(last)-1].Forced {
		if !slices.Contains(v.Sites, q.who.Site) && !prev.CountsOn(next.Home) || len(next.Members) != 1 {
			return q.deny(w.key, "a gateway that may have a copy takes over by force, for itself alone")
		}
		said := signed.Takeover{Volume: v.UUID, Gateway: q.who.Gateway, Epoch: prev.Epoch, Change: prev.Change}
		if err := q.seal.Allowed(last[len(last)-1].Word, said, v.Owner, q.now); err != nil {
			return q.deny(w.key, "epoch %d begins by force: %v", next.Epoch, err)
		}
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(prev.Members), func(m federation.Member) bool { return m == prev.Home })
	switch {
	case !began:
		return q.deny(w.key, "its history does not say where epoch %d began", next.Epoch)
	case !prev.IsMember(next.Home):
		return q.deny(w.key, "%v is no member: a member takes the next epoch", next.Home)
	case !slices.Equal(next.Members, prev.Members) && !slices.Equal(next.Members, rest):
		return q.deny(w.key, "a takeover leaves out the former home at most, and adds nobody")
	}
	return nil
}

// keyring is gatekeeper-4.
func (q *request) keyring(w write) error {
	uuid := path(w.key, 1)[0]
	record := q.written(join(federation.KindVolume, uuid))
	if w.deletes {
		if record == nil || !record.deletes {
			return q.deny(w.key, "a keyring goes when its volume is purged")
		}
		return nil
	}
	prev, err := before[federation.Keyring](q, w.key)
	if err != nil {
		return err
	}
	next, err := after[federation.Keyring](q, w)
	if err != nil {
		return err
	}
	if next.Volume != uuid {
		return q.deny(w.key, "its value is of volume %s", next.Volume)
	}
	v, err := before[federation.Volume](q, join(federation.KindVolume, uuid))
	if err != nil {
		return err
	}
	if v == nil {
		if record == nil || record.deletes {
			return q.deny(w.key, "a keyring is made together with its volume's record: upgrade the program that makes it")
		}
		return nil // who makes the volume is judged
	}
	if err := federation.CheckKeyring(prev, *next); err != nil {
		return q.deny(w.key, "%v", err)
	}
	if ok, err := q.owner(v); err != nil || ok {
		return err
	}
	return q.grows(w, v, prev, next)
}

// grows judges a keyring to which a home adds wraps.
func (q *request) grows(w write, v *federation.Volume, prev, next *federation.Keyring) error {
	c, err := before[federation.Control](q, join(federation.KindControl, next.Volume))
	if err != nil {
		return err
	}
	ok, err := q.at(q.who.Site, pki.PartGateway)
	if err != nil {
		return err
	}
	home := c != nil && c.Home.Gateway == q.who.Gateway && c.Home.Site == q.who.Site
	first := c == nil && len(v.Sites) > 0 && v.Sites[0] == q.who.Site // it begins, and there is nothing to read yet
	if !ok || !home && !first {
		return q.deny(w.key, "the volume's home adds to it, and its owner replaces it")
	}
	if prev == nil || next.Generation != prev.Generation+1 {
		return q.deny(w.key, "a home adds to the keyring that is there, as its next generation")
	}
	if err := keyring.GrownBy(q.who.Site, v.Blind, *prev, *next); err != nil {
		return q.deny(w.key, "a home changes no key that is wrapped, and takes none away: %v", err)
	}
	if len(next.Later) > len(prev.Later)+1 {
		return q.deny(w.key, "it has %d data keys more, and a home adds one", len(next.Later)-len(prev.Later))
	}
	return nil
}

// purge is gatekeeper-8.
func (q *request) purge(w write) error {
	uuid := path(w.key, 1)[0]
	prev, err := before[federation.Purge](q, w.key)
	if err != nil {
		return err
	}
	if w.deletes {
		if prev == nil {
			return nil
		}
		if len(prev.Pending) > 0 || q.now.Before(prev.At.Add(federation.PurgeKept)) {
			return q.deny(w.key, "it is remembered until %s, and until no gateway has anything of the volume",
				prev.At.Add(federation.PurgeKept).Format(time.RFC3339))
		}
		return q.gatewaysOnly(w)
	}
	next, err := after[federation.Purge](q, w)
	if err != nil {
		return err
	}
	if prev != nil {
		return q.leaves(w, prev, next)
	}
	v, err := before[federation.Volume](q, join(federation.KindVolume, uuid))
	if err != nil {
		return err
	}
	c, err := before[federation.Control](q, join(federation.KindControl, uuid))
	if err != nil {
		return err
	}
	if err := next.Validate(); err != nil {
		return q.deny(w.key, "%v", err)
	}
	goes := func(key string) bool {
		x := q.written(key)
		return x != nil && x.deletes
	}
	switch {
	case v == nil || !goes(join(federation.KindVolume, uuid)) || !goes(kindName+"/"+v.Name) || !goes(join(federation.KindKeyring, uuid)) ||
		!goes(join(federation.KindControl, uuid)):
		return q.deny(w.key, "a purge is written when the volume's record, name, keyring and control record go")
	case !v.Deleted || v.PurgeAfter.IsZero() || q.now.Before(v.PurgeAfter):
		return q.deny(w.key, "the volume is not deleted, or its time is not over")
	case next.At.Sub(q.now).Abs() > time.Hour:
		return q.deny(w.key, "it is of %s, and now it is %s", next.At.Format(time.RFC3339), q.now.Format(time.RFC3339))
	}
	want := federation.Purge{Volume: uuid, At: next.At, Size: v.Spec.Size, Sites: v.Sites, Generation: v.Generation, Pending: next.Pending}
	if next.Name == v.Name {
		want.Name = v.Name
	}
	if c != nil {
		want.Change = c.Change
		for _, m := range c.Members {
			if !slices.Contains(next.Pending, m.Gateway) && q.siteOf(m.Gateway) != "" {
				return q.deny(w.key, "member %s has a copy, and is not among those that are to delete theirs", m.Gateway)
			}
		}
	}
	if !signed.Same(want, *next) {
		return q.deny(w.key, "it does not say what the volume's record said")
	}
	return q.gatewaysOnly(w)
}

// leaves judges a purge of which somebody takes gateways away.
func (q *request) leaves(w write, prev, next *federation.Purge) error {
	was := *prev
	was.Pending = next.Pending
	left := slices.DeleteFunc(slices.Clone(prev.Pending), func(g string) bool { return slices.Contains(next.Pending, g) })
	more := slices.ContainsFunc(next.Pending, func(g string) bool { return !slices.Contains(prev.Pending, g) })
	if more || !signed.Same(was, *next) {
		return q.deny(w.key, "of a purge only gateways are taken away")
	}
	if q.who.Part == pki.PartPerson || q.who.Part == pki.PartAdministrator {
		return q.personLeaves(w, left)
	}
	if len(left) != 1 || left[0] != q.who.Gateway {
		return q.deny(w.key, "a gateway takes itself away, and no other")
	}
	return q.gatewaysOnly(w)
}
