// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority issues the certificates of one cluster. Its files, and theirs, are in dir.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// subject is who a certificate speaks for: a user and its groups, in Kubernetes' words.
type subject struct {
	user   string
	groups []string
}

// newAuthority makes ca.crt, ca.key, and the key of service accounts: sa.key, sa.pub.
func newAuthority(dir, name string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &authority{dir: dir}
	var err error
	if a.key, err = a.newKey("ca"); err != nil {
		return nil, err
	}
	template := template(subject{user: name})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	if a.pem, err = a.write("ca.crt", "CERTIFICATE", der); err != nil {
		return nil, err
	}
	accounts, err := a.newKey("sa")
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(accounts.Public())
	if err != nil {
		return nil, fmt.Errorf("make key of service accounts: %w", err)
	}
	_, err = a.write("sa.pub", "PUBLIC KEY", public)
	return a, err
}

// file is the path of one of the authority's files.
func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes file.crt and file.key, good for servers at hosts and for clients.
func (a *authority) issue(file string, who subject, hosts ...string) (cert, key []byte, err error) {
	k, err := a.newKey(file)
	if err != nil {
		return nil, nil, err
	}
	template := template(who)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("issue certificate %s: %w", file, err)
	}
	if cert, err = a.write(file+".crt", "CERTIFICATE", der); err != nil {
		return nil, nil, err
	}
	key, err = os.ReadFile(a.file(file + ".key"))
	return cert, key, err
}

// kubeconfig writes file.conf, with which who talks to the API server, and the certificate for it.
func (a *authority) kubeconfig(file string, who subject, server string, hosts ...string) error {
	cert, key, err := a.issue(file, who, hosts...)
	if err != nil {
		return err
	}
	named := func(kind string, value any) []any { return []any{map[string]any{"name": "site", kind: value}} }
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "site",
		"contexts": named("context", map[string]string{"cluster": "site", "user": "site"}),
		"clusters": named("cluster", map[string]any{"server": server, "certificate-authority-data": a.pem}),
		"users":    named("user", map[string]any{"client-certificate-data": cert, "client-key-data": key}),
	})
	if err != nil {
		return err
	}
	return os.WriteFile(a.file(file+".conf"), text, 0o600)
}

// clientConfig is for clients that present the certificate in file.
func (a *authority) clientConfig(file string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(a.file(file+".crt"), a.file(file+".key"))
	if err != nil {
		return nil, fmt.Errorf("read certificate %s: %w", file, err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

func (a *authority) newKey(file string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key %s: %w", file, err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make key %s: %w", file, err)
	}
	_, err = a.write(file+".key", "EC PRIVATE KEY", der)
	return key, err
}

func (a *authority) write(name, kind string, der []byte) ([]byte, error) {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	return text, os.WriteFile(a.file(name), text, 0o600)
}

func template(who subject) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // never fails
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: who.user, Organization: who.groups},
		NotBefore:    time.Now().Add(-time.Hour), // guests' clocks may be a little behind
		NotAfter:     time.Now().Add(7 * 24 * time.Hour),
	}
}
