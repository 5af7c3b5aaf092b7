// SPDX-License-Identifier: Apache-2.0

package setupcmd

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/pki"
)

// wantedCert is a certificate that --issue asks for.
type wantedCert struct {
	name, secret string
	hosts        []string
}

func (s *setup) certificates() ([]wantedCert, error) {
	var out []wantedCert
	for _, text := range s.issue {
		parts := strings.SplitN(text, "=", 3)
		if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
			return nil, cli.Usage("setup: --issue %q: write NAME=SECRET or NAME=SECRET=HOST,HOST", text)
		}
		c := wantedCert{name: parts[0], secret: parts[1]}
		if len(parts) == 3 {
			c.hosts = strings.Split(parts[2], ",")
		}
		for _, h := range c.hosts {
			if h == "" || strings.Contains(h, "$(") {
				return nil, cli.Usage("setup: --issue %q: host %q is no address: "+
					"the Service that has it was not there when this pod began; it is tried again", text, h)
			}
		}
		out = append(out, c)
	}
	if len(out) > 0 && s.authority == "" {
		return nil, cli.Usage("setup: --issue without --authority: name the Secret of the authority")
	}
	return out, nil
}

// keepCertificate issues a certificate if it is missing, lacks a host, is of another authority, or
// ends soon.
func (s *setup) keepCertificate(ctx context.Context, a *pki.Authority, w wantedCert) error {
	old, err := s.secret(ctx, w.secret)
	if err != nil {
		return err
	}
	ca, err := a.Pair()
	if err != nil {
		return err
	}
	id := pki.Identity{Federation: s.federation, Organization: s.organization, Site: s.site, Gateway: w.name}
	if old != nil && bytes.Equal(old.Data[caCert], ca.Cert) && s.good(old.Data[corev1.TLSCertKey], ca.Cert, id, w.hosts) {
		return nil
	}
	p, err := a.Issue(id, w.hosts, s.now(), s.validFor)
	if err != nil {
		return fmt.Errorf("issue certificate %s: %w", w.name, err)
	}
	data := map[string][]byte{caCert: ca.Cert, corev1.TLSCertKey: p.Cert, corev1.TLSPrivateKeyKey: p.Key}
	if old == nil {
		return s.createSecret(ctx, w.secret, data)
	}
	old.Data = data
	if err := s.client.Update(ctx, old); err != nil {
		return fmt.Errorf("renew secret %s/%s: %w", s.namespace, w.secret, err)
	}
	s.tell("secret %s is renewed\n", w.secret)
	return nil
}

// good reports whether a certificate can stay.
func (s *setup) good(cert, ca []byte, id pki.Identity, hosts []string) bool {
	block, _ := pem.Decode(cert)
	roots := x509.NewCertPool()
	if block == nil || !roots.AppendCertsFromPEM(ca) {
		return false
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return false
	}
	anyUse := []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	if _, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: s.now(), KeyUsages: anyUse}); err != nil {
		return false
	}
	whole, left := c.NotAfter.Sub(c.NotBefore), c.NotAfter.Sub(s.now())
	return left >= whole/3 && len(c.URIs) == 1 && c.URIs[0].String() == id.String() &&
		!slices.ContainsFunc(hosts, func(h string) bool { return c.VerifyHostname(h) != nil })
}
