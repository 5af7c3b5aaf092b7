// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Charter lists the organizations of a federation, and the authorities that vouch for each. The
// founding authority signs it. Without one, the founding authority vouches for everybody.
type Charter struct {
	Federation string `json:"federation"`
	// Serial counts a federation's charters, from 1. A higher one replaces a lower one.
	Serial uint64 `json:"serial"`
	// Made is when it was signed, for people.
	Made time.Time `json:"made"`
	// Organizations are in order of their names.
	Organizations []Organization `json:"organizations"`
	// SignedSince is from when on records of the registry count only with a signature of who may
	// write them; zero: those without one count too.
	SignedSince time.Time `json:"signedSince,omitzero"`
	// Conceals: an organization is shown only the volumes that concern it.
	Conceals bool `json:"conceals,omitempty"`
	// Labels are what the federation says of sites, by site. A label of which it says something for
	// any site counts at each site only as it says, whatever the site says of itself.
	Labels map[string]map[string]string `json:"labels,omitempty"`
}

// Organization is one of a federation.
type Organization struct {
	Name string `json:"name"`
	// Authorities are certificates, PEM, one each: whoever one of them vouches for is of the
	// organization. There are several while one takes over from another.
	Authorities []string `json:"authorities"`
	// Former are authorities that vouched for the organization: what was signed meanwhile still
	// counts.
	Former []Former `json:"former,omitempty"`
	// Expelled is set of one whose certificates count no more.
	Expelled *Expulsion `json:"expelled,omitempty"`
}

// Former is an authority that does not vouch for an organization any more.
type Former struct {
	Authority string    `json:"authority"` // its certificate, PEM
	Until     time.Time `json:"until"`
}

// Expulsion says why an organization is not of the federation any more, for people.
type Expulsion struct {
	At  time.Time `json:"at"`
	Why string    `json:"why"`
}

// ErrCharter is wrapped by errors about charters that are not taken.
var ErrCharter = errors.New("charter refused")

// charterType is what a signature is for, in its protected header (RFC 7515, section 4.1.9).
const charterType = "weir-charter"

// mostCharter is how large a signed charter may be, in bytes: the registry's records have a bound,
// and a hundred organizations with two authorities each are below it.
const mostCharter = 256 << 10

// Find returns an organization, nil if the charter does not have it.
func (c *Charter) Find(name string) *Organization {
	for i := range c.Organizations {
		if c.Organizations[i].Name == name {
			return &c.Organizations[i]
		}
	}
	return nil
}

// Fingerprint is the SHA-256 of a certificate (PEM), in hexadecimal: what people compare.
func Fingerprint(certificate string) (string, error) {
	c, err := parseCert([]byte(certificate))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:]), nil
}

// former are authorities that vouched for an organization until then.
type former struct {
	pool  *x509.CertPool
	until time.Time
}

// check returns the authorities of each organization that is not expelled, and those that vouched
// for one before.
func (c *Charter) check() (map[string]*x509.CertPool, map[string][]former, error) {
	fail := func(format string, a ...any) (map[string]*x509.CertPool, map[string][]former, error) {
		return nil, nil, fmt.Errorf("check charter: %w: %s", ErrInvalid, fmt.Sprintf(format, a...))
	}
	if !labelForm.MatchString(c.Federation) {
		return fail("federation is %q: use a DNS label", c.Federation)
	}
	if c.Serial == 0 {
		return fail("serial is 0: count from 1")
	}
	if err := c.checkLabels(); err != nil {
		return nil, nil, err
	}
	vouch, vouched := map[string]*x509.CertPool{}, map[string][]former{}
	for i, o := range c.Organizations {
		if i > 0 && o.Name <= c.Organizations[i-1].Name {
			return fail("organization %q comes after %q: list each once, in order", o.Name, c.Organizations[i-1].Name)
		}
		if err := checkOrganization(o.Name); err != nil {
			return nil, nil, err
		}
		pool := x509.NewCertPool()
		for _, text := range o.Authorities {
			cert, err := c.authority(o.Name, text)
			if err != nil {
				return nil, nil, err
			}
			pool.AddCert(cert)
		}
		for _, f := range o.Former {
			cert, err := c.authority(o.Name, f.Authority)
			if err != nil {
				return nil, nil, err
			}
			one := x509.NewCertPool()
			one.AddCert(cert)
			vouched[o.Name] = append(vouched[o.Name], former{one, f.Until})
		}
		if o.Expelled != nil {
			vouched[o.Name] = append(vouched[o.Name], former{pool, o.Expelled.At})
		} else {
			if len(o.Authorities) == 0 {
				return fail("organization %q has no authority: give the file ca.crt of its authority", o.Name)
			}
			vouch[o.Name] = pool
		}
	}
	return vouch, vouched, nil
}

// authority reads the certificate of an organization's authority.
func (c *Charter) authority(organization, text string) (*x509.Certificate, error) {
	cert, of, err := parseAuthorityCert(text)
	if err != nil {
		return nil,
			fmt.Errorf("check charter: %w: organization %q has an authority that is none (%w): give the file ca.crt of its authority",
				ErrInvalid, organization, err)
	}
	if of.Federation != "" && of.Federation != c.Federation || of.Organization != "" && of.Organization != organization {
		return nil, fmt.Errorf("check charter: %w: organization %q has an authority that is of %s: give its own", ErrInvalid, organization,
			of)
	}
	return cert, nil
}

// FirstCertificate is the first certificate of a text (PEM), as Charter has them: in an
// organization's file of authorities, its own.
func FirstCertificate(text []byte) (string, error) {
	c, err := parseCert(text)
	if err != nil {
		return "", fmt.Errorf("read certificate: %w: %w", ErrInvalid, err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})), nil
}

// parseAuthorityCert reads one certificate that may issue others, and of what it is the authority,
// as far as it says so.
func parseAuthorityCert(text string) (*x509.Certificate, authorityOf, error) {
	b, rest := pem.Decode([]byte(text))
	if b == nil || b.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, authorityOf{}, errors.New("it is not one PEM block CERTIFICATE")
	}
	cert, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		return nil, authorityOf{}, err
	}
	if !cert.IsCA {
		return nil, authorityOf{}, errors.New("its certificate may not issue others")
	}
	if err := onlyOne(cert); err != nil {
		return nil, authorityOf{}, err
	}
	return cert, ofAuthority(cert), nil
}

// SignCharter signs a charter of the authority's federation. Only the founding authority does.
func (a *Authority) SignCharter(c Charter) (string, error) {
	if a.organization != "" {
		return "", fmt.Errorf("sign charter: %w: this is the authority of organization %s: the founding authority of federation %s signs",
			ErrInvalid, a.organization, a.federation)
	}
	if c.Federation != a.federation {
		return "", fmt.Errorf("sign charter: %w: it is of federation %q, and the authority of %q: use that federation's", ErrInvalid,
			c.Federation, a.federation)
	}
	if _, _, err := c.check(); err != nil {
		return "", err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("sign charter: %w", err)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: a.key},
		new(jose.SignerOptions).WithType(charterType))
	if err != nil {
		return "", fmt.Errorf("sign charter: %w", err)
	}
	signed, err := s.Sign(text)
	if err != nil {
		return "", fmt.Errorf("sign charter: %w", err)
	}
	out, err := signed.CompactSerialize()
	if err == nil && len(out) > mostCharter {
		err = fmt.Errorf("%w: it has %d bytes, and %d are the most: drop authorities that are not used any more", ErrInvalid, len(out),
			mostCharter)
	}
	if err != nil {
		return "", fmt.Errorf("sign charter: %w", err)
	}
	return out, nil
}

// charter is a Charter that is in force.
type charter struct {
	Charter
	signed string
	text   string                    // what was signed
	vouch  map[string]*x509.CertPool // by organization
	former map[string][]former       // by organization
}

// readCharter checks a signed charter: by whom it is, of what, and what it says.
func (r *roots) readCharter(federation, signed string) (*charter, error) {
	fail := func(format string, a ...any) (*charter, error) {
		return nil, fmt.Errorf("read charter: %w: %s", ErrCharter, fmt.Sprintf(format, a...))
	}
	if len(signed) > mostCharter {
		return fail("it has %d bytes, and %d are the most", len(signed), mostCharter)
	}
	s, err := jose.ParseSignedCompact(signed, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return fail("it is no signed text: %v", err)
	}
	if typ := s.Signatures[0].Protected.ExtraHeaders[jose.HeaderType]; typ != charterType {
		return fail("its signature is for %q, and not for %q", typ, charterType)
	}
	var text []byte
	for _, f := range r.founders {
		if text, err = s.Verify(f.PublicKey); err == nil {
			break
		}
	}
	if text == nil {
		return fail("no founding authority that is trusted here signed it")
	}
	out := &charter{signed: signed, text: string(text)}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // of a later release, whose meaning is not known
	if err := d.Decode(&out.Charter); err != nil {
		return fail("%v: upgrade this program", err)
	}
	if out.Federation != federation {
		return fail("it is of federation %q, and this is %q", out.Federation, federation)
	}
	if out.vouch, out.former, err = out.check(); err != nil {
		return fail("%v", err)
	}
	return out, nil
}

// expelled says that an organization does not count, and why. Parts that the founding authority
// vouches for need not be of one that the charter has.
func (c *charter) expelled(organization string, p Part) error {
	switch o := c.Find(organization); {
	case o == nil && federal(p):
	case o == nil:
		return fmt.Errorf("organization %q is not of federation %s: %w: an administrator admits it with `weir federation admit`",
			organization,
			c.Federation, ErrPeer)
	case o.Expelled != nil:
		return fmt.Errorf("organization %q was expelled from federation %s on %s (%s): %w", organization, c.Federation,
			o.Expelled.At.UTC().Format(time.RFC3339), o.Expelled.Why, ErrPeer)
	}
	return nil
}

// checkOrganization checks a name as certificates have it.
func checkOrganization(name string) error {
	if name == "" || strings.ContainsAny(name, "/\r\n\x00") {
		return fmt.Errorf("check certificate: %w: organization is %q: name the institution, without a slash", ErrInvalid, name)
	}
	return nil
}

// ReadCharter reads a charter of a federation, which a founding authority among some certificates
// (PEM) has signed. ErrCharter: none of them has.
func ReadCharter(authorities []byte, federation, signed string) (Charter, error) {
	r, err := parseRoots(authorities)
	if err != nil {
		return Charter{}, fmt.Errorf("read charter: authorities: %w: %w", ErrInvalid, err)
	}
	c, err := r.readCharter(federation, signed)
	if err != nil {
		return Charter{}, err
	}
	return c.Charter, nil
}

// Set puts an organization into the charter, or replaces it.
func (c *Charter) Set(o Organization) {
	i, there := slices.BinarySearchFunc(c.Organizations, o.Name, func(x Organization, name string) int {
		return strings.Compare(x.Name, name)
	})
	if there {
		c.Organizations[i] = o
	} else {
		c.Organizations = slices.Insert(c.Organizations, i, o)
	}
}
