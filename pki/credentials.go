// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
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

	adopting sync.Mutex                // held by who takes a charter
	save     func(signed string) error // keeps a charter; nil: it is not kept
	refused  string                    // the last charter that no founding authority signed, as far as is known
	unsaved  bool                      // the charter in force is not kept yet
	charter  atomic.Pointer[charter]
	mu       sync.Mutex
	open     map[*Conn]struct{} // connections that end when their peer is not accepted any more
	chains   chains             // of signatures
}

// set is what is in force at one time. It does not change.
type set struct {
	cert  tls.Certificate
	roots *roots
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
	if err := s.verify(chain, now, x509.ExtKeyUsageAny, id, nil); err != nil {
		return fail("%v was not issued by that authority (%v): give the file ca.crt of federation %s", id, err, id.Federation)
	}
	for _, f := range roots.founders {
		if of := ofAuthority(f); of.Federation != "" && of.Federation != id.Federation {
			return fail("among the authorities is that of %s, and %v is of federation %s: take it out", of, id, id.Federation)
		}
	}
	return s, id, nil
}

// verify checks a chain, leaf first: those vouch for it who may, for the organization that it
// names.
func (s *set) verify(chain []*x509.Certificate, now time.Time, usage x509.ExtKeyUsage, self Identity, c *charter) error {
	id, err := identify(chain[0])
	if err != nil {
		return err
	}
	vouch, err := s.roots.of(id, self, c)
	if err != nil {
		return fmt.Errorf("accept %v: %w", id, err)
	}
	between := x509.NewCertPool()
	for _, other := range chain[1:] {
		between.AddCert(other)
	}
	for _, pool := range vouch {
		if _, err = chain[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{usage}}); err == nil {
			return nil
		}
	}
	return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
}

// Identity is whom the credentials are of.
func (c *Credentials) Identity() Identity { return c.self }

// Expires is when the certificate ends.
func (c *Credentials) Expires() time.Time { return c.current().cert.Leaf.NotAfter }
