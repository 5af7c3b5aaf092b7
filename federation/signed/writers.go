// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

func (c *checked) control() error {
	ctl, err := recordOf[federation.Control](c.value)
	if err != nil {
		return err
	}
	home := ctl.Home
	n := len(ctl.History)
	forced := n > 0 && ctl.History[n-1].Forced && ctl.History[n-1].Epoch == ctl.Epoch
	switch {
	case string(federation.KindControl)+"/"+ctl.Volume != c.key || c.number != ctl.Change:
		return c.deny("it is of volume %s and change %d", ctl.Volume, ctl.Change)
	case c.who.Part == pki.PartAdministrator && forced && len(ctl.Members) == 1: // he decided between branches
	case c.who.Part != pki.PartGateway || c.who.Gateway != home.Gateway || c.who.Site != home.Site:
		return c.deny("its home, %s at %s, writes it", home.Gateway, home.Site)
	}
	if c.look == nil {
		return nil
	}
	if c.who.Part == pki.PartGateway {
		if err := c.organization(home.Site); err != nil {
			return err
		}
	}
	v, _ := look[federation.Volume](c.look, federation.KindVolume, ctl.Volume)
	if v == nil {
		return c.deny("no such volume is known")
	}
	if c.before == nil || slices.Contains(v.Sites, home.Site) {
		return nil
	}
	was, err := recordOf[federation.Control](*c.before)
	if err != nil || was.CountsOn(home) {
		return nil //nolint:nilerr // as if it were not known
	}
	return c.deny("the volume is to have no copy at site %s, and %s was no member", home.Site, home.Gateway)
}

func (c *checked) site() error {
	s, err := recordOf[federation.Site](c.value)
	if err != nil {
		return err
	}
	if string(federation.KindSite)+"/"+s.Name != c.key {
		return c.deny("it is site %s", s.Name)
	}
	var was *federation.Site
	if c.before != nil {
		if was, err = recordOf[federation.Site](*c.before); err != nil {
			was = nil
		}
	}
	if was != nil && was.Organization != s.Organization {
		return c.deny("it belongs to %q, and not to %q", was.Organization, s.Organization)
	}
	switch p := c.who.Part; {
	case p == pki.PartAdministrator && (was == nil || OnlyRemoves(*was, *s)):
	case c.who.Organization != s.Organization:
		return c.deny("it is a site of %q", s.Organization)
	case p == pki.PartPerson && (was == nil || OnlyRemoves(*was, *s)):
	case (p == pki.PartGateway || p == pki.PartOperator) && c.who.Site == s.Name:
	default:
		return c.deny("its gateways and its operator write it")
	}
	return nil
}

func (c *checked) admission() error {
	a, err := recordOf[federation.Admission](c.value)
	if err != nil {
		return err
	}
	if strings.Join([]string{string(federation.KindAdmission), a.Site, a.Volume, a.Client}, "/") != c.key {
		return c.deny("it is of %s at %s to volume %s", a.Client, a.Site, a.Volume)
	}
	if a.Node != "" {
		return c.part(0, 3, pki.PartGateway)
	}
	if c.who.Part != pki.PartPerson {
		return c.deny("a person of the volume's owner admits clients that are no nodes")
	}
	if c.look == nil {
		return nil
	}
	v, ve := look[federation.Volume](c.look, federation.KindVolume, a.Volume)
	if v == nil || v.Owner != c.who.Organization && !c.owned(ve) {
		return c.deny("a person of the volume's owner admits clients that are no nodes")
	}
	return nil
}

// owned reports whether the signer's organization owned a volume when it signed.
func (c *checked) owned(v envelope) bool {
	return slices.ContainsFunc(v.Deeds, func(d deed) bool {
		st, _, err := c.creds.Verified(d.Signature)
		return err == nil && d.From == c.who.Organization && !c.at.After(time.Unix(st.At, 0))
	})
}

func (c *checked) lost() error {
	names, err := c.names(1)
	if err != nil || c.who.Part == pki.PartAdministrator {
		return err
	}
	if c.who.Part != pki.PartPerson {
		return c.deny("a person says that a site is lost")
	}
	return c.organization(names[0])
}

func (c *checked) purged() error {
	p, err := recordOf[federation.Purge](c.value)
	if err != nil {
		return err
	}
	if string(federation.KindPurged)+"/"+p.Volume != c.key {
		return c.deny("it is of volume %s", p.Volume)
	}
	if c.before != nil {
		if was, err := recordOf[federation.Purge](*c.before); err == nil {
			fewer := *was
			fewer.Pending = p.Pending
			if !Same(fewer, *p) || slices.ContainsFunc(p.Pending, func(g string) bool { return !slices.Contains(was.Pending, g) }) {
				return c.deny("of a purge only gateways are taken away")
			}
		}
	}
	switch c.who.Part {
	case pki.PartGateway:
		if err := c.organization(c.who.Site); err != nil {
			return err
		}
	case pki.PartPerson, pki.PartAdministrator: // of a gateway that is gone
	default:
		return c.deny("a gateway purges")
	}
	if c.before != nil {
		return nil
	}
	return c.deletion(p)
}

// deletion checks what a purge follows from.
func (c *checked) deletion(p *federation.Purge) error {
	key := string(federation.KindVolume) + "/" + p.Volume
	if c.value.Because == nil {
		if c.Since().IsZero() {
			return nil
		}
		return c.deny("it does not have the word of the volume's owner, who deleted it")
	}
	var known []byte
	if c.look != nil {
		known = c.look(key)
	}
	if err := c.Check(key, c.value.Because, known, c.look); err != nil {
		return c.deny("the word of the volume's owner, who deleted it: %v", err)
	}
	e, err := open(c.value.Because)
	if err != nil {
		return c.deny("the word of the volume's owner, who deleted it: %v", err)
	}
	v, err := recordOf[federation.Volume](e)
	if err != nil || !v.Deleted || v.UUID != p.Volume || p.At.Before(v.PurgeAt()) {
		return c.deny("its owner did not delete the volume, or its time is not over")
	}
	if now := c.creds.Now(); now.Add(time.Hour).Before(v.PurgeAt()) {
		return c.deny("the volume's time is over at %s, and now it is %s", v.PurgeAt(), now)
	}
	return nil
}
