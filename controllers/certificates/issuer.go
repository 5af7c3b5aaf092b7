// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weir-storage/weir/pki"
)

// Wanted is a certificate that a site needs.
type Wanted struct {
	// Part and Name are those of its identity, and Secret is where it is kept.
	Part         pki.Part
	Name, Secret string
	// Hosts are the IP addresses and DNS names at which its owner is reached.
	Hosts []string
}

// ParseWanted reads PART/NAME=SECRET or PART/NAME=SECRET=HOST,HOST.
func ParseWanted(text string) (Wanted, error) {
	parts := strings.SplitN(text, "=", 3)
	part, name, ok := strings.Cut(parts[0], "/")
	if len(parts) < 2 || !ok || name == "" || parts[1] == "" {
		return Wanted{}, fmt.Errorf("--issue %q: write PART/NAME=SECRET or PART/NAME=SECRET=HOST,HOST", text)
	}
	if !slices.Contains(pki.Parts(), pki.Part(part)) {
		return Wanted{}, fmt.Errorf("--issue %q: part %q: write one of %q", text, part, pki.Parts())
	}
	w := Wanted{Part: pki.Part(part), Name: name, Secret: parts[1]}
	if len(parts) == 3 {
		w.Hosts = strings.Split(parts[2], ",")
	}
	for _, h := range w.Hosts {
		if h == "" || strings.Contains(h, "$(") {
			return Wanted{}, fmt.Errorf("--issue %q: host %q is no address: the Service that has it was not there when this pod "+
				"began; it is tried again", text, h)
		}
	}
	return w, nil
}

// Issuer makes and renews certificates of one site.
type Issuer struct {
	Secrets
	// Federation, Organization and Site are those of all its certificates.
	Federation, Organization, Site string
	// Authority is the name of the authority's Secret.
	Authority string
	// ValidFor is how long a certificate is valid.
	ValidFor time.Duration
	// Now is the clock.
	Now func() time.Time
}

// authority is one that was read from its Secret.
type authority struct {
	*pki.Authority
	secret *corev1.Secret
	cert   *x509.Certificate
	// bundle is the ca.crt of the certificates that it issues: itself, and those of trusted.crt.
	bundle []byte
}

// Ensure makes the authority, valid for so long, if there is none, and each certificate that is
// missing or is not as wanted. A Secret that somebody else made is an error, before anything is
// done: with another authority's certificates in it, the federation would refuse the site. It
// returns at the first error; what was done until then stays.
func (i *Issuer) Ensure(ctx context.Context, wanted []Wanted, authorityValidFor time.Duration) error {
	for _, w := range wanted {
		old, err := i.Get(ctx, w.Secret)
		if err != nil {
			return err
		}
		if old != nil && old.Labels[managedBy] != bySetup {
			return fmt.Errorf("secret %s/%s was not made by `weir setup`, its label %s is %q, and certificates.mode is generated: give "+
				"helm the file certificates.yaml again that has this site's certificates; or write where they come from in "+
				"certificates.mode; or, to have new ones of an authority in this cluster, delete the Secret", i.Namespace, w.Secret,
				managedBy, old.Labels[managedBy])
		}
	}
	a, err := i.ensureAuthority(ctx, authorityValidFor)
	if err != nil {
		return err
	}
	for _, w := range wanted {
		if err := i.ensure(ctx, a, w); err != nil {
			return err
		}
	}
	return nil
}

func (i *Issuer) ensureAuthority(ctx context.Context, validFor time.Duration) (*authority, error) {
	a, err := i.authority(ctx)
	if a != nil || err != nil {
		return a, err
	}
	fresh, err := pki.NewAuthority(i.Federation, i.Now(), validFor)
	if err != nil {
		return nil, err
	}
	p, err := fresh.Pair()
	if err != nil {
		return nil, err
	}
	if err := i.Make(ctx, i.Authority, map[string][]byte{caCert: p.Cert, caKey: p.Key}); err != nil {
		return nil, err
	}
	return i.authority(ctx)
}

// authority reads the one that is there; nil: there is none.
func (i *Issuer) authority(ctx context.Context) (*authority, error) {
	secret, err := i.Get(ctx, i.Authority)
	if secret == nil || err != nil {
		return nil, err
	}
	fail := func(format string, a ...any) (*authority, error) {
		return nil, fmt.Errorf("secret %s/%s: "+format, append([]any{i.Namespace, i.Authority}, a...)...)
	}
	parsed, err := pki.ParseAuthority(pki.Pair{Cert: secret.Data[caCert], Key: secret.Data[caKey]})
	if err != nil {
		return fail("%w: put the federation's ca.crt and ca.key there, or give certificates that were issued elsewhere", err)
	}
	if parsed.Federation() != i.Federation {
		return fail("it is the authority of federation %q, and --federation is %q: correct one of the two", parsed.Federation(),
			i.Federation)
	}
	p, err := parsed.Pair()
	if err != nil {
		return fail("%w", err)
	}
	cert, err := leaf(p.Cert)
	if err != nil {
		return fail("%s: %w", caCert, err)
	}
	more := secret.Data[trusted]
	if len(bytes.TrimSpace(more)) > 0 && !x509.NewCertPool().AppendCertsFromPEM(more) {
		return fail("%s has no certificate: put the other authority's ca.crt there, or remove it", trusted)
	}
	return &authority{Authority: parsed, secret: secret, cert: cert, bundle: slices.Concat(p.Cert, more)}, nil
}

// ensure issues a certificate that is missing, or is not as wanted.
func (i *Issuer) ensure(ctx context.Context, a *authority, w Wanted) error {
	old, err := i.Get(ctx, w.Secret)
	if err != nil {
		return err
	}
	id := pki.Identity{Federation: i.Federation, Organization: i.Organization, Site: i.Site, Gateway: w.Name, Part: w.Part}
	if old != nil {
		done, err := i.keep(ctx, a, old, id, w.Hosts)
		if done || err != nil {
			return err
		}
	}
	data, err := i.issue(a, id, w.Hosts)
	if err != nil {
		return err
	}
	if old == nil {
		return i.Make(ctx, w.Secret, data)
	}
	return i.replace(ctx, old, data)
}

// keep leaves a certificate that will do as it is, and sees to it that its Secret has the right
// authorities. It reports whether the certificate will do.
func (i *Issuer) keep(ctx context.Context, a *authority, old *corev1.Secret, id pki.Identity, hosts []string) (bool, error) {
	cert, err := leaf(old.Data[corev1.TLSCertKey])
	if err != nil || !i.good(cert, a, id, hosts) {
		return false, nil
	}
	if bytes.Equal(old.Data[caCert], a.bundle) {
		return true, nil
	}
	return true, i.replace(ctx, old, map[string][]byte{caCert: a.bundle,
		corev1.TLSCertKey: old.Data[corev1.TLSCertKey], corev1.TLSPrivateKeyKey: old.Data[corev1.TLSPrivateKeyKey]})
}

func (i *Issuer) issue(a *authority, id pki.Identity, hosts []string) (map[string][]byte, error) {
	p, err := a.Issue(id, hosts, i.Now(), i.ValidFor)
	if err != nil {
		return nil, fmt.Errorf("issue certificate %s: %w", id.Gateway, err)
	}
	return map[string][]byte{caCert: a.bundle, corev1.TLSCertKey: p.Cert, corev1.TLSPrivateKeyKey: p.Key}, nil
}

// good reports whether a certificate is the authority's, for that identity and those hosts, and has
// enough of its time left.
func (i *Issuer) good(c *x509.Certificate, a *authority, id pki.Identity, hosts []string) bool {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	check := x509.VerifyOptions{Roots: roots, CurrentTime: i.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if _, err := c.Verify(check); err != nil {
		return false
	}
	whole, left := c.NotAfter.Sub(c.NotBefore), c.NotAfter.Sub(i.Now())
	inTime := left >= whole/3 || !c.NotAfter.Before(a.cert.NotAfter)
	return inTime && len(c.URIs) == 1 && c.URIs[0].String() == id.String() &&
		strings.Join(c.Subject.OrganizationalUnit, ",") == string(id.Part) &&
		!slices.ContainsFunc(hosts, func(h string) bool { return c.VerifyHostname(h) != nil })
}

// leaf reads the first certificate of a PEM text.
func leaf(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM block CERTIFICATE")
	}
	return x509.ParseCertificate(block.Bytes)
}
