// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/url"
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

// AuthorityWith is the certificate of an authority with these URIs.
func AuthorityWith(now time.Time, uris ...string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl, err := template(pkix.Name{CommonName: "unclear"}, now, time.Hour)
	if err != nil {
		return nil, err
	}
	tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
	for _, u := range uris {
		at, err := url.Parse(u)
		if err != nil {
			return nil, err
		}
		tmpl.URIs = append(tmpl.URIs, at)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
