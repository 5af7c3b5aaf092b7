// SPDX-License-Identifier: Apache-2.0

package operatorcmd

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/controllers/certificates"
	"github.com/weir-storage/weir/pki"
)

// An operator whose certificate has expired cannot start, and renews it all the same.
func TestReviveRenewsTheOperatorsOwn(t *testing.T) {
	const secret, namespace = "weir-operator-tls", "weir-system"
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := fake.NewClientBuilder().Build()
	issuer := certificates.Issuer{
		Secrets:    certificates.Secrets{Reader: c, Client: c, Namespace: namespace, Tell: func(string, ...any) {}},
		Federation: "demo", Organization: "SURF", Site: "ams", Authority: "weir-authority", ValidFor: 90 * 24 * time.Hour,
		Now: func() time.Time { return now },
	}
	wanted := []certificates.Wanted{{Name: "ams-operator", Secret: secret}}
	if err := issuer.Ensure(t.Context(), wanted, 10*365*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	now = now.AddDate(1, 0, 0)
	load := func() error {
		var s corev1.Secret
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: secret}, &s); err != nil {
			t.Fatal(err)
		}
		_, err := pki.Load(s.Data["ca.crt"], pki.Pair{Cert: s.Data["tls.crt"], Key: s.Data["tls.key"]}, issuer.Now)
		return err
	}
	why := load()
	if why == nil {
		t.Fatal("the certificate of a year ago is still valid")
	}
	o := &operator{organization: "SURF", namespace: namespace}
	o.Federation, o.Site = "demo", "ams"
	r := &renewal{authority: "weir-authority", validFor: issuer.ValidFor, secrets: []string{secret}}
	err := r.reviveWith(t.Context(), c, &cli.Shell{Now: issuer.Now}, o, slog.New(slog.DiscardHandler), why)
	if !errors.Is(err, why) || !strings.Contains(err.Error(), "are renewed now") {
		t.Errorf("revive: %v, want %v and that it is renewed", err, why)
	}
	if err := load(); err != nil {
		t.Errorf("after it: %v", err)
	}
	r.secrets = []string{"gone"}
	if err := r.reviveWith(t.Context(), c, &cli.Shell{Now: issuer.Now}, o, slog.New(slog.DiscardHandler), why); !errors.Is(err, why) ||
		!strings.Contains(err.Error(), "gone is gone") {
		t.Errorf("revive of what is not there: %v, want why not", err)
	}
}
