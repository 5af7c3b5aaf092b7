// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/memory"
)

func TestSiteKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys", "site.key")
	quiet := slog.New(slog.DiscardHandler)
	r := memory.New()
	k, err := siteKey(t.Context(), keySource{path: path, logger: quiet}, "ams", r, machine.Pause)
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
	again, err := siteKey(t.Context(), keySource{path: path, logger: quiet}, "ams", r, machine.Pause)
	if err != nil || string(again.Public()) != string(k.Public()) {
		t.Fatalf("the key changed (%v)", err)
	}
	r.SetDown(true)
	if _, err := siteKey(t.Context(), keySource{path: path, logger: quiet}, "ams", r, machine.Pause); err != nil {
		t.Fatalf("with the registry down: %v", err)
	}
	r.SetDown(false)
	if _, err := siteKey(t.Context(), keySource{path: filepath.Join(dir, "new"), logger: quiet}, "ams", r, machine.Pause); err == nil ||
		!strings.Contains(err.Error(), "site ams has a key already: copy its file here") {
		t.Errorf("a second key: %v", err)
	}
	other, err := keyring.NewSiteKey()
	if err != nil {
		t.Fatal(err)
	}
	register(other)
	if _, err := siteKey(t.Context(), keySource{path: path, logger: quiet}, "ams", r, machine.Pause); err == nil ||
		!strings.Contains(err.Error(), "it is not the key that site ams registered") {
		t.Errorf("another key: %v", err)
	}
	if err := os.WriteFile(path, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := siteKey(t.Context(), keySource{path: path, logger: quiet}, "ams", r, machine.Pause); err == nil ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("junk: %v", err)
	}
}
