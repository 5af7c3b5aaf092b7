// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/pki"
)

// Lookup returns the value of another record, as far as it counts; nil: there is none, or none is
// known. "gateway/NAME" is the site that a gateway is known to be of, "name/NAME" the volume that
// is known by a name. A nil Lookup knows of nothing: then only what the record says of itself is
// checked.
type Lookup func(key string) []byte

// Known is what a reader knows of a key.
type Known struct {
	Value []byte // what counts; nil: nothing
	Grave []byte // what counted last of a record that was deleted; nil: nothing
	// First: the reader has seen nothing yet, and takes what may well be in the middle of a story.
	First bool
}

// Forgery is why a value does not count whatever came before it: nobody signed it, or who may not.
// Other errors of Check say that it does not follow what is known, or that too little is.
type Forgery struct{ why error }

func (f *Forgery) Error() string { return f.why.Error() }

// Unwrap returns the reason.
func (f *Forgery) Unwrap() error { return f.why }

// IsForgery reports whether an error of Check says that a value is forged.
func IsForgery(err error) bool { return errors.As(err, new(*Forgery)) }

func forged(err error) error {
	if err == nil || IsForgery(err) {
		return err
	}
	return &Forgery{err}
}

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
	is     Known
	before *envelope // what is known of the key; nil: nothing
	look   Lookup
}

// ahead is how much later than now a signature may be: clocks differ.
const ahead = time.Hour

// Check returns why a value does not count, as signed-2 to signed-4 say; nil: it does. What is
// known counts without being checked, and all counts while no charter asks for signatures.
func (s *Seal) Check(key string, value []byte, is Known, look Lookup) error {
	if s.Since().IsZero() {
		return nil
	}
	return s.Strict(key, value, is, look)
}

// Strict is Check as if a charter asked for signatures.
func (s *Seal) Strict(key string, value []byte, is Known, look Lookup) error {
	if s == nil || !Covers(key) || is.Value != nil && bytes.Equal(value, is.Value) {
		return nil
	}
	c := &checked{Seal: s, key: key, is: is, look: look}
	if is.Value != nil {
		if was, err := open(is.Value); err == nil {
			c.before = &was
		}
	}
	var err error
	if c.value, err = open(value); err != nil {
		return forged(err)
	}
	if c.value.Signature == "" {
		return forged(errors.New("it has no signature"))
	}
	st, who, err := s.creds.Verified(c.value.Signature)
	if err == nil {
		err = c.value.covered(key, st, who)
	}
	switch v := c.value.Version; { // what a later release signs says of which format it is
	case v != 1 && err == nil:
		return forged(fmt.Errorf("it says that it has format version %d, and %s signed it in another", v, who))
	case v != 1:
		return fmt.Errorf("it has format version %d: upgrade this program", v)
	case err != nil:
		return forged(err)
	}
	c.number, c.who, c.at = st.Number, who, time.Unix(st.At, 0)
	if c.at.After(s.creds.Now().Add(ahead)) || c.number > uint64(c.at.Add(2*ahead).UnixMilli()) && counted(key) {
		return forged(c.deny("it was signed at %s, as write %d", c.at.UTC().Format(time.RFC3339), c.number))
	}
	if who.Part == pki.PartAdministrator && c.endorsed() {
		return c.readable()
	}
	if err := c.writer(); err != nil {
		if who.Part == pki.PartAdministrator && !c.at.After(c.Since()) {
			return c.deny("he signed it when records without a signature counted, and another is known") // he may be right
		}
		return err
	}
	if err := c.follows(); err != nil {
		return err
	}
	return c.readable()
}

// covered checks that a statement is of this value.
func (e envelope) covered(key string, st pki.Statement, who pki.Identity) error {
	if st.Key != key || !bytes.Equal(st.Digest, e.digest()) {
		return fmt.Errorf("its signature, by %s, is of %s and of another record", who, st.Key)
	}
	return nil
}

// readable checks that this release reads the record as others do that count on it.
func (c *checked) readable() error {
	kind := KindOf(c.key)
	rec := map[federation.Kind]any{federation.KindVolume: new(federation.Volume), federation.KindControl: new(federation.Control),
		federation.KindKeyring: new(federation.Keyring), federation.KindSite: new(federation.Site),
		federation.KindAdmission: new(federation.Admission), federation.KindAttachment: new(federation.Attachment),
		federation.KindClaim: new(federation.Claim), federation.KindLost: new(federation.Lost),
		federation.KindPurged: new(federation.Purge), federation.KindPaper: new(paper.Paper),
		kindNotice: new(federation.Notice), kindTestimony: new(federation.Testimony),
		kindReconciled: new(federation.Reconciliation)}[kind]
	if rec == nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(c.value.Record))
	d.DisallowUnknownFields()
	if err := d.Decode(rec); err != nil {
		return fmt.Errorf("%w: upgrade this program", err)
	}
	return nil
}

// endorsed reports whether an administrator signed what had no signature (signed-7): what is known
// had none either, or says the same, or is an earlier write.
func (c *checked) endorsed() bool {
	since := c.Since()
	if since.IsZero() || c.at.After(since) {
		return false
	}
	if c.before == nil || c.before.Signature == "" || bytes.Equal(c.before.Record, c.value.Record) {
		return true
	}
	st, _, err := c.creds.Verified(c.before.Signature)
	if err != nil || time.Unix(st.At, 0).After(c.at) {
		return false
	}
	return !counted(c.key) && KindOf(c.key) != federation.KindControl || c.number > st.Number
}

// overlap is how much earlier than a record that was deleted its successor may be signed.
const overlap = ahead

// follows checks a record against the one which is known, or was, by what the signatures say.
func (c *checked) follows() error {
	if c.before != nil && counted(c.key) {
		if n, _, err := c.Seal.number(c.key, *c.before); err == nil && c.number <= n {
			return c.deny("it is write %d, and write %d is known", c.number, n)
		}
	}
	if c.is.Value != nil || c.is.Grave == nil {
		return nil
	}
	grave, err := open(c.is.Grave)
	if err != nil || grave.Signature == "" {
		return nil //nolint:nilerr // then nothing is known of it
	}
	st, _, err := c.creds.Verified(grave.Signature)
	if err == nil && (bytes.Equal(grave.Record, c.value.Record) && grave.Signature == c.value.Signature ||
		c.at.Before(time.Unix(st.At, 0).Add(-overlap))) {
		return c.deny("it is of %s, and what was signed at %s was deleted", c.at.UTC().Format(time.RFC3339),
			time.Unix(st.At, 0).UTC().Format(time.RFC3339))
	}
	return nil
}

func (c *checked) deny(format string, a ...any) error {
	return fmt.Errorf("it is signed by %s as %q: %s", c.who, c.who.Part, fmt.Sprintf(format, a...))
}

// never is deny for what does not count whatever came before.
func (c *checked) never(format string, a ...any) error { return forged(c.deny(format, a...)) }

// names are the words of the key behind its kind, of which there are n.
func (c *checked) names(n int) ([]string, error) {
	parts := strings.SplitN(c.key, "/", n+1)
	if len(parts) != n+1 {
		return nil, c.never("there is no such record")
	}
	return parts[1:], nil
}

// called checks that the record says of itself what its key says.
func (c *checked) called(kind federation.Kind, names ...string) error {
	if is := string(kind) + "/" + strings.Join(names, "/"); is != c.key {
		return c.never("it says that it is %s", is)
	}
	return nil
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
		a, err := recordOf[federation.Attachment](c.value)
		if err != nil {
			return err
		}
		return errors.Join(c.called(federation.KindAttachment, a.Site, a.Volume, a.Node), c.part(a.Site, pki.PartController))
	case federation.KindClaim:
		a, err := recordOf[federation.Claim](c.value)
		if err != nil {
			return err
		}
		return errors.Join(c.called(federation.KindClaim, a.Volume, a.Site, a.Namespace, a.Name), c.part(a.Site, pki.PartOperator))
	case federation.KindLost:
		return c.lost()
	case federation.KindPurged:
		return c.purged()
	case federation.KindObserved:
		o, err := recordOf[federation.Observed](c.value)
		if err != nil {
			return err
		}
		return errors.Join(c.called(federation.KindObserved, o.Volume, o.Gateway), c.gateway(o.Gateway))
	case kindNotice:
		n, err := recordOf[federation.Notice](c.value)
		if err != nil {
			return err
		}
		return errors.Join(c.called(kindNotice, n.Gateway), c.gateway(n.Gateway))
	case kindTestimony:
		t, err := recordOf[federation.Testimony](c.value)
		if err != nil {
			return err
		}
		return errors.Join(c.called(kindTestimony, t.Gateway, t.Key), c.gateway(t.Gateway))
	case kindCanary:
		names, err := c.names(1)
		if err != nil {
			return err
		}
		return c.gateway(names[0])
	case federation.KindPaper:
		return c.paper()
	case kindReconciled:
		if c.who.Part != pki.PartAdministrator {
			return c.never("an administrator says that the registry was reconciled")
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
	case s != nil && s.Organization != c.who.Organization:
		return c.never("site %s belongs to %q", site, s.Organization)
	case s != nil:
		return nil
	case c.before != nil: // the site was removed since
		if _, who, err := c.Seal.number(c.key, *c.before); err == nil && who == c.who {
			return nil
		}
	}
	return c.deny("no site %s is known", site)
}

// part checks that a part of a site signed.
func (c *checked) part(site string, p pki.Part) error {
	if c.who.Part != p || c.who.Site != site {
		return c.never("the %s of site %s writes it", p, site)
	}
	return c.organization(site)
}

// gateway checks that a gateway signed which is registered.
func (c *checked) gateway(name string) error {
	if c.who.Part != pki.PartGateway || c.who.Gateway != name {
		return c.never("gateway %s writes it", name)
	}
	if err := c.organization(c.who.Site); err != nil || c.look == nil {
		return err
	}
	s, _ := look[federation.Site](c.look, federation.KindSite, c.who.Site)
	if s != nil && !slices.ContainsFunc(s.Gateways, func(g federation.Gateway) bool { return g.Name == name }) {
		return c.deny("site %s has no gateway %s", s.Name, name)
	}
	return nil
}

func (c *checked) keyring() error {
	k, err := recordOf[federation.Keyring](c.value)
	if err != nil {
		return err
	}
	if err := c.called(federation.KindKeyring, k.Volume); err != nil {
		return err
	}
	switch c.who.Part {
	case pki.PartPerson, pki.PartOperator, pki.PartGateway:
	default:
		return c.never("its owner writes it, and its home adds to it")
	}
	if c.before != nil {
		if was, err := recordOf[federation.Keyring](*c.before); err == nil && k.Generation <= was.Generation {
			return c.deny("it is generation %d, and %d is known", k.Generation, was.Generation)
		}
	}
	if c.who.Part == pki.PartGateway {
		return c.adds(k)
	}
	if c.look == nil {
		return nil
	}
	v, ve := look[federation.Volume](c.look, federation.KindVolume, k.Volume)
	switch {
	case v == nil:
		return c.deny("no such volume is known")
	case c.owned(ve): // the one who gave the volume away made it
		return nil
	case c.who.Organization != v.Owner:
		return c.never("its owner %q writes it, and its home adds to it", v.Owner)
	case c.who.Part == pki.PartOperator && c.who.Site != v.OwnerSite:
		return c.deny("the operator of site %q writes it", v.OwnerSite)
	}
	return nil
}

// adds checks that a home added wraps or a key to a keyring. Beside it is the one that the owner
// wrote, from which it grew. Only who has the key can wrap it.
func (c *checked) adds(k *federation.Keyring) error {
	if c.value.Because == nil {
		return c.never("it does not have the keyring that it adds to")
	}
	if err := c.Strict(c.key, c.value.Because, Known{First: true}, c.look); err != nil {
		if IsForgery(err) {
			return c.never("the keyring that it adds to: %v", err)
		}
		return c.deny("the keyring that it adds to: %v", err)
	}
	e, err := open(c.value.Because)
	if err != nil {
		return c.never("the keyring that it adds to: %v", err)
	}
	base, err := recordOf[federation.Keyring](e)
	if err != nil || e.Because != nil || k.Generation <= base.Generation {
		return c.never("the keyring that it adds to is not its owner's, or not one of before")
	}
	if err := keyring.Grown(*base, *k); err != nil {
		return c.never("a home changes no key that is wrapped, and takes none away: %v", err)
	}
	has := len(base.Newest()[c.who.Site]) > 0
	if c.before != nil {
		if was, err := recordOf[federation.Keyring](*c.before); err == nil && was.Generation >= base.Generation {
			if err := keyring.Grown(*was, *k); err != nil {
				return c.deny("a home changes no key that is wrapped, and takes none away: %v", err)
			}
			has = len(was.Newest()[c.who.Site]) > 0 // it may have lost what it had when the owner made it
		}
	}
	if c.look == nil {
		return nil
	}
	if s, _ := look[federation.Site](c.look, federation.KindSite, c.who.Site); s != nil {
		if err := c.organization(c.who.Site); err != nil {
			return err
		}
	}
	// It may have got the key, and been home, since what is known here.
	if has || c.is.First && len(k.Newest()[c.who.Site]) > 0 || c.holds(k.Volume) {
		return nil
	}
	return c.deny("its site is not known to have the key")
}

// holds reports whether a volume is to have a copy with the key at the signer's site.
func (c *checked) holds(volume string) bool {
	v, _ := look[federation.Volume](c.look, federation.KindVolume, volume)
	return v != nil && slices.Contains(v.Sites, c.who.Site) && !v.IsBlind(c.who.Site)
}

// owned reports whether the signer's organization owned a volume when it signed.
func (c *checked) owned(v envelope) bool { return c.ownedBy(v, c.who.Organization, c.at) }
