// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/memory"
)

// Wrong keys keep a gateway from starting, and name the fields; a store that does not answer does not.
func TestOpenStore(t *testing.T) {
	refuse := func(code string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>no</Message></Error>`, code)
		}))
		t.Cleanup(s.Close)
		return s
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gone := refuse("")
	gone.Close()
	unknown, mismatch := refuse("InvalidAccessKeyId"), refuse("SignatureDoesNotMatch")
	for _, c := range []struct {
		name          string
		store         StoreConfig
		refused, warn []string
	}{
		{"unknown key", StoreConfig{Endpoint: unknown.URL, Bucket: "weir-ams", AccessKey: "weir", SecretKey: "x"},
			[]string{`store.accessKey "weir" and store.secretKey: the store at store.endpoint ` + unknown.URL + `, store.bucket weir-ams refuses them`, "does not know accessKey"}, nil},
		{"wrong secret", StoreConfig{Endpoint: mismatch.URL, Bucket: "weir-ams", AccessKey: "weir", SecretKeyFile: secret},
			[]string{"store.secretKeyFile (" + secret + ")", `secretKey does not belong to accessKey "weir"`}, nil},
		{"no secret file", StoreConfig{Endpoint: mismatch.URL, Bucket: "weir-ams", AccessKey: "weir", SecretKeyFile: secret + "?"}, []string{"store.secretKeyFile: "}, nil},
		{"no answer", StoreConfig{Endpoint: gone.URL, Bucket: "weir-ams", AccessKey: "weir", SecretKey: "x"}, nil, []string{"store is not ready", "uploads wait", gone.URL}},
		{"none", StoreConfig{}, nil, []string{"site has no store"}},
		{"directory", StoreConfig{Dir: t.TempDir()}, nil, nil},
		{"no directory", StoreConfig{Dir: secret}, []string{"store.dir: "}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			s, info, err := openStore(t.Context(), c.store, slog.New(slog.NewTextHandler(&log, nil)))
			for _, want := range c.refused {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v\nwant … %s …", err, want)
				}
			}
			for _, want := range c.warn {
				if !strings.Contains(log.String(), want) {
					t.Errorf("log %q\nwant … %s …", log.String(), want)
				}
			}
			if c.refused == nil && (err != nil || (s == nil) != (c.store == StoreConfig{}) || (info == federation.SiteStore{}) != (c.store == StoreConfig{})) {
				t.Errorf("got %v, %+v, %v", s, info, err)
			}
			if strings.Contains(log.String()+fmt.Sprint(err), "s3cret") {
				t.Error("the secret key is told")
			}
		})
	}
}

func TestSiteKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys", "site.key")
	quiet := slog.New(slog.DiscardHandler)
	r := memory.New()
	k, err := siteKey(t.Context(), path, "ams", r, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", i.Mode(), err)
	}
	register := func(k keyring.SiteKey) {
		t.Helper()
		if err := r.Register(t.Context(), federation.Site{Name: "ams", Organization: "SURF", WrapKey: k.Public()}); err != nil {
			t.Fatal(err)
		}
	}
	register(k)
	again, err := siteKey(t.Context(), path, "ams", r, quiet)
	if err != nil || string(again.Public()) != string(k.Public()) {
		t.Fatalf("the key changed (%v)", err)
	}
	r.SetDown(true)
	if _, err := siteKey(t.Context(), path, "ams", r, quiet); err != nil {
		t.Fatalf("with the registry down: %v", err)
	}
	r.SetDown(false)
	if _, err := siteKey(t.Context(), filepath.Join(dir, "new"), "ams", r, quiet); err == nil || !strings.Contains(err.Error(), "site ams has a key already: copy its file here") {
		t.Errorf("a second key: %v", err)
	}
	other, err := keyring.NewSiteKey()
	if err != nil {
		t.Fatal(err)
	}
	register(other)
	if _, err := siteKey(t.Context(), path, "ams", r, quiet); err == nil || !strings.Contains(err.Error(), "it is not the key that site ams registered") {
		t.Errorf("another key: %v", err)
	}
	if err := os.WriteFile(path, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := siteKey(t.Context(), path, "ams", r, quiet); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("junk: %v", err)
	}
}

func TestGuardFile(t *testing.T) {
	f := guardFile(filepath.Join(t.TempDir(), guardName))
	s, err := f.load()
	if err != nil || s.Cluster != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	for n := range uint64(2) {
		if err := f.save(federation.GuardState{Cluster: 7, Revision: 9, Changes: map[string]uint64{"v": n}}); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = f.load(); err != nil || s.Cluster != 7 || s.Revision != 9 || s.Changes["v"] != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := os.WriteFile(string(f), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.load(); err == nil || !strings.Contains(err.Error(), "restore it") {
		t.Errorf("damaged: %v", err)
	}
}
