// SPDX-License-Identifier: Apache-2.0

package preflightcmd

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gopkg.in/ini.v1"

	"github.com/weir-storage/weir/pki"
)

// nfsTLS checks what a node needs to mount over TLS: a kernel that begins it, tlshd, which makes
// the handshakes, and a certificate of part client that it shows (RFC 9289, tlshd.conf(5)).
func (m machine) nfsTLS(now time.Time) []finding {
	return []finding{m.kernelTLS(), m.handshakes(), m.nodeCertificate(now)}
}

// kernelTLS looks for Linux 6.5, whose NFS client knows xprtsec=, and for the kernel's TLS.
func (m machine) kernelTLS() finding {
	f := finding{Check: "NFS over TLS"}
	kernel, err := m.release()
	if err != nil {
		f.Verdict, f.Found = broken, err.Error()
		return f
	}
	f.Found = "kernel " + kernel
	var major, minor int
	if _, err := fmt.Sscanf(kernel, "%d.%d", &major, &minor); err != nil || major < 6 || major == 6 && minor < 5 {
		f.Verdict, f.Mend = broken, "install Linux 6.5 or later: the NFS client of this one does not know xprtsec="
		return f
	}
	// TLS in the kernel: built in or loaded, or a module that the first handshake loads.
	for _, name := range []string{"proc/net/tls_stat", "lib/modules/" + kernel + "/kernel/net/tls/tls.ko*",
		"usr/lib/modules/" + kernel + "/kernel/net/tls/tls.ko*"} {
		if found, _ := filepath.Glob(filepath.Join(m.root, name)); len(found) > 0 { // no error: the pattern is right
			return f
		}
	}
	f.Verdict, f.Found = broken, "kernel "+kernel+" has no TLS, built in or as a module"
	f.Mend = "install the distribution's package with the module tls for this kernel, or a kernel with CONFIG_TLS"
	return f
}

// handshakes looks for a process named tlshd.
func (m machine) handshakes() finding {
	f := finding{Check: "tlshd"}
	all, _ := filepath.Glob(filepath.Join(m.root, "proc/[0-9]*/comm")) // no error: the pattern is right
	for _, comm := range all {
		if text, err := os.ReadFile(comm); err == nil && strings.TrimSpace(string(text)) == "tlshd" {
			f.Found = "runs, as process " + filepath.Base(filepath.Dir(comm))
			return f
		}
	}
	f.Verdict, f.Found = broken, "no process of that name runs"
	f.Mend = "install ktls-utils, and start it: systemctl enable --now tlshd; mounts over TLS wait for it and fail"
	return f
}

// nodeCertificate looks at the certificate that tlshd shows.
func (m machine) nodeCertificate(now time.Time) finding {
	f := finding{Check: "tlshd's certificate", Verdict: broken}
	names := []string{"etc/tlshd/config", "etc/tlshd.conf"}
	var conf []byte
	var from string
	for _, name := range names {
		if text, err := os.ReadFile(filepath.Join(m.root, name)); err == nil {
			conf, from = text, "/"+name
			break
		}
	}
	const howTo = "see docs/operations.md, clients with certificates"
	if from == "" {
		f.Found, f.Mend = "there is neither /"+strings.Join(names, " nor /"), "write one: "+howTo
		return f
	}
	// As GLib reads it, which tlshd does: quotes and comments behind a value are of the value.
	parsed, err := ini.LoadSources(ini.LoadOptions{PreserveSurroundedQuote: true, IgnoreInlineComment: true}, conf)
	if err != nil {
		f.Found, f.Mend = from+": "+err.Error(), "correct it: "+howTo
		return f
	}
	set := parsed.Section("authenticate.client").KeysHash()
	for _, key := range []string{"x509.truststore", "x509.certificate", "x509.private_key"} {
		if set[key] == "" {
			f.Found, f.Mend = from+" has no "+key+" in [authenticate.client]", "add it: "+howTo
			return f
		}
	}
	id, end, err := m.shown(set)
	switch {
	case err != nil:
		f.Found, f.Mend = fmt.Sprintf("%s: %v", from, err), "give it a certificate of `weir pki issue --part client`"
	case id.Part != pki.PartClient:
		f.Found, f.Mend = fmt.Sprintf("%s: %s is of part %q", from, id, id.Part), "give it one of part client (weir pki issue)"
	case !now.Before(end):
		f.Found, f.Mend = fmt.Sprintf("%s: %s ended at %s", from, id, end.UTC().Format(time.RFC3339)), "issue another, and restart tlshd"
	default:
		f.Verdict, f.Found = fine, fmt.Sprintf("%s, until %s", id, end.UTC().Format(time.RFC3339))
	}
	return f
}

// shown reads what tlshd shows, and checks that the key is the certificate's.
func (m machine) shown(set map[string]string) (id pki.Identity, end time.Time, err error) {
	at := func(key string) string { return filepath.Join(m.root, set[key]) }
	pair, err := tls.LoadX509KeyPair(at("x509.certificate"), at("x509.private_key"))
	if err != nil {
		return id, end, err
	}
	trusted, err := os.ReadFile(at("x509.truststore"))
	if err != nil {
		return id, end, err
	}
	if block, _ := pem.Decode(trusted); block == nil || block.Type != "CERTIFICATE" {
		return id, end, errors.New("x509.truststore has no certificate (PEM)")
	}
	id, err = pki.PeerIdentity(tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Leaf}})
	return id, pair.Leaf.NotAfter, err
}
