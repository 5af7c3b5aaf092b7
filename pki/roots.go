// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// roots are the authorities of a file.
type roots struct {
	founders  []*x509.Certificate
	founding  *x509.CertPool            // the founders
	organized map[string]*x509.CertPool // authorities of one organization, by its name
	all       *x509.CertPool
}

// authorityOf is of what a certificate says that it is the authority. A founding authority has no
// Organization; one that was made elsewhere has neither.
type authorityOf struct{ Federation, Organization string }

func (o authorityOf) String() string {
	if o.Organization == "" {
		return "federation " + o.Federation
	}
	return fmt.Sprintf("organization %q in federation %s", o.Organization, o.Federation)
}

func (o authorityOf) uri() *url.URL {
	u := &url.URL{Scheme: scheme, Host: o.Federation}
	if o.Organization != "" {
		u.Path = "/" + o.Organization
	}
	return u
}

func ofAuthority(cert *x509.Certificate) authorityOf {
	for _, u := range cert.URIs {
		if u.Scheme == scheme {
			return authorityOf{u.Host, strings.TrimPrefix(u.Path, "/")}
		}
	}
	return authorityOf{}
}

// onlyOne refuses a certificate that says of several things that it is their authority, or says it
// in another form than this package writes.
func onlyOne(cert *x509.Certificate) error {
	n := 0
	for _, u := range cert.URIs {
		if u.Scheme != scheme {
			continue
		}
		if n++; n > 1 || u.Opaque != "" || u.Host == "" || strings.Count(u.Path, "/") > 1 || u.Path == "/" {
			return fmt.Errorf("certificate %q says with %v of what it is the authority: have it made by `weir pki init`",
				cert.Subject, cert.URIs)
		}
	}
	return nil
}

// parseRoots reads all certificates of a text. One that is cut off is an error: it may be the one
// that is needed.
func parseRoots(text []byte) (*roots, error) {
	r := &roots{founding: x509.NewCertPool(), organized: map[string]*x509.CertPool{}, all: x509.NewCertPool()}
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
		if err := onlyOne(cert); err != nil {
			return nil, err
		}
		r.all.AddCert(cert)
		if o := ofAuthority(cert).Organization; o != "" {
			if r.organized[o] == nil {
				r.organized[o] = x509.NewCertPool()
			}
			r.organized[o].AddCert(cert)
		} else {
			r.founders = append(r.founders, cert)
			r.founding.AddCert(cert)
		}
		n++
	}
	switch {
	case bytes.Contains(text, []byte("-----BEGIN")):
		return nil, errors.New("its last PEM block is cut off")
	case n == 0:
		return nil, errors.New("no PEM block CERTIFICATE")
	}
	return r, nil
}

// of returns who may vouch for an identity: one of these. self is whose process this is: what the
// file has of its own organization's authorities counts for itself if the charter does not have the
// organization, so that its own parts go on.
func (r *roots) of(id, self Identity, c *charter) ([]*x509.CertPool, error) {
	if federal(id.Part) {
		if c != nil {
			if err := c.expelled(id.Organization, id.Part); err != nil {
				return nil, err
			}
		}
		return []*x509.CertPool{r.founding}, nil
	}
	own := r.organized[id.Organization]
	switch {
	case c == nil && own == nil:
		return []*x509.CertPool{r.founding}, nil
	case c == nil:
		return []*x509.CertPool{own, r.founding}, nil
	case c.vouch[id.Organization] != nil:
		return []*x509.CertPool{c.vouch[id.Organization]}, nil
	case own != nil && id.Organization == self.Organization:
		return []*x509.CertPool{own}, nil
	}
	return nil, c.expelled(id.Organization, id.Part)
}

// Founders returns the certificates (PEM) of founding authorities that a text has. ErrInvalid.
func Founders(text []byte) ([]string, error) {
	r, err := parseRoots(text)
	if err != nil {
		return nil, fmt.Errorf("read authorities: %w: %w", ErrInvalid, err)
	}
	var out []string
	for _, f := range r.founders {
		out = append(out, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Raw})))
	}
	return out, nil
}

// CheckFounding returns an error of ErrInvalid unless a text (PEM) has certificates of a
// federation's founding authority only.
func CheckFounding(text []byte, federation string) error {
	r, err := parseRoots(text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for name := range r.organized {
		return fmt.Errorf("%w: it has the authority of organization %q", ErrInvalid, name)
	}
	for _, f := range r.founders {
		if of := ofAuthority(f); of.Federation != "" && of.Federation != federation {
			return fmt.Errorf("%w: it is of %s, and not of %s", ErrInvalid, of, federation)
		}
	}
	return nil
}

// federal are the parts that only the founding authority vouches for.
func federal(p Part) bool { return p == PartRegistry || p == PartAdministrator }
