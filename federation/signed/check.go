// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/pki"
)

// Lookup returns the value of another record, as far as it counts; nil: there is none. A nil Lookup
// knows of no other: then only what the record says of itself is checked.
type Lookup func(key string) []byte

// look reads another record; nil: there is none that can be read.
func look[T any](l Lookup, kind federation.Kind, name string) (*T, envelope) {
	if l == nil {
		return nil, envelope{}
	}
	value := l(string(kind) + "/" + name)
	if value == nil {
		return nil, envelope{}
	}
	e, err := open(value)
	if err != nil {
		return nil, e
	}
	out, err := recordOf[T](e)
	if err != nil {
		return nil, e
	}
	return out, e
}

// checked is one value that is checked.
type checked struct {
	*Seal
	key    string
	value  envelope
	number uint64
	at     time.Time
	who    pki.Identity
	known  []byte    // what is known of the key
	before *envelope // that; nil: nothing is
	look   Lookup
}

// Check returns why a value does not count, as signed-2 to signed-4 say; nil: it does. before is
// the value of the key that is known, nil for none: that one counts without being checked.
func (s *Seal) Check(key string, value, before []byte, look Lookup) error {
	if s == nil || !Covers(key) || before != nil && bytes.Equal(value, before) {
		return nil
	}
	e, err := open(value)
	if err != nil {
		return nil //nolint:nilerr // who decodes it gets the error
	}
	c := &checked{Seal: s, key: key, value: e, known: before, look: look}
	if before != nil {
		if was, err := open(before); err == nil {
			c.before = &was
		}
	}
	if e.Signature == "" {
		if s.Since().IsZero() {
			return nil
		}
		return errors.New("it has no signature")
	}
	st, who, err := s.creds.Verified(e.Signature)
	if err != nil {
		return err
	}
	if st.Key != key || !bytes.Equal(st.Digest, digest(e.Record)) {
		return fmt.Errorf("its signature, by %s, is of %s and of another record", who, st.Key)
	}
	c.number, c.who, c.at = st.Number, who, time.Unix(st.At, 0)
	if who.Part == pki.PartAdministrator && c.endorsed() {
		return nil
	}
	if err := c.follows(); err != nil {
		return err
	}
	return c.writer()
}

// endorsed reports whether an administrator signed what had no signature (signed-7).
func (c *checked) endorsed() bool {
	since := c.Since()
	return !since.IsZero() && !c.at.After(since) &&
		(c.before == nil || c.before.Signature == "" || bytes.Equal(c.before.Record, c.value.Record))
}

// follows checks the number of a record against that of the one which is known.
func (c *checked) follows() error {
	if c.before == nil || !counted(c.key) {
		return nil
	}
	if n, _, err := c.Seal.number(c.key, *c.before); err == nil && c.number <= n {
		return fmt.Errorf("it is write %d of %s, and write %d is known", c.number, c.who, n)
	}
	return nil
}

func (c *checked) deny(format string, a ...any) error {
	return fmt.Errorf("it is signed by %s as %q: %s", c.who, c.who.Part, fmt.Sprintf(format, a...))
}

// names are the words of the key behind its kind, of which there are n.
func (c *checked) names(n int) ([]string, error) {
	parts := strings.SplitN(c.key, "/", n+1)
	if len(parts) != n+1 {
		return nil, c.deny("there is no such record")
	}
	return parts[1:], nil
}

func (c *checked) writer() error {
	switch KindOf(c.key) {
	case federation.KindVolume:
		return c.volume()
	case federation.KindKeyring:
		return c.keyring()
	case federation.KindControl:
		return c.control()
	case federation.KindSite:
		return c.site()
	case federation.KindAdmission:
		return c.admission()
	case federation.KindAttachment:
		return c.part(0, 3, pki.PartController)
	case federation.KindClaim:
		return c.part(1, 4, pki.PartOperator)
	case federation.KindLost:
		return c.lost()
	case federation.KindPurged:
		return c.purged()
	case federation.KindObserved:
		return c.gateway(1, 2)
	case kindNotice, kindCanary:
		return c.gateway(0, 1)
	case kindTestimony:
		return c.gateway(0, 2)
	case kindReconciled:
		if c.who.Part != pki.PartAdministrator {
			return c.deny("an administrator says that the registry was reconciled")
		}
	}
	return nil
}

// organization checks that the signer is of the organization which a site belongs to.
func (c *checked) organization(site string) error {
	if c.look == nil {
		return nil
	}
	s, _ := look[federation.Site](c.look, federation.KindSite, site)
	switch {
	case s == nil:
		return c.deny("no site %s is known", site)
	case s.Organization != c.who.Organization:
		return c.deny("site %s belongs to %q", site, s.Organization)
	}
	return nil
}

// part checks that a part of the site which the key names signed.
func (c *checked) part(at, of int, p pki.Part) error {
	names, err := c.names(of)
	if err != nil {
		return err
	}
	if c.who.Part != p || c.who.Site != names[at] {
		return c.deny("the %s of site %s writes it", p, names[at])
	}
	return c.organization(names[at])
}

// gateway checks that the gateway which the key names signed, and is registered.
func (c *checked) gateway(at, of int) error {
	names, err := c.names(of)
	if err != nil {
		return err
	}
	if c.who.Part != pki.PartGateway || c.who.Gateway != names[at] {
		return c.deny("gateway %s writes it", names[at])
	}
	if err := c.organization(c.who.Site); err != nil || c.look == nil {
		return err
	}
	s, _ := look[federation.Site](c.look, federation.KindSite, c.who.Site)
	if !slices.ContainsFunc(s.Gateways, func(g federation.Gateway) bool { return g.Name == names[at] }) {
		return c.deny("site %s has no gateway %s", s.Name, names[at])
	}
	return nil
}

// owners are the organizations that a volume belongs to, and belonged to before.
func owners(v *federation.Volume, e envelope) []string {
	out := []string{v.Owner}
	for _, d := range e.Deeds {
		out = append(out, d.From)
	}
	return out
}

func (c *checked) volume() error {
	v, err := recordOf[federation.Volume](c.value)
	if err != nil {
		return err
	}
	if string(federation.KindVolume)+"/"+v.UUID != c.key {
		return c.deny("it is volume %s", v.UUID)
	}
	if err := c.titles(v); err != nil {
		return err
	}
	var was *federation.Volume
	if c.before != nil {
		if was, err = recordOf[federation.Volume](*c.before); err != nil {
			was = nil
		}
	}
	if was != nil {
		if err := federation.CheckUpdate(*was, *v); err != nil {
			return c.deny("%v", err)
		}
		if err := c.given(was, v); err != nil {
			return err
		}
	}
	switch n := len(c.value.Deeds); {
	case c.who.Part == pki.PartPerson && (c.who.Organization == v.Owner || n > 0 && c.value.Deeds[n-1].From == c.who.Organization &&
		(was == nil || was.Owner == c.who.Organization)):
	case c.who.Part == pki.PartOperator && c.who.Organization == v.Owner && v.OwnerSite != "" && c.who.Site == v.OwnerSite:
	case c.who.Part == pki.PartGateway && c.timed(v):
	default:
		return c.deny("it belongs to %q, site %q: its operator writes it, or a person of its owner", v.Owner, v.OwnerSite)
	}
	return nil
}

// timed reports whether a deleted volume only got its time: a gateway gives it, if the release did
// not that deleted it.
func (c *checked) timed(is *federation.Volume) bool {
	if c.value.Because == nil || c.Check(c.key, c.value.Because, c.known, c.look) != nil {
		return false
	}
	e, err := open(c.value.Because)
	if err != nil {
		return false
	}
	was, err := recordOf[federation.Volume](e)
	if err != nil || !was.Deleted || !was.PurgeAfter.IsZero() {
		return false
	}
	was.PurgeAfter = is.PurgeAfter
	return Same(was, is) && is.PurgeAfter.Sub(was.DeletedAt) >= federation.TrashTime
}

// given checks that a volume belongs to whom it did, or was given away.
func (c *checked) given(was, is *federation.Volume) error {
	kept := len(c.before.Deeds)
	if len(c.value.Deeds) < kept || !slices.Equal(c.value.Deeds[:kept], c.before.Deeds) {
		return c.deny("it does not have the deeds that it had")
	}
	owner := was.Owner
	for _, d := range c.value.Deeds[kept:] {
		if d.From != owner {
			return c.deny("it belonged to %q, and %q gave it to %q", owner, d.From, d.To)
		}
		owner = d.To
	}
	if owner != is.Owner {
		return c.deny("it belongs to %q, who did not give it to %q", owner, is.Owner)
	}
	return nil
}

// titles checks the deeds of a volume: each is signed by a person of who gave it.
func (c *checked) titles(v *federation.Volume) error {
	for i, d := range c.value.Deeds {
		st, who, err := c.creds.Verified(d.Signature)
		switch {
		case err != nil:
			return c.deny("the deed from %q to %q: %v", d.From, d.To, err)
		case who.Part != pki.PartPerson || who.Organization != d.From || st.Key != deedKey(v.UUID) || st.Number != uint64(i)+1 ||
			!bytes.Equal(st.Digest, d.digest()) || i > 0 && c.value.Deeds[i-1].To != d.From:
			return c.deny("the deed from %q to %q is none: %s signed it", d.From, d.To, who)
		}
	}
	if n := len(c.value.Deeds); n > 0 && c.value.Deeds[n-1].To != v.Owner {
		return c.deny("it was given to %q, and its owner is %q", c.value.Deeds[n-1].To, v.Owner)
	}
	return nil
}

func (c *checked) keyring() error {
	k, err := recordOf[federation.Keyring](c.value)
	if err != nil {
		return err
	}
	if string(federation.KindKeyring)+"/"+k.Volume != c.key {
		return c.deny("it is of volume %s", k.Volume)
	}
	var was *federation.Keyring
	if c.before != nil {
		if was, err = recordOf[federation.Keyring](*c.before); err != nil {
			was = nil
		}
	}
	if was != nil && k.Generation <= was.Generation {
		return c.deny("it is generation %d, and %d is known", k.Generation, was.Generation)
	}
	if c.look == nil {
		return nil
	}
	v, ve := look[federation.Volume](c.look, federation.KindVolume, k.Volume)
	if v == nil {
		return c.deny("no such volume is known")
	}
	may := []string{v.Owner}
	if was == nil { // the one who gave the volume away made it
		may = owners(v, ve)
	}
	switch {
	case c.who.Part == pki.PartPerson && slices.Contains(may, c.who.Organization):
		return nil
	case c.who.Part == pki.PartOperator && slices.Contains(may, c.who.Organization) && (c.who.Site == v.OwnerSite || len(ve.Deeds) > 0):
		return nil
	case c.who.Part != pki.PartGateway:
		return c.deny("its owner %q writes it, and its home adds to it", v.Owner)
	}
	return c.adds(k)
}

// adds checks that a home added wraps to a keyring, which is beside its own, and took none away.
// Only who has the key can wrap it.
func (c *checked) adds(k *federation.Keyring) error {
	if c.value.Because == nil {
		return c.deny("it does not have the keyring that it adds to")
	}
	if err := c.Check(c.key, c.value.Because, c.known, c.look); err != nil {
		return c.deny("the keyring that it adds to: %v", err)
	}
	e, err := open(c.value.Because)
	if err != nil {
		return c.deny("the keyring that it adds to: %v", err)
	}
	to, err := recordOf[federation.Keyring](e)
	if err != nil || len(to.Newest()[c.who.Site]) == 0 || k.Generation != to.Generation+1 {
		return c.deny("its site does not have the key in the keyring that it adds to, or that is not the one before")
	}
	if err := keyring.Grown(*to, *k); err != nil {
		return c.deny("a home changes no key that is wrapped, and takes none away: %v", err)
	}
	if s, _ := look[federation.Site](c.look, federation.KindSite, c.who.Site); s == nil {
		return nil // it was removed since
	}
	return c.organization(c.who.Site)
}
