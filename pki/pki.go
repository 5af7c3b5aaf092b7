// SPDX-License-Identifier: Apache-2.0

// Package pki makes and checks the certificates with which gateways, operators and the registry
// know each other.
//
// A certificate authority (ECDSA P-256), that of the federation or of the organization, issues one
// certificate per gateway. A certificate has the organization in Subject.O, and who it is in
// exactly one URI SAN,
//
//	weir://<federation>/<organization>/<site>/<gateway>
//
// besides the addresses at which it is reached. Both must name the same organization. What its
// owner is, its Part, is in Subject.OU; certificates of earlier releases have none. Connections
// are TLS 1.3 with certificates on both sides; after the chain, each side checks the other's
// Identity against what it Expects. The authority's key is the federation's trust: keep it off the
// gateways.
//
// A gateway that is expected by site and name is known by its Identity alone, at whatever address
// it is reached: the authority vouches for names, and gives that name to nobody else. The addresses
// count where less is expected, as for the registry, any member of which will do.
//
// Certificates in files are followed while the process runs (LoadFiles): each handshake shows and
// trusts what is in force then. An authority is replaced in three steps, each of which is
// everywhere before the next: the new one's certificate is put beside the old one's in the file of
// the authority; certificates are issued by the new one; the old one's is taken out.
//
// # Several authorities
//
// A federation begins with one authority, the founding one, which vouches for everybody. Then it
// may sign a Charter: a list of the organizations, with the authorities that vouch for each (ADR
// 26). The file of the authority has the founding one's certificate, and that of the own
// organization.
//
//   - pki-1: a charter counts if a founding authority of the file signed it, for this use and this
//     federation, and if its serial is higher than that of the one in force. So none is taken back
//     but by a new one.
//   - pki-2: with a charter, a certificate counts if an authority that the charter has for the
//     organization in it issued it. Those of parts registry and administrator are the founding
//     authority's. Without a charter the founding authority vouches for all others too. An
//     authority whose own certificate names an organization vouches for that one only. The own
//     organization's, in the file, counts for it if the charter does not have the organization.
//   - pki-3: when a charter is taken (Credentials.Adopt), or the file of the authority changes,
//     open connections are looked at again, and those whose peer does not count any more are closed
//     (Credentials.Keep).
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ErrInvalid is wrapped by errors about names, files and certificates that cannot be used.
var ErrInvalid = errors.New("invalid")

// Identity is who a certificate is for.
type Identity struct {
	// Federation, Site and Gateway are DNS labels; Organization is any text without a slash.
	Federation, Organization, Site, Gateway string
	// Part is what the owner is, which its certificate says beside the URI.
	Part Part
}

// Part is what the owner of a certificate is: what it may do follows from it.
type Part string

// Parts.
const (
	PartUnknown       Part = "" // a certificate of an earlier release
	PartGateway       Part = "gateway"
	PartOperator      Part = "operator"
	PartController    Part = "csi-controller"
	PartNode          Part = "csi-node"
	PartRegistry      Part = "registry" // a member of the registry, and the gatekeeper beside it
	PartPerson        Part = "person"
	PartAdministrator Part = "administrator" // a person who administers the federation
	PartClient        Part = "client"        // a machine that mounts volumes with a certificate
	PartStore         Part = "store"         // room that a site lends to other organizations
)

// Parts are all that a certificate may name.
func Parts() []Part {
	return []Part{PartGateway, PartOperator, PartController, PartNode, PartRegistry, PartPerson, PartAdministrator, PartClient,
		PartStore}
}

// RegistryName is a DNS name that all certificates of part registry have, and no others. Members of
// the registry know each other by it, and their gatekeepers.
func RegistryName(federation string) string { return "registry." + federation + ".weir" }

const scheme = "weir"

var labelForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// String is the identity's URI.
func (i Identity) String() string { return i.uri().String() }

func (i Identity) uri() *url.URL {
	return &url.URL{Scheme: scheme, Host: i.Federation, Path: "/" + i.Organization + "/" + i.Site + "/" + i.Gateway}
}

// Validate checks the names; the error wraps ErrInvalid.
func (i Identity) Validate() error {
	for _, f := range [][2]string{{"federation", i.Federation}, {"site", i.Site}, {"gateway", i.Gateway}} {
		if !labelForm.MatchString(f[1]) {
			return fmt.Errorf("check certificate: %w: %s is %q: use a DNS label, 1 to 63 lower-case letters, digits and '-'", ErrInvalid,
				f[0], f[1])
		}
	}
	if err := checkOrganization(i.Organization); err != nil {
		return err
	}
	if i.Part != PartUnknown && !slices.Contains(Parts(), i.Part) {
		return fmt.Errorf("check certificate: %w: part is %q: write one of %q", ErrInvalid, i.Part, Parts())
	}
	return nil
}

// Pair is a certificate and its private key, both PEM.
type Pair struct{ Cert, Key []byte }

// Authority issues certificates: a founding authority those of a federation, and another those of
// one organization in it.
type Authority struct {
	federation, organization string // organization: empty for a founding authority
	cert                     *x509.Certificate
	key                      crypto.Signer
}

// skew is how far clocks may differ when a certificate is new.
const skew = 10 * time.Minute

// NewAuthority makes the authority of a federation, valid from now. Keys come from the operating
// system's source: since Go 1.26 the crypto packages accept no other.
func NewAuthority(federation string, now time.Time, validFor time.Duration) (*Authority, error) {
	return newAuthority(federation, "", now, validFor)
}

// NewOrganizationAuthority makes the authority of one organization. Nothing that it issues counts
// for another organization, or for parts registry and administrator.
func NewOrganizationAuthority(federation, organization string, now time.Time, validFor time.Duration) (*Authority, error) {
	if err := checkOrganization(organization); err != nil {
		return nil, err
	}
	return newAuthority(federation, organization, now, validFor)
}

func newAuthority(federation, organization string, now time.Time, validFor time.Duration) (*Authority, error) {
	if !labelForm.MatchString(federation) {
		return nil, fmt.Errorf("make authority: %w: federation is %q: use a DNS label, 1 to 63 lower-case letters, digits and '-'",
			ErrInvalid, federation)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	name := pkix.Name{CommonName: "Weir federation " + federation}
	if organization != "" {
		name.Organization = []string{organization}
	}
	tmpl, err := template(name, now, validFor)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.MaxPathLenZero = true, true, true
	tmpl.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	tmpl.URIs = []*url.URL{authorityOf{federation, organization}.uri()}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	return &Authority{federation: federation, organization: organization, cert: cert, key: key}, nil
}

func template(name pkix.Name, now time.Time, validFor time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	if validFor <= 0 {
		return nil, fmt.Errorf("%w: valid for %v: give a positive time", ErrInvalid, validFor)
	}
	return &x509.Certificate{SerialNumber: serial, Subject: name, NotBefore: now.Add(-skew), NotAfter: now.Add(validFor)}, nil
}

// ParseAuthority reads what Pair gave.
func ParseAuthority(p Pair) (*Authority, error) {
	fail := func(what string, err error) error {
		return fmt.Errorf("read authority: %w: %s: %v: give the files that `weir pki` wrote", ErrInvalid, what, err)
	}
	cert, err := parseCert(p.Cert)
	if err != nil {
		return nil, fail("certificate", err)
	}
	if !cert.IsCA || len(cert.URIs) != 1 || cert.URIs[0].Scheme != scheme {
		return nil, fail("certificate", errors.New("not that of a federation's authority"))
	}
	key, err := parseKey(p.Key)
	if err != nil {
		return nil, fail("key", err)
	}
	if pub, ok := key.Public().(*ecdsa.PublicKey); !ok || !pub.Equal(cert.PublicKey) {
		return nil, fail("key", errors.New("does not belong to the certificate"))
	}
	of := ofAuthority(cert)
	return &Authority{federation: of.Federation, organization: of.Organization, cert: cert, key: key}, nil
}

// Pair returns the authority's own certificate and key. Gateways need the certificate only.
func (a *Authority) Pair() (Pair, error) { return encode(a.cert.Raw, a.key) }

// Federation is the name of the federation.
func (a *Authority) Federation() string { return a.federation }

// Organization is whose authority it is; empty: that of the whole federation.
func (a *Authority) Organization() string { return a.organization }

// Issue makes a certificate, for both ends of connections, that is reached at the hosts: IP
// addresses and DNS names. It does not outlast the authority's.
func (a *Authority) Issue(id Identity, hosts []string, now time.Time, validFor time.Duration) (Pair, error) {
	if err := id.Validate(); err != nil {
		return Pair{}, err
	}
	if id.Federation != a.federation {
		return Pair{}, fmt.Errorf("issue certificate %v: %w: this is the authority of federation %s: use that of %s", id, ErrInvalid,
			a.federation, id.Federation)
	}
	switch {
	case a.organization == "":
	case id.Organization != a.organization:
		return Pair{}, fmt.Errorf("issue certificate %v: %w: this is the authority of organization %q: use that of %q, or the federation's",
			id, ErrInvalid, a.organization, id.Organization)
	case federal(id.Part):
		return Pair{},
			fmt.Errorf("issue certificate %v: %w: only the federation's founding authority issues those of part %s: ask whoever "+
				"has it", id, ErrInvalid, id.Part)
	}
	if now.After(a.cert.NotAfter) {
		return Pair{}, fmt.Errorf("issue certificate %v: %w: the authority has expired at %s: make another, or set the clock", id,
			ErrInvalid, a.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("issue certificate %v: %w", id, err)
	}
	name := pkix.Name{CommonName: id.Gateway, Organization: []string{id.Organization}}
	if id.Part != PartUnknown {
		name.OrganizationalUnit = []string{string(id.Part)}
	}
	tmpl, err := template(name, now, validFor)
	if err != nil {
		return Pair{}, fmt.Errorf("issue certificate %v: %w", id, err)
	}
	if tmpl.NotAfter.After(a.cert.NotAfter) {
		tmpl.NotAfter = a.cert.NotAfter
	}
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if id.Part == PartClient { // it is on machines that many use
		tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	tmpl.BasicConstraintsValid = true
	tmpl.URIs = []*url.URL{id.uri()}
	if id.Part == PartRegistry {
		tmpl.DNSNames = append(tmpl.DNSNames, RegistryName(a.federation))
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else if strings.EqualFold(strings.TrimSuffix(h, "."), RegistryName(a.federation)) {
			if id.Part != PartRegistry {
				return Pair{}, fmt.Errorf("issue certificate %v: %w: host %q: members of the registry have that name: issue it for "+
					"part %s", id, ErrInvalid, h, PartRegistry)
			}
		} else if h != "" && !strings.ContainsAny(h, " /:*") {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		} else {
			return Pair{}, fmt.Errorf("issue certificate %v: %w: host %q: give IP addresses and DNS names, without port", id, ErrInvalid, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issue certificate %v: %w", id, err)
	}
	return encode(der, key)
}

func encode(der []byte, key crypto.Signer) (Pair, error) {
	k, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k}),
	}, nil
}

func parseCert(text []byte) (*x509.Certificate, error) {
	b, _ := pem.Decode(text)
	if b == nil || b.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM block CERTIFICATE")
	}
	return x509.ParseCertificate(b.Bytes)
}

func parseKey(text []byte) (crypto.Signer, error) {
	b, _ := pem.Decode(text)
	if b == nil || b.Type != "PRIVATE KEY" {
		return nil, errors.New("no PEM block PRIVATE KEY")
	}
	k, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	if err != nil {
		return nil, err
	}
	s, ok := k.(crypto.Signer)
	if !ok {
		return nil, errors.New("not a signing key")
	}
	return s, nil
}
