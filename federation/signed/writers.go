// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"slices"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/pki"
)

func (c *checked) volume() error {
	v, err := recordOf[federation.Volume](c.value)
	if err != nil {
		return err
	}
	if err := c.called(federation.KindVolume, v.UUID); err != nil {
		return err
	}
	if err := c.titles(v); err != nil {
		return err
	}
	n := len(c.value.Deeds)
	switch {
	case c.who.Part == pki.PartPerson && c.who.Organization == v.Owner:
	case c.who.Part == pki.PartPerson && n > 0 && c.value.Deeds[n-1].From == c.who.Organization: // he gives it away with it
		if c.before != nil && len(c.before.Deeds) >= n {
			return c.never("it belongs to %q", v.Owner)
		}
	case c.who.Part == pki.PartOperator && c.who.Organization == v.Owner && v.OwnerSite != "" && c.who.Site == v.OwnerSite:
	case c.who.Part == pki.PartGateway && c.value.Because != nil:
		if err := c.timed(v); err != nil {
			return err
		}
	default:
		return c.never("it belongs to %q, site %q: its operator writes it, or a person of its owner", v.Owner, v.OwnerSite)
	}
	if c.before == nil {
		if c.look != nil && !c.is.First {
			if other := c.look("name/" + v.Name); other != nil && string(other) != v.UUID {
				return c.never("volume %s is known by its name %s", other, v.Name)
			}
		}
		return nil
	}
	was, err := recordOf[federation.Volume](*c.before)
	if err != nil {
		return nil //nolint:nilerr // as if it were not known
	}
	if err := c.given(was, v); err != nil {
		return err
	}
	if err := federation.CheckUpdate(*was, *v); err != nil {
		return c.deny("%v", err)
	}
	return nil
}

// timed checks that a deleted volume only got its time: a gateway gives it, if the release did not
// that deleted it. What it was is beside it.
func (c *checked) timed(is *federation.Volume) error {
	if err := c.Strict(c.key, c.value.Because, Known{Value: c.is.Value, First: true}, c.look); err != nil {
		if IsForgery(err) {
			return c.never("what it follows from: %v", err)
		}
		return c.deny("what it follows from: %v", err)
	}
	e, err := open(c.value.Because)
	if err != nil {
		return c.never("what it follows from: %v", err)
	}
	was, err := recordOf[federation.Volume](e)
	if err != nil || !was.Deleted || !was.PurgeAfter.IsZero() {
		return c.never("a gateway writes only when a deleted volume is purged")
	}
	was.PurgeAfter = is.PurgeAfter
	if !Same(*was, *is) || is.PurgeAfter.Sub(was.DeletedAt) < federation.TrashTime {
		return c.never("a gateway writes only when a deleted volume is purged")
	}
	return nil
}

// given checks that a volume belongs to whom it did, or was given away.
func (c *checked) given(was, is *federation.Volume) error {
	kept := len(c.before.Deeds)
	if len(c.value.Deeds) < kept || !slices.Equal(c.value.Deeds[:kept], c.before.Deeds) {
		return c.never("it does not have the deeds that it had")
	}
	owner := was.Owner
	for _, d := range c.value.Deeds[kept:] {
		if d.From != owner {
			return c.never("it belonged to %q, and %q gave it to %q", owner, d.From, d.To)
		}
		owner = d.To
	}
	if owner != is.Owner {
		return c.never("it belongs to %q, who did not give it to %q", owner, is.Owner)
	}
	return nil
}

// titles checks the deeds of a volume: each is signed by a person of who gave it.
func (c *checked) titles(v *federation.Volume) error {
	for i, d := range c.value.Deeds {
		st, who, err := c.creds.Verified(d.Signature)
		switch {
		case err != nil:
			return c.never("the deed from %q to %q: %v", d.From, d.To, err)
		case who.Part != pki.PartPerson || who.Organization != d.From || st.Key != deedKey(v.UUID) || st.Number != uint64(i)+1 ||
			!slices.Equal(st.Digest, d.digest()) || i > 0 && c.value.Deeds[i-1].To != d.From:
			return c.never("the deed from %q to %q is none: %s signed it", d.From, d.To, who)
		}
	}
	if n := len(c.value.Deeds); n > 0 && c.value.Deeds[n-1].To != v.Owner {
		return c.never("it was given to %q, and its owner is %q", c.value.Deeds[n-1].To, v.Owner)
	}
	return nil
}

func (c *checked) control() error {
	ctl, err := recordOf[federation.Control](c.value)
	if err != nil {
		return err
	}
	if err := c.called(federation.KindControl, ctl.Volume); err != nil {
		return err
	}
	home := ctl.Home
	switch {
	case c.number != ctl.Change:
		return c.never("it is of change %d", ctl.Change)
	case c.who.Part == pki.PartAdministrator && forces(ctl) && len(ctl.Members) == 1: // he decided between branches
	case c.who.Part != pki.PartGateway || c.who.Gateway != home.Gateway || c.who.Site != home.Site:
		return c.never("its home, %s at %s, writes it", home.Gateway, home.Site)
	}
	if c.look == nil {
		return nil
	}
	if c.who.Part == pki.PartGateway {
		if err := c.organization(home.Site); err != nil {
			return err
		}
	}
	v, ve := look[federation.Volume](c.look, federation.KindVolume, ctl.Volume)
	if v == nil {
		return c.deny("no such volume is known")
	}
	if c.before == nil {
		// A home that is to leave is none of the volume's sites any more.
		if !slices.Contains(v.Sites, home.Site) && (!c.is.First && !c.keyed(ctl.Volume, home.Site) || ctl.Change == 1) {
			return c.deny("the volume is to have no copy at site %s", home.Site)
		}
		return nil
	}
	was, err := recordOf[federation.Control](*c.before)
	if err != nil {
		return nil //nolint:nilerr // as if it were not known
	}
	if err := c.swapped(v, was, ctl); err != nil || c.who.Part == pki.PartAdministrator || !ctl.DescendsFrom(*was) {
		return err
	}
	return c.words(v, ve, was, ctl)
}

// forces reports whether a control record's epoch began by force.
func forces(c *federation.Control) bool {
	n := len(c.History)
	return n > 0 && c.History[n-1].Forced && c.History[n-1].Epoch == c.Epoch
}

// keyed reports whether a site has a volume's newest data key, as far as is known: then it was to
// have a copy, whatever the volume's record says now.
func (c *checked) keyed(volume, site string) bool {
	k, _ := look[federation.Keyring](c.look, federation.KindKeyring, volume)
	return k != nil && len(k.Newest()[site]) > 0
}

// swapped checks a control record against the one that is known, of which it need not be the next.
func (c *checked) swapped(v *federation.Volume, was, is *federation.Control) error {
	decided := c.who.Part == pki.PartAdministrator
	may := decided || slices.Contains(v.Sites, is.Home.Site) || was.CountsOn(is.Home) || c.keyed(v.UUID, is.Home.Site)
	next := is.Change == was.Change+1 && is.DescendsFrom(*was)
	switch {
	case is.Change <= was.Change:
		return c.deny("it is change %d, and %d is known", is.Change, was.Change)
	case !may && !next:
		return c.deny("the volume is to have no copy at site %s, and %s was no member", is.Home.Site, is.Home.Gateway)
	case !is.DescendsFrom(*was):
		return nil // a branch, which is told otherwise (protocol-7)
	case is.Epoch < was.Epoch, is.Epoch == was.Epoch && is.Home != was.Home:
		return c.never("home is %v in epoch %d, and it was %v in %d", is.Home, is.Epoch, was.Home, was.Epoch)
	case !next || decided:
		return nil
	}
	// It claims to be the next.
	if err := federation.CheckSwap(was, *is); err != nil {
		return c.never("%v", err)
	}
	switch {
	case is.Epoch == was.Epoch:
	case forces(is) && len(is.Members) != 1:
		return c.never("a gateway takes over by force for itself alone")
	case forces(is) && !may:
		return c.never("a gateway that may have a copy takes over by force")
	case !forces(is) && (!was.IsMember(is.Home) ||
		slices.ContainsFunc(is.Members, func(m federation.Member) bool { return !was.IsMember(m) })):
		return c.never("%v is no member, and takes over", is.Home)
	}
	return nil
}

func (c *checked) site() error {
	s, err := recordOf[federation.Site](c.value)
	if err != nil {
		return err
	}
	if err := c.called(federation.KindSite, s.Name); err != nil {
		return err
	}
	was := &federation.Site{}
	if text := c.is.Value; text != nil || c.is.Grave != nil {
		if text == nil { // a name stays with its organization
			text = c.is.Grave
		}
		e, err := open(text)
		if err == nil {
			was, err = recordOf[federation.Site](e)
		}
		if err != nil {
			was = &federation.Site{}
		}
	}
	if was.Organization != "" && was.Organization != s.Organization {
		return c.never("it belongs to %q, and not to %q", was.Organization, s.Organization)
	}
	switch p := c.who.Part; {
	case p == pki.PartAdministrator: // he takes gateways out
		if was.Organization != "" && (!Same(was.WrapKey, s.WrapKey) || slices.ContainsFunc(s.Gateways, func(g federation.Gateway) bool {
			return !slices.ContainsFunc(was.Gateways, func(x federation.Gateway) bool { return x.Name == g.Name })
		})) {
			return c.deny("an administrator takes gateways out, and no more")
		}
	case c.who.Organization != s.Organization:
		return c.never("it is a site of %q", s.Organization)
	case p == pki.PartPerson:
	case (p == pki.PartGateway || p == pki.PartOperator) && c.who.Site == s.Name:
	default:
		return c.never("its gateways and its operator write it")
	}
	if c.look == nil {
		return nil
	}
	for _, g := range s.Gateways {
		if at := c.look("gateway/" + g.Name); at != nil && string(at) != s.Name {
			return c.never("gateway %s is of site %s", g.Name, at)
		}
	}
	return nil
}

func (c *checked) admission() error {
	a, err := recordOf[federation.Admission](c.value)
	if err != nil {
		return err
	}
	if err := c.called(federation.KindAdmission, a.Site, a.Volume, a.Client); err != nil {
		return err
	}
	if a.Node != "" {
		return c.part(a.Site, pki.PartGateway)
	}
	if c.who.Part != pki.PartPerson {
		return c.never("a person of the volume's owner admits clients that are no nodes")
	}
	if c.look == nil {
		return nil
	}
	v, ve := look[federation.Volume](c.look, federation.KindVolume, a.Volume)
	switch {
	case v == nil:
		return c.deny("no such volume is known")
	case v.Owner != c.who.Organization && !c.owned(ve):
		return c.never("a person of the volume's owner admits clients that are no nodes")
	}
	return nil
}

func (c *checked) lost() error {
	l, err := recordOf[federation.Lost](c.value)
	if err != nil {
		return err
	}
	if err := c.called(federation.KindLost, l.Site); err != nil || c.who.Part == pki.PartAdministrator {
		return err
	}
	if c.who.Part != pki.PartPerson {
		return c.never("a person says that a site is lost")
	}
	return c.organization(l.Site)
}

func (c *checked) purged() error {
	p, err := recordOf[federation.Purge](c.value)
	if err != nil {
		return err
	}
	if err := c.called(federation.KindPurged, p.Volume); err != nil {
		return err
	}
	switch c.who.Part {
	case pki.PartGateway, pki.PartPerson, pki.PartAdministrator: // a person, of a gateway that is gone
	default:
		return c.never("a gateway purges")
	}
	if c.before != nil {
		was, err := recordOf[federation.Purge](*c.before)
		if err == nil && !shrinks(was, p) {
			return c.never("of a purge only gateways are taken away")
		}
		return nil
	}
	return c.deletion(p)
}

// shrinks reports whether a purge is another from which gateways were taken away.
func shrinks(was, is *federation.Purge) bool {
	fewer := *was
	fewer.Pending = is.Pending
	return Same(fewer, *is) && !slices.ContainsFunc(is.Pending, func(g string) bool { return !slices.Contains(was.Pending, g) })
}

// deletion checks what a purge follows from: the owner's word, or a purge of before, which an
// administrator has signed.
func (c *checked) deletion(p *federation.Purge) error {
	if c.value.Because == nil {
		return c.never("it does not have the word of the volume's owner, who deleted it")
	}
	e, err := open(c.value.Because)
	if err != nil {
		return c.never("what it follows from: %v", err)
	}
	if was, err := recordOf[federation.Purge](e); err == nil && was.Volume == p.Volume {
		if err := c.Strict(c.key, c.value.Because, Known{}, c.look); err != nil || !shrinks(was, p) {
			return c.never("the purge of before: %v", err)
		}
		return nil
	}
	key := string(federation.KindVolume) + "/" + p.Volume
	is := Known{First: true}
	if c.look != nil {
		is.Value = c.look(key)
	}
	if err := c.Strict(key, c.value.Because, is, c.look); err != nil {
		if IsForgery(err) {
			return c.never("the word of the volume's owner, who deleted it: %v", err)
		}
		return c.deny("the word of the volume's owner, who deleted it: %v", err)
	}
	v, err := recordOf[federation.Volume](e)
	if err != nil || !v.Deleted || v.UUID != p.Volume || p.At.Before(v.PurgeAt()) {
		return c.never("its owner did not delete the volume, or its time is not over")
	}
	if now := c.creds.Now(); now.Add(ahead).Before(v.PurgeAt()) {
		return c.deny("the volume's time is over at %s, and now it is %s", v.PurgeAt(), now)
	}
	return nil
}

// AuthorOf is somebody as the writer of a paper.
func AuthorOf(who pki.Identity) paper.Author {
	return paper.Author{Organization: who.Organization, Part: paper.Part(who.Part), Site: who.Site, Name: who.Gateway}
}

// paper checks a paper of the exchange (paper-1). Whose word it is, the certificate says.
func (c *checked) paper() error {
	p, err := recordOf[paper.Paper](c.value)
	if err != nil {
		return err
	}
	if err := p.Validate(); err != nil {
		return c.never("%v", err)
	}
	if err := c.called(federation.KindPaper, p.Name()); err != nil {
		return err
	}
	if err := p.WrittenBy(AuthorOf(c.who)); err != nil {
		return c.never("%v", err)
	}
	if c.before == nil {
		return nil
	}
	if was, err := recordOf[paper.Paper](*c.before); err == nil && was.Validate() == nil {
		if err := paper.Follows(*was, *p); err != nil {
			return c.deny("%v", err)
		}
	}
	return nil
}
