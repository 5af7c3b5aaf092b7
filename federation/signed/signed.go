// SPDX-License-Identifier: Apache-2.0

// Package signed has the signatures of the registry's records. A gatekeeper judges who writes; but
// who runs a member of the registry can write its etcd behind it. So whoever writes a record signs
// it, and whoever reads it checks that (ADR 29).
//
//   - signed-1: beside the record, a value has a signature with the certificate of its writer: over
//     the key, the record's SHA-256, the time, and for records that are replaced by who read them a
//     number that grows with each write: the time in milliseconds, or one more than the last.
//     Names, the index of gateways and heartbeats have none: nothing is believed by them alone.
//     The charter has its own.
//   - signed-2: a signature counts if the federation vouched for its certificate when it was made
//     (pki.Credentials.Verified), and if that is not later than now.
//   - signed-3: who may have signed a record, the record itself says, and the records of its volume
//     and its site (Seal.Check). A volume that an organization gave to another has a deed beside
//     its record, by a person of the one that gave it. A purge has beside it the record with which
//     the owner deleted the volume, and a keyring to which a home added the one that it added to.
//   - signed-4: a record follows the one that is known: its number is higher, a volume's owner is
//     the same or has a deed, a site's organization is the same, a control record swaps the one
//     before as the protocol allows, a keyring loses no wrap but by its owner. One that was deleted
//     comes back only by what is signed later, and a site's name stays with its organization. A
//     gateway's name is that of the site which had it first, and so is a volume's.
//     A paper of the exchange is its organization's, and what was said in it stays (package paper).
//     An epoch that began by force has the word of a person of the owner, about exactly that
//     (Takeover), or of an administrator who decided between branches.
//   - signed-5: what does not count is as if it had not been written: whoever keeps records goes on
//     by the one that he has, and others get an error. A volume's records are gone only with a
//     purge that counts.
//   - signed-6: a gateway puts back what it has, as it was signed, where what is in the registry is
//     forged, or an earlier write of another organization's; and takes away what is forged where
//     nothing was. What only does not follow may be right, and stays.
//   - signed-7: records without a signature count until a charter says since when they do not
//     (pki.Charter.SignedSince). What there is then without, an administrator signs before.
//   - signed-8: what a registry has that went back is older, and not forged: all that is signed by
//     who may is left to the guard (protocol-7).
//   - signed-9: a record that is not shown (Stub) is neither changed nor deleted: whoever keeps
//     records keeps what he has of it, and goes on as if there were none. Of a volume that is known
//     to concern him for good (Seal.Concerns) it is as if it were forged.
package signed

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

// Kinds of keys that are no federation.Kind.
const (
	kindNotice     federation.Kind = "rewound"
	kindTestimony  federation.Kind = "testimony"
	kindCanary     federation.Kind = "canary"
	kindReconciled federation.Kind = "reconciled"
)

// KindOf is the first word of a key.
func KindOf(key string) federation.Kind {
	kind, _, _ := strings.Cut(key, "/")
	return federation.Kind(kind)
}

// Covers reports whether a key's record is signed.
func Covers(key string) bool {
	switch KindOf(key) {
	case federation.KindControl, federation.KindVolume, federation.KindKeyring, federation.KindSite, federation.KindAdmission,
		federation.KindAttachment, federation.KindClaim, federation.KindLost, federation.KindPurged, federation.KindObserved,
		federation.KindPaper, kindNotice, kindTestimony, kindCanary, kindReconciled:
		return true
	}
	return false
}

// Stays reports whether a key's record is gone only when its volume was purged.
func Stays(key string) bool {
	switch KindOf(key) {
	case federation.KindControl, federation.KindVolume, federation.KindKeyring:
		return true
	}
	return false
}

// PurgeOf is the key of the purge of a record's volume, for records that Stay.
func PurgeOf(key string) string {
	_, volume, _ := strings.Cut(key, "/")
	return string(federation.KindPurged) + "/" + volume
}

// counted reports whether a record's signature has a number.
func counted(key string) bool {
	switch KindOf(key) {
	case federation.KindVolume, federation.KindKeyring, federation.KindSite, federation.KindPaper:
		return true
	}
	return false
}

// envelope is a value with its signature. Programs of before read version and record.
type envelope struct {
	Version   int             `json:"version"`
	Record    json.RawMessage `json:"record"`
	Signature string          `json:"signature,omitempty"`
	// Deeds are of a volume that organizations gave away, the first first.
	Deeds []deed `json:"deeds,omitempty"`
	// Because is what a purge follows from, and what a gateway changes of its owner's word: the
	// record of a deleted volume, or the keyring to which a home added.
	Because json.RawMessage `json:"because,omitempty"`
}

// deed says that an organization gave a volume to another. Its signature is of the key
// "deed/UUID", and of its place among the deeds.
type deed struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Signature string `json:"signature"`
}

func (d deed) digest() []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", d.From, d.To))
	return sum[:]
}

func deedKey(volume string) string { return "deed/" + volume }

func open(value []byte) (e envelope, err error) {
	if err := json.Unmarshal(value, &e); err != nil || e.Version < 1 {
		return e, fmt.Errorf("it is no record (%w)", errors.Join(err, errors.New("no version")))
	}
	return e, nil
}

// digest is what a value's signature is over: its record, and the deeds if there are any.
func (e envelope) digest() []byte {
	text := []byte(e.Record)
	if len(e.Deeds) > 0 {
		deeds, _ := json.Marshal(e.Deeds) // strings only
		text = slices.Concat(text, []byte{0}, deeds)
	}
	sum := sha256.Sum256(text)
	return sum[:]
}

// Has reports whether a value has a signature, whichever.
func Has(value []byte) bool {
	e, err := open(value)
	return err == nil && e.Signature != ""
}

// Settled reports whether a value has a signature, and so has what it follows from.
func Settled(value []byte) bool {
	e, err := open(value)
	return err == nil && e.Signature != "" && (e.Because == nil || Settled(e.Because))
}

// SameRecord reports whether two values say the same, whoever signed them.
func SameRecord(a, b []byte) bool {
	x, err := open(a)
	y, err2 := open(b)
	return err == nil && err2 == nil && bytes.Equal(x.Record, y.Record)
}

// Seal is with what a process signs, and by what it checks. Its methods may be called from many
// goroutines. A nil Seal signs nothing, and everything counts for it.
type Seal struct {
	creds   *pki.Credentials
	log     *slog.Logger
	refused func(kind federation.Kind)
}

// New makes a process's seal. Both of log, which hears of records that do not count, and refused,
// which is told of which kind they are, may be nil.
func New(creds *pki.Credentials, log *slog.Logger, refused func(kind federation.Kind)) *Seal {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Seal{creds: creds, log: log, refused: refused}
}

// Refuse logs and counts a record that does not count.
func (s *Seal) Refuse(key string, why error) {
	s.log.Error("a record of the registry does not count: somebody wrote it past the gatekeepers, or with a program that signs nothing",
		"audit", "forged", "record", key, "why", why)
	if s.refused != nil {
		s.refused(KindOf(key))
	}
}

// Unhealed logs that a record that does not count was not replaced.
func (s *Seal) Unhealed(key string, why error) {
	s.log.Warn("a record of the registry that does not count is not replaced yet", "record", key, "error", why)
}

// Adopt takes a charter that is in the registry. One that nobody trusts changes nothing.
func (s *Seal) Adopt(value []byte) {
	var c federation.Charter
	if federation.Decode(string(federation.KindCharter), "", value, &c) == nil {
		_, _ = s.creds.Adopt(c.Signed) // what follows the charter says why one is not taken
	}
}

// CheckCharter returns why a charter may not replace the one in force, and the one that is there,
// nil: none. What is there and was forged says nothing.
func (s *Seal) CheckCharter(there *federation.Charter, next federation.Charter) error {
	says, err := s.creds.CheckCharter(next.Signed)
	if err != nil {
		return err
	}
	if says.Serial != next.Serial {
		return fmt.Errorf("it says serial %d, and what is signed has %d", next.Serial, says.Serial)
	}
	if is, ok := s.creds.Charter(); ok && says.Serial <= is.Serial {
		return fmt.Errorf("its serial is %d, and the one in force has %d: sign one with a higher serial", says.Serial, is.Serial)
	}
	if there == nil {
		return nil
	}
	if was, err := s.creds.CheckCharter(there.Signed); err == nil && says.Serial <= was.Serial {
		return fmt.Errorf("its serial is %d, and the one before has %d: sign one with a higher serial", says.Serial, was.Serial)
	}
	return nil
}

// Since is from when on records without a signature do not count; zero: they do.
func (s *Seal) Since() time.Time {
	if s == nil {
		return time.Time{}
	}
	c, _ := s.creds.Charter()
	return c.SignedSince
}

// Signs reports whether the process signs: its certificate says of which part it is.
func (s *Seal) Signs() bool { return s != nil && s.creds.Identity().Part != pki.PartUnknown }

// Needs returns the keys whose values Sign looks at, for a write of a key.
func Needs(key string) []string {
	switch {
	case counted(key):
		return []string{key}
	case KindOf(key) == federation.KindPurged:
		return []string{key, string(federation.KindVolume) + strings.TrimPrefix(key, string(federation.KindPurged))}
	}
	return nil
}

// Sign returns a value with this process's signature. One that has a signature stays as it is:
// somebody else's word is handed on. look returns the values of the keys of Needs, nil for none.
func (s *Seal) Sign(key string, value []byte, look func(key string) []byte) ([]byte, error) {
	if !s.Signs() || !Covers(key) {
		return value, nil
	}
	e, err := open(value)
	if err != nil || e.Signature != "" {
		return value, err
	}
	return s.sign(key, e, look)
}

// Endorse returns a value with this process's signature, instead of any that it has, and of what it
// followed from.
func (s *Seal) Endorse(key string, value []byte) ([]byte, error) {
	e, err := open(value)
	if err != nil {
		return nil, err
	}
	e.Because = nil
	st := pki.Statement{Key: key, Digest: e.digest()}
	switch {
	case KindOf(key) == federation.KindControl:
		c, err := recordOf[federation.Control](e)
		if err != nil {
			return nil, err
		}
		st.Number = c.Change
	case counted(key):
		n, _, err := s.number(key, e)
		if err != nil {
			n = 0
		}
		st.Number = max(n+1, uint64(s.creds.Now().UnixMilli()))
	}
	if e.Signature, err = s.creds.Sign(st); err != nil {
		return nil, err
	}
	return json.Marshal(e)
}

func (s *Seal) sign(key string, e envelope, look func(key string) []byte) (_ []byte, err error) {
	st := pki.Statement{Key: key}
	var was []byte
	var prev envelope
	if len(Needs(key)) > 0 {
		if was = look(key); was != nil {
			prev, _ = open(was) // what nobody can read is replaced
		}
	}
	gateway := s.creds.Identity().Part == pki.PartGateway
	switch kind := KindOf(key); {
	case kind == federation.KindControl:
		var c federation.Control
		if err := json.Unmarshal(e.Record, &c); err != nil {
			return nil, err
		}
		st.Number = c.Change
	case kind == federation.KindPurged:
		switch e.Because = prev.Because; {
		case e.Because != nil:
		case was != nil:
			e.Because = was // an administrator signed it, or a release that signed nothing
		default:
			e.Because = look(Needs(key)[1])
		}
	case counted(key):
		n, _, err := s.number(key, prev)
		if err != nil {
			n = 0
		}
		// By the time, so that it is higher too than what is not known here.
		st.Number = max(n+1, uint64(s.creds.Now().UnixMilli()))
		if kind == federation.KindVolume {
			if e.Deeds, err = s.deeds(prev, e); err != nil {
				return nil, err
			}
		}
		if kind != federation.KindSite && kind != federation.KindPaper && gateway { // it changes the owner's word, perhaps not as the first
			if e.Because = was; prev.Because != nil {
				e.Because = prev.Because
			}
		}
	}
	st.Digest = e.digest()
	if e.Signature, err = s.creds.Sign(st); err != nil {
		return nil, err
	}
	return json.Marshal(e)
}

// number returns the number of a value's signature, and who signed; an error if it does not count.
func (s *Seal) number(key string, e envelope) (uint64, pki.Identity, error) {
	if e.Signature == "" {
		return 0, pki.Identity{}, errors.New("it has no signature")
	}
	st, who, err := s.creds.Verified(e.Signature)
	if err != nil {
		return 0, who, err
	}
	return st.Number, who, e.covered(key, st, who)
}

// deeds returns those of the record that replaces prev.
func (s *Seal) deeds(prev, next envelope) ([]deed, error) {
	if prev.Record == nil {
		return nil, nil
	}
	was, err := recordOf[federation.Volume](prev)
	if err != nil {
		return nil, nil //nolint:nilerr // what nobody can read is replaced
	}
	is, err := recordOf[federation.Volume](next)
	if err != nil || was.Owner == is.Owner {
		return prev.Deeds, err
	}
	d := deed{From: was.Owner, To: is.Owner}
	d.Signature, err = s.creds.Sign(pki.Statement{Key: deedKey(is.UUID), Number: uint64(len(prev.Deeds)) + 1, Digest: d.digest()})
	return append(prev.Deeds[:len(prev.Deeds):len(prev.Deeds)], d), err
}

func recordOf[T any](e envelope) (*T, error) {
	out := new(T)
	return out, json.Unmarshal(e.Record, out)
}

// By returns who signed a value, and when; an error: nobody did, or not this.
func (s *Seal) By(key string, value []byte) (pki.Identity, time.Time, error) {
	e, err := open(value)
	if err != nil {
		return pki.Identity{}, time.Time{}, err
	}
	if e.Signature == "" {
		return pki.Identity{}, time.Time{}, errors.New("it has no signature")
	}
	st, who, err := s.creds.Verified(e.Signature)
	if err == nil {
		err = e.covered(key, st, who)
	}
	return who, time.Unix(st.At, 0), err
}

// Number is that of a value's signature; 0: it has none that counts.
func (s *Seal) Number(key string, value []byte) uint64 {
	e, err := open(value)
	if err != nil || !counted(key) {
		return 0
	}
	n, _, err := s.number(key, e)
	if err != nil {
		return 0
	}
	return n
}

// About returns the keys by which Check judges a value.
func About(key string, value []byte) (keys []string) {
	e, err := open(value)
	if err != nil {
		return nil
	}
	parts := strings.Split(key, "/")
	if len(parts) < 2 {
		return nil // no record has such a key
	}
	add := func(kind federation.Kind, name string) { keys = append(keys, string(kind)+"/"+name) }
	switch KindOf(key) {
	case federation.KindControl:
		if c, err := recordOf[federation.Control](e); err == nil {
			add(federation.KindSite, c.Home.Site)
		}
		fallthrough
	case federation.KindVolume, federation.KindKeyring, federation.KindPurged:
		add(federation.KindVolume, parts[1])
		add(federation.KindControl, parts[1])
		add(federation.KindPurged, parts[1])
	case federation.KindAdmission, federation.KindAttachment:
		add(federation.KindSite, parts[1])
		if len(parts) > 2 {
			add(federation.KindVolume, parts[2])
		}
	case federation.KindClaim:
		if len(parts) > 2 {
			add(federation.KindSite, parts[2])
		}
	case federation.KindSite, federation.KindLost:
		add(federation.KindSite, parts[1])
	}
	return keys
}

// Older reports whether a value is an earlier write of a record than another, as both say.
func (s *Seal) Older(key string, value, than []byte) bool {
	e, err := open(value)
	other, err2 := open(than)
	if err != nil || err2 != nil {
		return false
	}
	st, _, err := s.creds.Verified(e.Signature)
	later, _, err2 := s.creds.Verified(other.Signature)
	switch {
	case err != nil || err2 != nil:
		return false
	case counted(key) || KindOf(key) == federation.KindControl:
		return st.Number < later.Number
	}
	return st.At < later.At
}

// Now is the time by which signatures are judged.
func (s *Seal) Now() time.Time { return s.creds.Now() }

// GatewaysOf are the names of gateways in the value of a site's record.
func GatewaysOf(value []byte) (out []string) {
	e, err := open(value)
	if err != nil {
		return nil
	}
	if site, err := recordOf[federation.Site](e); err == nil {
		for _, g := range site.Gateways {
			out = append(out, g.Name)
		}
	}
	return out
}

// NameOf is the name in the value of a volume's record.
func NameOf(value []byte) string {
	e, err := open(value)
	if err != nil {
		return ""
	}
	v, err := recordOf[federation.Volume](e)
	if err != nil {
		return ""
	}
	return v.Name
}
