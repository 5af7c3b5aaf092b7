// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

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

	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/federation"
)

// With wrong keys a gateway does not start, and the error names the fields. With a store that does
// not answer it starts.
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
		store         config.Store
		refused, warn []string
	}{
		{"unknown key", config.Store{Endpoint: unknown.URL, Bucket: "weir-ams", AccessKey: "weir", SecretKey: "x"},
			[]string{`store.accessKey "weir" and store.secretKey: the store at store.endpoint ` + unknown.URL +
				`, store.bucket weir-ams refuses them`, "does not know accessKey"}, nil},
		{"wrong secret", config.Store{Endpoint: mismatch.URL, Bucket: "weir-ams", AccessKey: "weir", SecretKeyFile: secret},
			[]string{"store.secretKeyFile (" + secret + ")", `secretKey does not belong to accessKey "weir"`}, nil},
		{"no secret file", config.Store{Endpoint: mismatch.URL, Bucket: "weir-ams", AccessKey: "weir", SecretKeyFile: secret + "?"},
			[]string{"store.secretKeyFile: "}, nil},
		{"no answer", config.Store{Endpoint: gone.URL, Bucket: "weir-ams", AccessKey: "weir", SecretKey: "x"}, nil,
			[]string{"store is not ready", "uploads wait", gone.URL}},
		{"none", config.Store{}, nil, []string{"site has no store"}},
		{"directory", config.Store{Dir: t.TempDir()}, nil, nil},
		{"no directory", config.Store{Dir: secret}, []string{"store.dir: "}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			s, info, err := OpenStore(t.Context(), c.store, slog.New(slog.NewTextHandler(&log, nil)))
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
			if c.refused == nil && (err != nil || (s == nil) != (c.store == config.Store{}) ||
				(info == federation.SiteStore{}) != (c.store == config.Store{})) {
				t.Errorf("got %v, %+v, %v", s, info, err)
			}
			if strings.Contains(log.String()+fmt.Sprint(err), "s3cret") {
				t.Error("the output shows the secret key")
			}
		})
	}
}
