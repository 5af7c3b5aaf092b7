// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrPeer is wrapped when the other side is not one that is expected.
var ErrPeer = errors.New("peer refused")

// Expect is which peers are accepted, besides that the federation's authority vouches for them.
type Expect struct {
	// Organizations; empty: all of the federation.
	Organizations []string
	// Site and Gateway; empty: any.
	Site, Gateway string
	// Part; empty: any.
	Part Part
	// IfChartered: Part counts where a charter is in force only. Before, one authority vouches for
	// addresses too, and earlier releases did not look at the parts of the registry's members.
	IfChartered bool
}

// Server returns a configuration that demands certificates of those expected.
func (c *Credentials) Server(want Expect) *tls.Config {
	cfg := c.config(want, x509.ExtKeyUsageClientAuth, nil)
	cfg.ClientAuth = tls.RequireAnyClientCert // its chain is verified below, with the roots of that moment
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c.current().cert, nil }
	return cfg
}

// ServerOfClients is Server for clients that may show no certificate. One that they show is looked
// at as there.
func (c *Credentials) ServerOfClients(want Expect) *tls.Config {
	cfg := c.Server(want)
	verify := cfg.VerifyConnection
	cfg.ClientAuth = tls.RequestClientCert
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return nil
		}
		return verify(s)
	}
	return cfg
}

// ServerOfAnybody returns a configuration for a server that demands no certificate, because it
// learns in another way who calls.
func (c *Credentials) ServerOfAnybody() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Time: c.clock,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c.current().cert, nil },
	}
}

// Client returns a configuration that accepts servers of those expected. Where a server is, is
// looked at in one of three ways: with hosts, its certificate names one of them; with a site and a
// gateway in want, nothing else is looked at, as for ClientByIdentity; else its certificate names
// the address that is dialled, and then the roots are those of now: Go tells no callback which
// address that is, if it is an IP address.
func (c *Credentials) Client(want Expect, hosts ...string) *tls.Config {
	if len(hosts) == 0 && (want.Site == "" || want.Gateway == "") {
		cfg := c.client(want, nil)
		cfg.InsecureSkipVerify, cfg.RootCAs = false, c.current().roots.all
		return cfg
	}
	return c.client(want, func(server *x509.Certificate) error {
		var err error
		for _, h := range hosts {
			if err = server.VerifyHostname(h); err == nil {
				return nil
			}
		}
		return err
	})
}

// ClientByIdentity returns a configuration that accepts servers of those expected at any address:
// behind a Service or a load balancer, a server is reached at addresses that no certificate names.
// Its identity says who it is; want must name the site at least, since who may be anybody of a
// federation could be put in another's place.
func (c *Credentials) ClientByIdentity(want Expect) *tls.Config {
	return c.client(want, func(*x509.Certificate) error {
		if want.Site == "" {
			return fmt.Errorf("accept server: %w: no site is expected: name the one that is called", ErrPeer)
		}
		return nil
	})
}

func (c *Credentials) client(want Expect, at func(*x509.Certificate) error) *tls.Config {
	cfg := c.config(want, x509.ExtKeyUsageServerAuth, at)
	cfg.InsecureSkipVerify = true // the chain is verified below, with the roots of that moment
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c.current().cert, nil }
	return cfg
}

// config is what both ends have in common. at looks at where a server is; nil: at nothing.
func (c *Credentials) config(want Expect, usage x509.ExtKeyUsage, at func(*x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		Time:       c.clock,
		// Runs for resumed connections too, unlike VerifyPeerCertificate.
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) > 0 {
				if err := c.current().verify(s.PeerCertificates, c.clock(), usage, c.self, c.charter.Load()); err != nil {
					return err
				}
				if at != nil {
					if err := at(s.PeerCertificates[0]); err != nil {
						return err
					}
				}
			}
			peer, err := PeerIdentity(s)
			if err != nil {
				return err
			}
			want := want
			if want.IfChartered && c.charter.Load() == nil {
				want.Part = PartUnknown
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
	case e.Part != PartUnknown && peer.Part != e.Part:
		return refuse("part", string(peer.Part), fmt.Sprintf("%q", e.Part), "issue it a certificate of that part")
	case e.Gateway != "" && peer.Gateway != e.Gateway:
		return refuse("gateway", peer.Gateway, fmt.Sprintf("%q", e.Gateway), "correct the address that the gateway registered")
	}
	return nil
}

// PeerIdentity is who the other side of a connection is; the handshake has verified the
// certificate's chain.
func PeerIdentity(s tls.ConnectionState) (Identity, error) {
	if len(s.PeerCertificates) == 0 {
		return Identity{}, fmt.Errorf("identify peer: %w: it showed no certificate: connect with one that the federation's "+
			"authority issued", ErrPeer)
	}
	return identify(s.PeerCertificates[0])
}

func identify(cert *x509.Certificate) (Identity, error) {
	refuse := func(format string, a ...any) (Identity, error) {
		return Identity{}, fmt.Errorf("identify certificate %q: %w: %s: use one that `weir pki` issued", cert.Subject, ErrPeer,
			fmt.Sprintf(format, a...))
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
		if units := cert.Subject.OrganizationalUnit; len(units) > 1 {
			return refuse("its subject names %d parts, %q, not one", len(units), units)
		} else if len(units) == 1 {
			id.Part = Part(units[0])
		}
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
