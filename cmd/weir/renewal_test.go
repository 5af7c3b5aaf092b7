// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/federation/etcd/etcdtest"
	"github.com/weir-storage/weir/pki"
)

// put replaces a file at once.
func put(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// eventually guards against hanging.
func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	var last error
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if last = ok(); last == nil {
			return
		}
	}
	t.Fatalf("%s: not so: %v", what, last)
}

// A gateway shows the certificate that is in its file, without a restart; one of another gateway is refused, and told of.
func TestGatewayRenewal(t *testing.T) {
	r := newTrial(t)
	r.configure("ams-1", "ams")
	var log lockedBuffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- r.shell(&log, new(bytes.Buffer)).run(ctx, []string{"gateway", "--config", r.path("ams-1.yaml")})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	report := r.await("ams-1", "the gateway is alive", func(p Report) bool { return len(p.Gateways) == 1 && p.Gateways[0].Answered })
	person, err := pki.LoadFiles(pki.Files{CA: r.path("ca.crt"), Cert: r.path("registry-1.crt"), Key: r.path("registry-1.key")}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	cfg := person.Client(pki.Expect{Site: "ams", Gateway: "ams-1"})
	cfg.NextProtos = []string{"h2"}
	shown := func() ([]byte, error) {
		c, err := tls.Dial("tcp", report.Gateways[0].Addr, cfg)
		if err != nil {
			return nil, err
		}
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0].Raw, nil
	}
	first, err := shown()
	if err != nil {
		t.Fatal(err)
	}
	put(t, r.path("ams-1.crt"), read(t, r.path("registry-1.crt")))
	put(t, r.path("ams-1.key"), read(t, r.path("registry-1.key")))
	eventually(t, "it refuses another's certificate", func() error {
		if now, err := shown(); err != nil || !bytes.Equal(now, first) {
			t.Fatalf("it shows another certificate, or none: %v", err)
		}
		if !strings.Contains(log.String(), "put its own certificate there") {
			return fmt.Errorf("it says %s", log.String())
		}
		return nil
	})
	again := filepath.Join(r.dir, "again")
	for _, name := range []string{"ca.crt", "ca.key"} {
		if err := os.MkdirAll(again, 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(again, name), read(t, r.path(name)))
	}
	r.must("", "pki", "issue", "--dir", again, "--organization", "SURF", "--site", "ams", "--gateway", "ams-1", "--host", "127.0.0.1")
	put(t, r.path("ams-1.crt"), read(t, filepath.Join(again, "ams-1.crt")))
	put(t, r.path("ams-1.key"), read(t, filepath.Join(again, "ams-1.key")))
	eventually(t, "it shows the new certificate", func() error {
		now, err := shown()
		if err == nil && bytes.Equal(now, first) {
			err = fmt.Errorf("it shows the first")
		}
		return err
	})
	if text := log.String(); !strings.Contains(text, "changed certificate files are in force") {
		t.Errorf("it says %s", text)
	}
}

// A connection to the registry that was made with one authority goes on with another, when etcd comes back and trusts only that.
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
		p, err := a.Issue(pki.Identity{Federation: "demo", Organization: "SURF", Site: "ams", Gateway: name}, []string{"127.0.0.1"}, time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		put(t, path(name+".key"), p.Key)
		put(t, path(name+".crt"), p.Cert)
	}
	before, beforeCA := authority()
	after, afterCA := authority()
	put(t, path("registry-ca.crt"), beforeCA)
	put(t, path("ca.crt"), beforeCA)
	issue(before, "registry")
	issue(before, "operator")
	server := etcdtest.Start(t, &etcdtest.Files{CA: path("registry-ca.crt"), Cert: path("registry.crt"), Key: path("registry.key")})
	creds, err := pki.LoadFiles(pki.Files{CA: path("ca.crt"), Cert: path("operator.crt"), Key: path("operator.key")}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	endpoints := []string{server.Endpoint}
	registry, err := etcd.Open(etcd.Config{After: time.After, Endpoints: endpoints, Federation: "demo", TLS: registryTLS(endpoints, creds), CallTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = registry.Close() })
	if _, err := registry.Head(t.Context()); err != nil {
		t.Fatal(err)
	}

	put(t, path("ca.crt"), slices.Concat(beforeCA, afterCA))
	issue(after, "operator")
	server.Stop()
	put(t, path("registry-ca.crt"), afterCA)
	issue(after, "registry")
	server.Restart()
	eventually(t, "the registry answers", func() error {
		_, err := registry.Head(t.Context())
		return err
	})
}
