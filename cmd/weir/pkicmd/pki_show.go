// SPDX-License-Identifier: Apache-2.0

package pkicmd

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/pki"
)

func showCommand(sh *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "show FILE", Short: "Show whom a certificate is for and until when", Args: cli.Args(cobra.ExactArgs(1)),
		Example: "  weir pki show authority/ams-1.crt",
		RunE: func(_ *cobra.Command, a []string) error {
			text, err := os.ReadFile(filepath.Clean(a[0]))
			if err != nil {
				return fmt.Errorf("show certificate: %w", err)
			}
			out, err := showCertificate(text, sh.Now())
			if err != nil {
				return fmt.Errorf("show certificate %s: %w", a[0], err)
			}
			return sh.Say("%s", out)
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
		if o := cert.Subject.Organization; len(o) > 0 {
			fmt.Fprintf(&out, "of:         organization %s\n", strings.Join(o, ", "))
		}
		fmt.Fprintf(&out, "SHA-256:    %x\n", sha256.Sum256(cert.Raw))
	} else {
		id, err := pki.PeerIdentity(tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}})
		if err != nil {
			return "", err
		}
		hosts := cert.DNSNames
		for _, ip := range cert.IPAddresses {
			hosts = append(hosts, ip.String())
		}
		part := cmp.Or(string(id.Part), "none: it is of an earlier release")
		fmt.Fprintf(&out, "identity:   %s\npart:       %s\nhosts:      %s\nissued by:  %s\n", id, part, strings.Join(hosts, ", "),
			cert.Issuer.CommonName)
	}
	state := "valid"
	if now.After(cert.NotAfter) {
		state = "EXPIRED"
	} else if now.Before(cert.NotBefore) {
		state = "NOT YET VALID"
	}
	fmt.Fprintf(&out, "valid:      %s to %s (%s)\n", cli.Stamp(cert.NotBefore), cli.Stamp(cert.NotAfter), state)
	return out.String(), nil
}
