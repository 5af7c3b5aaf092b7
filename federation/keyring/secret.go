// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hpke"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/federation"
)

// Secret is what a volume's data keys are sealed under besides, if their owner wants to be able to
// destroy them (ADR 50). It is on the pools of the volume's gateways, and never in the registry.
type Secret [32]byte

// Secrets returns a volume's secret with a digest.
type Secrets func(ring federation.Keyring, digest []byte) (Secret, error)

// ErrErasable reports that a data key is sealed under a secret that is not known here.
var ErrErasable = errors.New("it is sealed under a secret that only pools of the volume's gateways have")

// With returns the key with what is needed to open data keys that are sealed under a secret.
func (s SiteKey) With(secrets Secrets) SiteKey {
	s.secrets = secrets
	return s
}

// Digest is by which a keyring names the secret. It tells nothing of it.
func (s Secret) Digest(volume string) []byte {
	h := sha256.Sum256(fmt.Appendf(nil, "weir secret 1\n%s\n%s", volume, s[:]))
	return h[:]
}

// under returns what seals a data key of a volume under the secret.
func (s Secret) under(volume string, number int) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, s[:], nil, fmt.Sprintf("weir secret 1 data key\n%s\n%d", volume, number), 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal returns what is wrapped of a data key: the key, or with a secret the key under it.
func (s *Secret) seal(volume string, number int, key DataKey) ([]byte, error) {
	if s == nil {
		return key[:], nil
	}
	a, err := s.under(volume, number)
	if err != nil {
		return nil, fmt.Errorf("seal data key %d of volume %s: %w", number, volume, err)
	}
	return a.Seal(nil, nil, key[:], nil), nil
}

// open is the inverse of seal.
func (s SiteKey) open(ring federation.Keyring, number int, b []byte) ([]byte, error) {
	if number == 0 || len(ring.Later[number-1].Under) == 0 {
		return b, nil
	}
	secret, err := s.secret(ring, number)
	if err != nil {
		return nil, err
	}
	a, err := secret.under(ring.Volume, number)
	if err != nil {
		return nil, err
	}
	return a.Open(nil, nil, b, nil)
}

// secret returns the secret that a data key is sealed under; nil: it is sealed under none.
func (s SiteKey) secret(ring federation.Keyring, number int) (*Secret, error) {
	if number == 0 || len(ring.Later[number-1].Under) == 0 {
		return nil, nil
	}
	if s.secrets == nil {
		return nil, ErrErasable
	}
	secret, err := s.secrets(ring, ring.Later[number-1].Under)
	return &secret, err
}

func secretInfo(volume, site string) []byte {
	return fmt.Appendf(nil, "weir secret 1\n%s\n%s", volume, site)
}

// SealSecret seals a volume's secret for a site, whose public key is given.
func SealSecret(s Secret, volume, site string, public []byte) ([]byte, error) {
	pk, err := kem().NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("seal the secret of volume %s for site %s: its public key is not one: %w", volume, site, err)
	}
	return hpke.Seal(pk, hpke.HKDFSHA256(), hpke.AES256GCM(), secretInfo(volume, site), s[:])
}

// OpenSecret opens what SealSecret sealed for the site whose key s is.
func (s SiteKey) OpenSecret(sealed []byte, volume, site string) (out Secret, err error) {
	b, err := hpke.Open(s.key, hpke.HKDFSHA256(), hpke.AES256GCM(), secretInfo(volume, site), sealed)
	if err == nil && copy(out[:], b) != len(out) {
		err = fmt.Errorf("it has %d bytes, not %d", len(b), len(out))
	}
	if err != nil {
		return out, fmt.Errorf("open the secret of volume %s: %w", volume, err)
	}
	return out, nil
}
