// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd/etcdtest"
	"github.com/weir-storage/weir/pki"
)

// The registry is reached with the federation's certificates, and without one not at all.
func TestMutualTLS(t *testing.T) {
	dir := t.TempDir()
	issue := func(a *pki.Authority, gateway, name string) pki.Files {
		t.Helper()
		p, err := a.Issue(pki.Identity{Federation: "surf", Organization: "SURF", Site: "ams", Gateway: gateway}, []string{"127.0.0.1"},
			time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		cert, key, err := p.Write(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		return pki.Files{CA: filepath.Join(dir, "ca-"+name+".crt"), Cert: cert, Key: key}
	}
	authority := func(names ...string) *pki.Authority {
		t.Helper()
		a, err := pki.NewAuthority("surf", time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.Pair()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if _, _, err := p.Write(dir, "ca-"+n); err != nil {
				t.Fatal(err)
			}
		}
		return a
	}
	ours, theirs := authority("registry", "ours"), authority("theirs")
	member := issue(ours, "registry-1", "registry")
	server := etcdtest.Start(t, &etcdtest.Files{CA: member.CA, Cert: member.Cert, Key: member.Key})
	connect := func(f pki.Files, want pki.Expect) *Registry {
		t.Helper()
		c, err := pki.LoadFiles(f, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return open(t, Config{Endpoints: []string{server.Endpoint}, TLS: c.Client(want), CallTimeout: 2 * time.Second})
	}
	mine := issue(ours, "ams-1", "ours")
	if _, err := connect(mine, pki.Expect{}).Head(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := connect(issue(theirs, "ams-1", "theirs"), pki.Expect{}).Head(t.Context()); !errors.Is(err, federation.ErrUnavailable) ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("with another authority's certificate: %v", err)
	}
	_, err := connect(mine, pki.Expect{Organizations: []string{"TUe"}}).Head(t.Context())
	if !errors.Is(err, federation.ErrUnavailable) || !strings.Contains(err.Error(), `"TUe"`) {
		t.Errorf("with another organization's registry: %v", err)
	}
}
