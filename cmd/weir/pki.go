// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/pki"
)

const (
	authorityName     = "ca"
	authorityValidFor = 10 * 365 * 24 * time.Hour
	validFor          = 365 * 24 * time.Hour
)

func (sh *shell) pkiCommand() *cobra.Command {
	c := &cobra.Command{Use: "pki", Short: "Make and show certificates",
		Long: "Makes a federation's authority and certificates, as files: for trials and small federations. Keep ca.key off the gateways."}
	group(c)
	c.AddCommand(sh.pkiInit(), sh.pkiIssue(), sh.pkiBundle(), sh.pkiShow())
	return c
}

func (sh *shell) pkiInit() *cobra.Command {
	var dir, fed string
	var valid time.Duration
	c := &cobra.Command{
		Use: "init --dir D --federation F", Short: "Make a federation's authority: D/ca.crt and D/ca.key", Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if fed == "" {
				return usage("pki init: no --federation: name the federation")
			}
			a, err := pki.NewAuthority(fed, sh.now(), valid)
			if err != nil {
				return err
			}
			pair, err := a.Pair()
			if err != nil {
				return err
			}
			cert, key, err := pair.Write(dir, authorityName)
			if err != nil {
				return err
			}
			return sh.say("%s\n%s\n", cert, key)
		},
	}
	c.Flags().StringVar(&dir, "dir", ".", "`FOLDER` to write to")
	c.Flags().StringVar(&fed, "federation", "", "federation's `NAME`")
	c.Flags().DurationVar(&valid, "valid-for", authorityValidFor, "`TIME` until it expires")
	return c
}

func (sh *shell) pkiIssue() *cobra.Command {
	var dir string
	var id pki.Identity
	var hosts []string
	var valid time.Duration
	c := &cobra.Command{
		Use:   "issue --dir D --organization O --site S --gateway G --host H...",
		Short: "Issue a certificate: D/G.crt and D/G.key", Args: args(cobra.NoArgs),
		Long: "Issues a certificate with the authority in folder D, for a gateway, a member of the registry, or an operator (who needs no --host).",
		RunE: func(*cobra.Command, []string) error {
			for _, f := range [][2]string{{"--organization", id.Organization}, {"--site", id.Site}, {"--gateway", id.Gateway}} {
				if f[1] == "" {
					return usage("pki issue: no %s: give organization, site and gateway", f[0])
				}
			}
			if id.Gateway == authorityName {
				return usage("pki issue: --gateway %s: the authority's files have that name: choose another", id.Gateway)
			}
			a, err := pki.ReadAuthority(dir, authorityName)
			if err != nil {
				return fmt.Errorf("%w: make one with `weir pki init --dir %s --federation NAME`", err, dir)
			}
			id.Federation = a.Federation()
			pair, err := a.Issue(id, hosts, sh.now(), valid)
			if err != nil {
				return err
			}
			cert, key, err := pair.Write(dir, id.Gateway)
			if err != nil {
				return err
			}
			return sh.say("%s\n%s\n", cert, key)
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "dir", ".", "`FOLDER` with the authority's files, to write to")
	f.StringVar(&id.Organization, "organization", "", "`NAME` of the institution")
	f.StringVar(&id.Site, "site", "", "`NAME` of the site")
	f.StringVar(&id.Gateway, "gateway", "", "`NAME` of the gateway, registry member or operator")
	f.StringSliceVar(&hosts, "host", nil, "IP `ADDRESS` or DNS name at which it is reached; may be repeated")
	f.DurationVar(&valid, "valid-for", validFor, "`TIME` until it expires, at most the authority's")
	return c
}

func (sh *shell) pkiShow() *cobra.Command {
	return &cobra.Command{
		Use: "show FILE", Short: "Show whom a certificate is for and until when", Args: args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, a []string) error {
			text, err := os.ReadFile(filepath.Clean(a[0]))
			if err != nil {
				return fmt.Errorf("show certificate: %w", err)
			}
			out, err := showCertificate(text, sh.now())
			if err != nil {
				return fmt.Errorf("show certificate %s: %w", a[0], err)
			}
			return sh.say("%s", out)
		},
	}
}

func showCertificate(text []byte, now time.Time) (string, error) {
	b, _ := pem.Decode(text)
	if b == nil || b.Type != "CERTIFICATE" {
		return "", fmt.Errorf("no PEM block CERTIFICATE: give a .crt file that `weir pki` wrote")
	}
	cert, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if cert.IsCA {
		fmt.Fprintf(&out, "authority:  %s\n", cert.Subject.CommonName)
	} else {
		id, err := pki.PeerIdentity(tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}})
		if err != nil {
			return "", err
		}
		hosts := cert.DNSNames
		for _, ip := range cert.IPAddresses {
			hosts = append(hosts, ip.String())
		}
		fmt.Fprintf(&out, "identity:   %s\nhosts:      %s\nissued by:  %s\n", id, strings.Join(hosts, ", "), cert.Issuer.CommonName)
	}
	state := "valid"
	if now.After(cert.NotAfter) {
		state = "EXPIRED"
	} else if now.Before(cert.NotBefore) {
		state = "NOT YET VALID"
	}
	fmt.Fprintf(&out, "valid:      %s to %s (%s)\n", cert.NotBefore.UTC().Format(time.RFC3339), cert.NotAfter.UTC().Format(time.RFC3339), state)
	return out.String(), nil
}
