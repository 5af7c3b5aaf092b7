// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/federation/etcd/etcdtest"
	"github.com/weir-storage/weir/pki"
)

// A connection to the registry that began with one authority goes on with another, when etcd comes
// back and trusts only that one.
func TestRegistryRenewal(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	authority := func() (*pki.Authority, []byte) {
		a, err := pki.NewAuthority("demo", time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.Pair()
		if err != nil {
			t.Fatal(err)
		}
		return a, p.Cert
	}
	issue := func(a *pki.Authority, name string) {
		t.Helper()
		p, err := a.Issue(pki.Identity{Federation: "demo", Organization: "SURF", Site: "ams", Gateway: name}, []string{"127.0.0.1"},
			time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		clitest.Put(t, path(name+".key"), p.Key)
		clitest.Put(t, path(name+".crt"), p.Cert)
	}
	before, beforeCA := authority()
	after, afterCA := authority()
	clitest.Put(t, path("registry-ca.crt"), beforeCA)
	clitest.Put(t, path("ca.crt"), beforeCA)
	issue(before, "registry")
	issue(before, "operator")
	server := etcdtest.Start(t, &etcdtest.Files{CA: path("registry-ca.crt"), Cert: path("registry.crt"), Key: path("registry.key")})
	creds, err := pki.LoadFiles(pki.Files{CA: path("ca.crt"), Cert: path("operator.crt"), Key: path("operator.key")}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	endpoints := []string{server.Endpoint}
	registry, err := etcd.Open(etcd.Config{After: time.After, Endpoints: endpoints, Federation: "demo",
		TLS: access.RegistryTLS(endpoints, creds), CallTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = registry.Close() })
	if _, err := registry.Head(t.Context()); err != nil {
		t.Fatal(err)
	}

	clitest.Put(t, path("ca.crt"), slices.Concat(beforeCA, afterCA))
	issue(after, "operator")
	server.Stop()
	clitest.Put(t, path("registry-ca.crt"), afterCA)
	issue(after, "registry")
	server.Restart()
	clitest.Eventually(t, "the registry answers", func() error {
		_, err := registry.Head(t.Context())
		return err
	})
}
