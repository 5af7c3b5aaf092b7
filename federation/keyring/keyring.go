// SPDX-License-Identifier: Apache-2.0

// Package keyring makes and wraps volumes' data keys (protocol-17). A site has an HPKE key pair
// (RFC 9180, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM). A volume's data key, 32 random
// bytes, is sealed for the public key of every site that may be its home; the sealed keys, and only
// they, are in the registry. The info of the sealing binds volume and site, so that a wrapped key
// can not be passed off as another volume's.
//
// When a site is not to read the volume any more, or its owner wants it, another data key follows
// (Rotate), and what is sealed from then on is sealed with that. What is there stays as it is, and
// whoever had its key has it.
package keyring

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/encryption"
)

// DataKey is a volume's data key. Whoever has it can read the volume.
type DataKey = [32]byte

// SiteKey is a site's private key.
type SiteKey struct {
	key     hpke.PrivateKey
	secrets Secrets // nil: none is known
}

func kem() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }

// NewSiteKey makes a key pair.
func NewSiteKey() (SiteKey, error) {
	k, err := kem().GenerateKey()
	if err != nil {
		return SiteKey{}, fmt.Errorf("make site key: %w", err)
	}
	return SiteKey{key: k}, nil
}

// ParseSiteKey reads what Bytes returned.
func ParseSiteKey(b []byte) (SiteKey, error) {
	k, err := kem().NewPrivateKey(b)
	if err != nil {
		return SiteKey{}, fmt.Errorf("read site key: %w: give the file that was made for this site", err)
	}
	return SiteKey{key: k}, nil
}

// Bytes is the private key, to be kept secret.
func (s SiteKey) Bytes() ([]byte, error) { return s.key.Bytes() }

// Public is what the site registers.
func (s SiteKey) Public() []byte { return s.key.PublicKey().Bytes() }

// info is what a wrap is bound to: the volume, the site, and of later keys the number, and whether
// what is wrapped is sealed under a secret.
func info(volume, site string, number int, erasable bool) []byte {
	switch {
	case number == 0:
		return fmt.Appendf(nil, "weir data key 1\n%s\n%s", volume, site)
	case erasable:
		return fmt.Appendf(nil, "weir data key 3\n%s\n%s\n%d", volume, site, number)
	}
	return fmt.Appendf(nil, "weir data key 2\n%s\n%s\n%d", volume, site, number)
}

// New draws a data key for a volume and wraps it for sites, given by name and public key.
func New(volume string, sites map[string][]byte, random io.Reader) (federation.Keyring, DataKey, error) {
	var key DataKey
	if _, err := io.ReadFull(random, key[:]); err != nil {
		return federation.Keyring{}, key, fmt.Errorf("draw data key: %w", err)
	}
	ring := federation.Keyring{Volume: volume, Generation: 1, Wrapped: map[string][]byte{}}
	return ring, key, wrap(ring.Wrapped, volume, 0, key, nil, sites)
}

// wrap adds a key, wrapped for sites, to others. under is the secret that it is sealed under, or
// nil.
func wrap(wrapped map[string][]byte, volume string, number int, key DataKey, under *Secret, sites map[string][]byte) error {
	sealed, err := under.seal(volume, number, key)
	if err != nil {
		return err
	}
	for site, public := range sites {
		pk, err := kem().NewPublicKey(public)
		if err != nil {
			return fmt.Errorf("wrap data key for site %s: its public key is not one (%w): start a gateway there once, which registers it",
				site, err)
		}
		w, err := hpke.Seal(pk, hpke.HKDFSHA256(), hpke.AES256GCM(), info(volume, site, number, under != nil), sealed)
		if err != nil {
			return fmt.Errorf("wrap data key for site %s: %w", site, err)
		}
		wrapped[site] = w
	}
	return nil
}

// clone copies a keyring deeply, but for the wraps themselves, into its next generation.
func clone(ring federation.Keyring) federation.Keyring {
	next := federation.Keyring{Volume: ring.Volume, Generation: ring.Generation + 1, Wrapped: maps.Clone(ring.Wrapped)}
	for _, l := range ring.Later {
		l.Wrapped = maps.Clone(l.Wrapped)
		next.Later = append(next.Later, l)
	}
	return next
}

// Extend returns ring's successor, in which each data key is wrapped also for sites, given by name
// and public key. What is wrapped already stays as it is. The site self, whose private key s is,
// unwraps the data keys for that.
func (s SiteKey) Extend(ring federation.Keyring, self string, sites map[string][]byte) (federation.Keyring, error) {
	if _, err := s.Unwrap(ring, self); err != nil {
		return ring, err
	}
	next := clone(ring)
	for number, wrapped := range next.Keys() {
		missing := maps.Clone(sites)
		maps.DeleteFunc(missing, func(site string, _ []byte) bool { return len(wrapped[site]) > 0 })
		if len(missing) == 0 {
			continue
		}
		key, err := s.unwrap(ring, self, number)
		if err != nil {
			return ring, err
		}
		under, err := s.secret(ring, number)
		if err != nil {
			return ring, err
		}
		if err := wrap(wrapped, ring.Volume, number, key, under, missing); err != nil {
			return ring, err
		}
	}
	return next, nil
}

// Newest returns what is known of a volume's newest data key. made is when the volume was made.
func Newest(ring federation.Keyring, made time.Time) encryption.Newest {
	is := encryption.Newest{Number: len(ring.Later), Since: made}
	for _, l := range ring.Later {
		is.Since, is.Rotation, is.Erasable = l.At, max(is.Rotation, l.Rotation), len(l.Under) > 0
	}
	return is
}

// Next says what the data key is like that follows.
type Next struct {
	At       time.Time // now
	Rotation int64     // the owner's word (encryption.Policy) that it follows for, if for any
	Under    *Secret   // that it is sealed under; nil: under none
}

// Rotate returns ring's successor, which has another data key for what is sealed from now on. It is
// wrapped for sites, given by name and public key. The site self is one of them, and has the key
// before.
func (s SiteKey) Rotate(ring federation.Keyring, self string, sites map[string][]byte, is Next, random io.Reader) (federation.Keyring,
	error) {
	if _, err := s.unwrap(ring, self, len(ring.Later)); err != nil {
		return ring, err
	}
	var key DataKey
	if _, err := io.ReadFull(random, key[:]); err != nil {
		return ring, fmt.Errorf("draw data key: %w", err)
	}
	next := clone(ring)
	l := federation.LaterKey{At: is.At.UTC(), Wrapped: map[string][]byte{}, Rotation: max(is.Rotation, Newest(ring, is.At).Rotation)}
	if is.Under != nil {
		l.Under = is.Under.Digest(ring.Volume)
	}
	next.Later = append(next.Later, l)
	return next, wrap(l.Wrapped, ring.Volume, len(next.Later), key, is.Under, sites)
}

// GrownBy is Grown by the hand of a site: it has the newest key, and wraps none for sites whose
// copies are blind.
func GrownBy(site string, blind []string, prev, next federation.Keyring) error {
	if len(prev.Newest()[site]) == 0 {
		return fmt.Errorf("site %s has no key of the volume, and who has it adds to the keyring", site)
	}
	for _, s := range blind {
		if len(next.Newest()[s]) > 0 && (len(prev.Newest()[s]) == 0 || len(next.Later) > len(prev.Later)) {
			return fmt.Errorf("the copy at site %s is blind, and gets no key", s)
		}
	}
	return Grown(prev, next)
}

// Grown returns why next is not prev with more: wraps for more sites, and more keys. It changes and
// takes away nothing.
func Grown(prev, next federation.Keyring) error {
	before, after := prev.Keys(), next.Keys()
	if len(after) < len(before) {
		return fmt.Errorf("it has %d data keys, and had %d", len(after), len(before))
	}
	for number, wrapped := range before {
		if number > 0 && (!next.Later[number-1].At.Equal(prev.Later[number-1].At) ||
			next.Later[number-1].Rotation != prev.Later[number-1].Rotation ||
			!bytes.Equal(next.Later[number-1].Under, prev.Later[number-1].Under)) {
			return fmt.Errorf("data key %d is of another time, followed for something else, or is sealed under something else", number)
		}
		for site, w := range wrapped {
			if !bytes.Equal(after[number][site], w) {
				return fmt.Errorf("data key %d is wrapped otherwise, or no more, for site %s", number, site)
			}
		}
	}
	return nil
}

// Unwrap opens a volume's first data key with the site's private key.
func (s SiteKey) Unwrap(ring federation.Keyring, site string) (DataKey, error) {
	return s.unwrap(ring, site, 0)
}

// UnwrapAll opens those of a volume's data keys that the site has, by number. The first must be
// among them. An error with keys says which are not among these: for lack of a secret, say. What
// was sealed with the others can be read.
func (s SiteKey) UnwrapAll(ring federation.Keyring, site string) (map[uint32]DataKey, error) {
	first, err := s.Unwrap(ring, site)
	if err != nil {
		return nil, err
	}
	out := map[uint32]DataKey{0: first}
	var errs []error
	for i, l := range ring.Later {
		if len(l.Wrapped[site]) == 0 {
			continue
		}
		key, err := s.unwrap(ring, site, i+1)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[uint32(i)+1] = key
	}
	return out, errors.Join(errs...)
}

func (s SiteKey) unwrap(ring federation.Keyring, site string, number int) (DataKey, error) {
	var key DataKey
	w, ok := ring.Keys()[number][site]
	if !ok {
		return key, fmt.Errorf("unwrap data key of volume %s: it is not wrapped for site %s: it may hold copies but not serve the volume",
			ring.Volume, site)
	}
	erasable := number > 0 && len(ring.Later[number-1].Under) > 0
	b, err := hpke.Open(s.key, hpke.HKDFSHA256(), hpke.AES256GCM(), info(ring.Volume, site, number, erasable), w)
	if err != nil {
		return key, fmt.Errorf("unwrap data key of volume %s: %w: it was wrapped for another key than this site has now", ring.Volume, err)
	}
	if b, err = s.open(ring, number, b); err != nil {
		return key, fmt.Errorf("unwrap data key %d of volume %s: %w", number, ring.Volume, err)
	}
	if copy(key[:], b) != len(key) {
		return key, fmt.Errorf("unwrap data key of volume %s: it has %d bytes, not %d", ring.Volume, len(b), len(key))
	}
	return key, nil
}
