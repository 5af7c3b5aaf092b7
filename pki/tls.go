// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrPeer is wrapped when the other side is not one that is expected.
var ErrPeer = errors.New("peer refused")

// Credentials are what one process shows and trusts. They do not change; load them anew after a renewal.
type Credentials struct {
	self  Identity
	cert  tls.Certificate
	roots *x509.CertPool
	clock func() time.Time
}

// Expect is which peers are accepted, besides that the federation's authority vouches for them.
type Expect struct {
	// Organizations; empty: all of the federation.
	Organizations []string
	// Site and Gateway; empty: any.
	Site, Gateway string
}

// Load checks a certificate and its key against the authority's certificate (PEM). Clock is asked at each handshake.
func Load(authority []byte, p Pair, clock func() time.Time) (*Credentials, error) {
	fail := func(format string, a ...any) error {
		return fmt.Errorf("load certificate: %w: %s", ErrInvalid, fmt.Sprintf(format, a...))
	}
	ca, err := parseCert(authority)
	if err != nil {
		return nil, fail("the authority's: %v: give the file ca.crt of the federation", err)
	}
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, fail("%v: give the certificate and the key that were issued together", err)
	}
	id, err := identify(cert.Leaf)
	if err != nil {
		return nil, err
	}
	c := &Credentials{self: id, cert: cert, roots: x509.NewCertPool(), clock: clock}
	c.roots.AddCert(ca)
	if now := clock(); now.After(cert.Leaf.NotAfter) || now.Before(cert.Leaf.NotBefore) {
		return nil, fail("%v is valid from %s to %s, and now it is %s: issue a new one, or set the clock", id,
			cert.Leaf.NotBefore.UTC().Format(time.RFC3339), cert.Leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	_, err = cert.Leaf.Verify(x509.VerifyOptions{Roots: c.roots, CurrentTime: clock(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return nil, fail("%v was not issued by that authority (%v): give the file ca.crt of federation %s", id, err, id.Federation)
	}
	return c, nil
}

// Identity is whom the credentials are of.
func (c *Credentials) Identity() Identity { return c.self }

// Expires is when the certificate ends.
func (c *Credentials) Expires() time.Time { return c.cert.Leaf.NotAfter }

// Server returns a configuration that demands certificates of those expected.
func (c *Credentials) Server(want Expect) *tls.Config {
	cfg := c.config(want)
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, c.roots
	return cfg
}

// Client returns a configuration that accepts servers of those expected, at an address that is in their certificate.
func (c *Credentials) Client(want Expect) *tls.Config {
	cfg := c.config(want)
	cfg.RootCAs = c.roots
	return cfg
}

// ClientByIdentity returns a configuration that accepts servers of those expected at any address: behind a Service or a load balancer, a server
// is reached at addresses that no certificate names. Its identity says who it is; want must name the site at least, since who may be
// anybody of a federation could be put in another's place.
func (c *Credentials) ClientByIdentity(want Expect) *tls.Config {
	cfg := c.config(want)
	cfg.InsecureSkipVerify = true // of the address; the chain is verified below
	expected := cfg.VerifyConnection
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if want.Site == "" {
			return fmt.Errorf("accept server: %w: no site is expected: name the one that is called", ErrPeer)
		}
		if len(s.PeerCertificates) == 0 {
			return fmt.Errorf("accept server: %w: it shows no certificate", ErrPeer)
		}
		between := x509.NewCertPool()
		for _, other := range s.PeerCertificates[1:] {
			between.AddCert(other)
		}
		if _, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: c.roots, Intermediates: between, CurrentTime: c.clock(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
		}
		return expected(s)
	}
	return cfg
}

func (c *Credentials) config(want Expect) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{c.cert},
		Time:         c.clock,
		// Runs for resumed connections too, unlike VerifyPeerCertificate.
		VerifyConnection: func(s tls.ConnectionState) error {
			peer, err := PeerIdentity(s)
			if err != nil {
				return err
			}
			return want.Check(c.self.Federation, peer)
		},
	}
}

// Check refuses (ErrPeer) a peer of another federation, or one that is not expected.
func (e Expect) Check(federation string, peer Identity) error {
	refuse := func(what, is, want, remedy string) error {
		return fmt.Errorf("accept peer %v: %w: its %s is %q, expected is %s: %s", peer, ErrPeer, what, is, want, remedy)
	}
	switch {
	case peer.Federation != federation:
		return refuse("federation", peer.Federation, fmt.Sprintf("%q", federation),
			"connect it to its own federation, or issue it a certificate of this one")
	case len(e.Organizations) > 0 && !slices.Contains(e.Organizations, peer.Organization):
		return refuse("organization", peer.Organization, `"`+strings.Join(e.Organizations, `", "`)+`"`,
			"add that organization to the ones expected here, or issue the peer a certificate in the right organization's name")
	case e.Site != "" && peer.Site != e.Site:
		return refuse("site", peer.Site, fmt.Sprintf("%q", e.Site), "correct the address that the site registered")
	case e.Gateway != "" && peer.Gateway != e.Gateway:
		return refuse("gateway", peer.Gateway, fmt.Sprintf("%q", e.Gateway), "correct the address that the gateway registered")
	}
	return nil
}

// PeerIdentity is who the other side of a connection is; the handshake has verified the certificate's chain.
func PeerIdentity(s tls.ConnectionState) (Identity, error) {
	if len(s.PeerCertificates) == 0 {
		return Identity{}, fmt.Errorf("identify peer: %w: it showed no certificate: connect with one that the federation's authority issued", ErrPeer)
	}
	return identify(s.PeerCertificates[0])
}

func identify(cert *x509.Certificate) (Identity, error) {
	refuse := func(format string, a ...any) (Identity, error) {
		return Identity{}, fmt.Errorf("identify certificate %q: %w: %s: use one that `weir pki` issued", cert.Subject, ErrPeer, fmt.Sprintf(format, a...))
	}
	var found []Identity
	for _, u := range cert.URIs {
		if u.Scheme != scheme {
			continue
		}
		parts := strings.Split(u.Path, "/")
		if len(parts) != 4 || parts[0] != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return refuse("its URI %s does not name organization, site and gateway", u)
		}
		id := Identity{Federation: u.Host, Organization: parts[1], Site: parts[2], Gateway: parts[3]}
		if err := id.Validate(); err != nil {
			return refuse("%v", err)
		}
		found = append(found, id)
	}
	if len(found) != 1 {
		return refuse("it has %d URIs of the form weir://federation/organization/site/gateway, not one", len(found))
	}
	if !slices.Equal(cert.Subject.Organization, []string{found[0].Organization}) {
		return refuse("its subject names organization %q and its URI %q", cert.Subject.Organization, found[0].Organization)
	}
	return found[0], nil
}
