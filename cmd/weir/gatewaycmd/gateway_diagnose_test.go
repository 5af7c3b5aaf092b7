// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
)

// TestDiagnosticsHideSecrets: the configuration in a support bundle has no secret of the store and
// of the registry, and the gateway goes on with them.
func TestDiagnosticsHideSecrets(t *testing.T) {
	const secret = "hunter2"
	c := new(config.Config)
	c.Store = config.Store{Endpoint: "https://u:" + secret + "@s3.example.org", Bucket: "kept-bucket", AccessKey: "a", SecretKey: secret}
	c.Registry.Endpoints = []string{"https://u:" + secret + "@registry.example.org:2379"}
	c.Tracing.Endpoint = "http://u:" + secret + "@collector:4317"
	for _, d := range diagnostics(c, "v", new(process.Recent), prometheus.NewRegistry()) {
		if d.Name != "config.yaml" {
			continue
		}
		var out bytes.Buffer
		if err := d.Write(&out); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if strings.Contains(text, secret) {
			t.Errorf("a secret is in\n%s", text)
		}
		for _, want := range []string{hidden, "kept-bucket", "s3.example.org", "registry.example.org:2379", "collector:4317"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
		if c.Store.SecretKey != secret || !strings.Contains(c.Registry.Endpoints[0], secret) {
			t.Errorf("the configuration itself is changed: %+v", c)
		}
		return
	}
	t.Error("there is no config.yaml")
}
