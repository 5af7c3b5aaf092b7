// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/tls"
	"testing"
	"time"
)

// Forge issues what Issue refuses: the certificate of another organization, or of a part that only
// the founding authority vouches for.
func Forge(a *Authority, id Identity, now time.Time) (Pair, error) {
	b := *a
	b.organization = ""
	return b.Issue(id, nil, now, time.Hour)
}

// LoadAnyway loads a certificate that the authorities do not vouch for.
func LoadAnyway(p Pair, authorities []byte, clock func() time.Time) (*Credentials, error) {
	r, err := parseRoots(authorities)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, err
	}
	id, err := identify(cert.Leaf)
	if err != nil {
		return nil, err
	}
	c := &Credentials{self: id, clock: clock}
	c.set.Store(&set{cert: cert, roots: r})
	return c, nil
}

// KeyOf is the key of a pair.
func KeyOf(t *testing.T, p Pair) crypto.Signer {
	t.Helper()
	k, err := parseKey(p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
