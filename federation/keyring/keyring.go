// SPDX-License-Identifier: Apache-2.0

// Package keyring makes and wraps volumes' data keys (protocol-17). A site has an HPKE key pair
// (RFC 9180, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM). A volume's data key, 32 random
// bytes, is sealed for the public key of every site that may be its home; the sealed keys, and only
// they, are in the registry. The info of the sealing binds volume and site, so that a wrapped key
// can not be passed off as another volume's.
package keyring

import (
	"crypto/ecdh"
	"crypto/hpke"
	"fmt"
	"io"
	"maps"

	"github.com/weir-storage/weir/federation"
)

// DataKey is a volume's data key. Whoever has it can read the volume.
type DataKey = [32]byte

// SiteKey is a site's private key.
type SiteKey struct{ key hpke.PrivateKey }

func kem() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }

// NewSiteKey makes a key pair.
func NewSiteKey() (SiteKey, error) {
	k, err := kem().GenerateKey()
	if err != nil {
		return SiteKey{}, fmt.Errorf("make site key: %w", err)
	}
	return SiteKey{k}, nil
}

// ParseSiteKey reads what Bytes returned.
func ParseSiteKey(b []byte) (SiteKey, error) {
	k, err := kem().NewPrivateKey(b)
	if err != nil {
		return SiteKey{}, fmt.Errorf("read site key: %w: give the file that was made for this site", err)
	}
	return SiteKey{k}, nil
}

// Bytes is the private key, to be kept secret.
func (s SiteKey) Bytes() ([]byte, error) { return s.key.Bytes() }

// Public is what the site registers.
func (s SiteKey) Public() []byte { return s.key.PublicKey().Bytes() }

func info(volume, site string) []byte {
	return fmt.Appendf(nil, "weir data key 1\n%s\n%s", volume, site)
}

// New draws a data key for a volume and wraps it for sites, given by name and public key.
func New(volume string, sites map[string][]byte, random io.Reader) (federation.Keyring, DataKey, error) {
	var key DataKey
	if _, err := io.ReadFull(random, key[:]); err != nil {
		return federation.Keyring{}, key, fmt.Errorf("draw data key: %w", err)
	}
	ring := federation.Keyring{Volume: volume, Generation: 1, Wrapped: map[string][]byte{}}
	return ring, key, wrap(ring, key, sites)
}

// wrap adds the key, wrapped for sites, to ring.
func wrap(ring federation.Keyring, key DataKey, sites map[string][]byte) error {
	for site, public := range sites {
		pk, err := kem().NewPublicKey(public)
		if err != nil {
			return fmt.Errorf("wrap data key for site %s: its public key is not one (%w): start a gateway there once, which registers it",
				site, err)
		}
		w, err := hpke.Seal(pk, hpke.HKDFSHA256(), hpke.AES256GCM(), info(ring.Volume, site), key[:])
		if err != nil {
			return fmt.Errorf("wrap data key for site %s: %w", site, err)
		}
		ring.Wrapped[site] = w
	}
	return nil
}

// Extend returns ring's successor, in which the data key is wrapped also for sites, given by name
// and public key. What is wrapped already stays as it is. The site self, whose private key s is,
// unwraps the data key for that.
func (s SiteKey) Extend(ring federation.Keyring, self string, sites map[string][]byte) (federation.Keyring, error) {
	key, err := s.Unwrap(ring, self)
	if err != nil {
		return ring, err
	}
	next := federation.Keyring{Volume: ring.Volume, Generation: ring.Generation + 1, Wrapped: maps.Clone(ring.Wrapped)}
	missing := maps.Clone(sites)
	maps.DeleteFunc(missing, func(site string, _ []byte) bool { return len(ring.Wrapped[site]) > 0 })
	return next, wrap(next, key, missing)
}

// Unwrap opens a volume's data key with the site's private key.
func (s SiteKey) Unwrap(ring federation.Keyring, site string) (DataKey, error) {
	var key DataKey
	w, ok := ring.Wrapped[site]
	if !ok {
		return key, fmt.Errorf("unwrap data key of volume %s: it is not wrapped for site %s: it may hold copies but not serve the volume",
			ring.Volume, site)
	}
	b, err := hpke.Open(s.key, hpke.HKDFSHA256(), hpke.AES256GCM(), info(ring.Volume, site), w)
	if err != nil {
		return key, fmt.Errorf("unwrap data key of volume %s: %w: it was wrapped for another key than this site has now", ring.Volume, err)
	}
	if copy(key[:], b) != len(key) {
		return key, fmt.Errorf("unwrap data key of volume %s: it has %d bytes, not %d", ring.Volume, len(b), len(key))
	}
	return key, nil
}
