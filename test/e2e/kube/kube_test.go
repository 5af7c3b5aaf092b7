// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	_, err := Up(context.Background(), Config{Sites: []string{"a"}, Guests: []string{"b"}, Progress: io.Discard})
	if err == nil || !strings.Contains(err.Error(), `Config.Guests has "b"`) {
		t.Errorf("Up with a guest at no site: %v", err)
	}
}

// TestAuthority checks that the cluster's authority recognises whom a kubeconfig speaks for.
func TestAuthority(t *testing.T) {
	a, err := newAuthority(filepath.Join(t.TempDir(), "pki"), "cluster a")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.kubeconfig("node", subject{"system:node:a-host", []string{"system:nodes"}}, "https://192.0.2.1:6443", "a-host",
		"192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(a.file("node.conf"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Cert []byte `json:"client-certificate-data"`
				Key  []byte `json:"client-key-data"`
			}
		}
	}
	if err := json.Unmarshal(text, &config); err != nil || len(config.Clusters) != 1 || len(config.Users) != 1 {
		t.Fatalf("kubeconfig %s: %v", text, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(config.Clusters[0].Cluster.CA) {
		t.Fatal("kubeconfig has no authority")
	}
	block, _ := pem.Decode(config.Users[0].User.Cert)
	if block == nil {
		t.Fatal("kubeconfig has no certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a-host", "192.0.2.1"} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: name,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Errorf("for %s: %v", name, err)
		}
	}
	if cert.Subject.CommonName != "system:node:a-host" || len(cert.Subject.Organization) != 1 ||
		cert.Subject.Organization[0] != "system:nodes" {
		t.Errorf("the certificate is for %v", cert.Subject)
	}
	if config.Clusters[0].Cluster.Server != "https://192.0.2.1:6443" {
		t.Errorf("the server is %s", config.Clusters[0].Cluster.Server)
	}
}

func TestQuote(t *testing.T) {
	if got := quote([]string{"a b", "it's", "$x"}); got != `'a b' 'it'\''s' '$x'` {
		t.Errorf("quote = %s", got)
	}
}
