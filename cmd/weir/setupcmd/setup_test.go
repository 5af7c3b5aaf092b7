// SPDX-License-Identifier: Apache-2.0

package setupcmd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	"github.com/weir-storage/weir/pki"
)

// newSetup is what an install with generated certificates runs.
func newSetup(t *testing.T, now *time.Time) *setup {
	t.Helper()
	dir := t.TempDir()
	text := "apiVersion: storage.weir.dev/v1alpha1\nkind: Site\nmetadata: {name: ams}\n" +
		"spec: {organization: surf, federation: research}\n---\n---\n" +
		"apiVersion: storage.weir.dev/v1alpha1\nkind: VolumePolicy\nmetadata: {name: standard}\nspec: {replication: {copies: 2}}\n"
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return &setup{
		namespace: "weir", federation: "research", organization: "surf", site: "ams",
		siteKey: "weir-site-key", objects: dir, authority: "weir-authority", validFor: 90 * 24 * time.Hour,
		issue:  []string{"gateway/ams-0=weir-gateway-tls=10.0.0.7,gateway.weir", "operator/ams-operator=weir-operator-tls"},
		client: fake.NewClientBuilder().WithScheme(process.Scheme()).Build(),
		now:    func() time.Time { return *now }, tell: t.Logf, pause: func(context.Context, time.Duration) bool { return false },
	}
}

func secretOf(t *testing.T, s *setup, name string) *corev1.Secret {
	t.Helper()
	found, err := s.secrets().Get(t.Context(), name)
	if err != nil || found == nil {
		t.Fatalf("secret %s: %v, %v", name, found, err)
	}
	return found
}

func TestSetup(t *testing.T) {
	now := time.Now()
	s := newSetup(t, &now)
	run := func() {
		t.Helper()
		if err := s.run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	run()
	key, ca, cert := secretOf(t, s, "weir-site-key"), secretOf(t, s, "weir-authority"), secretOf(t, s, "weir-gateway-tls")
	creds, err := pki.Load(cert.Data["ca.crt"], pki.Pair{Cert: cert.Data["tls.crt"], Key: cert.Data["tls.key"]}, s.now)
	if err != nil || creds.Identity() != (pki.Identity{Federation: "research", Organization: "surf", Site: "ams", Gateway: "ams-0",
		Part: pki.PartGateway}) {
		t.Fatalf("%v, %v", creds, err)
	}
	if _, ok := cert.Data["ca.key"]; ok {
		t.Error("the authority's key is in a gateway's secret")
	}
	var site v1alpha1.Site
	if err := s.client.Get(t.Context(), kube.ObjectKey{Name: "ams"}, &site); err != nil || site.Spec.Organization != "surf" {
		t.Fatalf("%+v, %v", site.Spec, err)
	}

	same := func(name string, before *corev1.Secret, want bool) {
		t.Helper()
		after := secretOf(t, s, name)
		for k := range before.Data {
			if (string(after.Data[k]) == string(before.Data[k])) != want && k != "ca.crt" {
				t.Errorf("secret %s, %s: unchanged %v, want %v", name, k, !want, want)
			}
		}
	}
	run() // again changes nothing
	same("weir-site-key", key, true)
	same("weir-authority", ca, true)
	same("weir-gateway-tls", cert, true)
	now = now.Add(61 * 24 * time.Hour) // less than a third is left
	run()
	same("weir-gateway-tls", cert, false)
	same("weir-site-key", key, true)
	cert = secretOf(t, s, "weir-gateway-tls")
	s.issue[0] += ",10.0.0.8"
	run()
	same("weir-gateway-tls", cert, false)
}

func TestSetupRefuses(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name, says string
		damage     func(*setup)
	}{
		{"no site", "--site", func(s *setup) { s.site = "" }},
		{"an issue without a secret", `--issue "x"`, func(s *setup) { s.issue = []string{"x"} }},
		{"an address that is not known yet", "it is tried again", func(s *setup) {
			s.issue = []string{"gateway/a=b=$(WEIR_GATEWAY_SERVICE_HOST)"}
		}},
		{"a part that is none", `part "node": write one of ["gateway"`, func(s *setup) { s.issue = []string{"node/a=b"} }},
		{"no authority", "--issue without --authority", func(s *setup) { s.authority = "" }},
		{"no objects", "no .yaml file", func(s *setup) { s.objects = t.TempDir() }},
		{"a damaged site key", "put the site's key back", func(s *setup) {
			add(t, s, "weir-site-key", map[string][]byte{"site.key": []byte("x")})
		}},
		{"an authority without its key", "weir-authority", func(s *setup) {
			add(t, s, "weir-authority", map[string][]byte{"ca.crt": []byte("x")})
		}},
		{"another federation's authority", `federation "other"`, func(s *setup) {
			a, err := pki.NewAuthority("other", now, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			p, err := a.Pair()
			if err != nil {
				t.Fatal(err)
			}
			add(t, s, "weir-authority", map[string][]byte{"ca.crt": p.Cert, "ca.key": p.Key})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSetup(t, &now)
			c.damage(s)
			if err := s.run(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func add(t *testing.T, s *setup, name string, data map[string][]byte) {
	t.Helper()
	if err := s.client.Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Data: data}); err != nil {
		t.Fatal(err)
	}
}
