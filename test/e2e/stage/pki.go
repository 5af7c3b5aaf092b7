// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority issues certificates for one stage. Its key is in memory only.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that writes its files to dir.
func NewAuthority(dir string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	template, err := newTemplate("stage authority")
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	a := &Authority{dir: dir, key: key}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	if err := errors.Join(os.MkdirAll(dir, 0o700), writePEM(a.file("ca.crt"), "CERTIFICATE", der)); err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	return a, nil
}

// Issue writes a certificate, good for servers and clients, with a common name and any number of
// addresses and DNS names. The files are named after the common name.
func (a *Authority) Issue(commonName string, hosts ...string) (TLS, error) {
	files := TLS{CA: a.file("ca.crt"), Cert: a.file(commonName + ".crt"), Key: a.file(commonName + ".key")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return files, fmt.Errorf("issue certificate %s: %w", commonName, err)
	}
	template, err := newTemplate(commonName)
	if err != nil {
		return files, fmt.Errorf("issue certificate %s: %w", commonName, err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return files, fmt.Errorf("issue certificate %s: %w", commonName, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return files, fmt.Errorf("issue certificate %s: %w", commonName, err)
	}
	if err := errors.Join(writePEM(files.Cert, "CERTIFICATE", der), writePEM(files.Key, "PRIVATE KEY", keyDER)); err != nil {
		return files, fmt.Errorf("issue certificate %s: %w", commonName, err)
	}
	return files, nil
}

// ClientConfig reads the files for a client.
func (t TLS) ClientConfig() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("read certificate %s: %w", t.Cert, err)
	}
	ca, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("read certificate %s: it holds none", t.CA)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS13}, nil
}

func (a *Authority) file(name string) string { return filepath.Join(a.dir, name) }

func newTemplate(commonName string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    time.Now().Add(-time.Hour), // guests' clocks may be a little behind
		NotAfter:     time.Now().Add(7 * 24 * time.Hour),
	}, err
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
