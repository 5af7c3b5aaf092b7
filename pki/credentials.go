// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Credentials are what one process shows and trusts. Those of LoadFiles follow the files; those of
// Load do not change. They may be used by several goroutines at once.
type Credentials struct {
	self  Identity
	clock func() time.Time
	set   atomic.Pointer[set]
	files *watched // nil: of memory
}

// set is what is in force at one time. It does not change.
type set struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

// Load checks a certificate and its key against the certificates of the authority (PEM; while one
// authority takes over from another, both are trusted). Clock is asked at each handshake.
func Load(authority []byte, p Pair, clock func() time.Time) (*Credentials, error) {
	s, id, err := parseSet(authority, p, clock())
	if err != nil {
		return nil, err
	}
	c := &Credentials{self: id, clock: clock}
	c.set.Store(s)
	return c, nil
}

func parseSet(authority []byte, p Pair, now time.Time) (*set, Identity, error) {
	fail := func(format string, a ...any) (*set, Identity, error) {
		return nil, Identity{}, fmt.Errorf("load certificate: %w: %s", ErrInvalid, fmt.Sprintf(format, a...))
	}
	roots, err := parseRoots(authority)
	if err != nil {
		return fail("the authority's: %v: give the file ca.crt of the federation", err)
	}
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return fail("%v: give the certificate and the key that were issued together", err)
	}
	id, err := identify(cert.Leaf)
	if err != nil {
		return nil, Identity{}, err
	}
	if now.After(cert.Leaf.NotAfter) || now.Before(cert.Leaf.NotBefore) {
		return fail("%v is valid from %s to %s, and now it is %s: issue a new one, or set the clock", id,
			cert.Leaf.NotBefore.UTC().Format(time.RFC3339), cert.Leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	chain := []*x509.Certificate{cert.Leaf}
	for _, der := range cert.Certificate[1:] {
		between, err := x509.ParseCertificate(der)
		if err != nil {
			return fail("a certificate after the first: %v: give the certificate as it was issued", err)
		}
		chain = append(chain, between)
	}
	s := &set{cert: cert, roots: roots}
	if err := s.verify(chain, now, x509.ExtKeyUsageAny); err != nil {
		return fail("%v was not issued by that authority (%v): give the file ca.crt of federation %s", id, err, id.Federation)
	}
	return s, id, nil
}

// parseRoots reads all certificates of a text. One that is cut off is an error: it may be the one
// that is needed.
func parseRoots(text []byte) (*x509.CertPool, error) {
	roots := x509.NewCertPool()
	n := 0
	for {
		b, rest := pem.Decode(text)
		if b == nil {
			break
		}
		if text = rest; b.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("a PEM block %s is among the certificates", b.Type)
		}
		cert, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, err
		}
		roots.AddCert(cert)
		n++
	}
	switch {
	case bytes.Contains(text, []byte("-----BEGIN")):
		return nil, errors.New("its last PEM block is cut off")
	case n == 0:
		return nil, errors.New("no PEM block CERTIFICATE")
	}
	return roots, nil
}

// verify checks a chain, leaf first.
func (s *set) verify(chain []*x509.Certificate, now time.Time, usage x509.ExtKeyUsage) error {
	between := x509.NewCertPool()
	for _, other := range chain[1:] {
		between.AddCert(other)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: s.roots, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{usage}})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}

// Identity is whom the credentials are of.
func (c *Credentials) Identity() Identity { return c.self }

// Expires is when the certificate ends.
func (c *Credentials) Expires() time.Time { return c.current().cert.Leaf.NotAfter }
