// SPDX-License-Identifier: Apache-2.0

package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Flags come before the environment, and the environment comes before the file.
func TestConnection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	text := "federation: demo\nsite: ams\nregistry: {endpoints: [\"https://file:2379\"]}\ntls: {ca: /ca, cert: /cert, key: /key}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"WEIR_CONFIG": path, "WEIR_CERT": "/env-cert", "WEIR_REGISTRY": "https://env-1:2379, https://env-2:2379"}
	n := Connection{Key: "/flag-key"}
	if err := n.Complete(func(k string) string { return env[k] }); err != nil {
		t.Fatal(err)
	}
	if strings.Join(n.Registry, " ") != "https://env-1:2379 https://env-2:2379" || n.CA != "/ca" ||
		n.Cert != "/env-cert" || n.Key != "/flag-key" || n.Federation != "demo" || n.Site != "ams" {
		t.Errorf("got %+v", n)
	}
	err := new(Connection).Complete(func(string) string { return "" })
	want := "give --registry (WEIR_REGISTRY), --ca (WEIR_CA), --cert (WEIR_CERT), --key (WEIR_KEY), or --config FILE"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want … %s …", err, want)
	}
}
