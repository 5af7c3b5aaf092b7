// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	issuing "github.com/weir-storage/weir/controllers/certificates"
	"github.com/weir-storage/weir/pki"
)

// certificates: with the rights that the chart gives, `weir setup` makes a trial's certificates,
// and the operator renews them when most of their lifetime has passed; it reads and writes no other
// Secret.
func (c cluster) certificates(t *testing.T) {
	ctx, now := t.Context(), time.Now()
	issuer := func(account string) issuing.Issuer {
		as := c.as(t, account)
		return issuing.Issuer{
			Secrets:    issuing.Secrets{Reader: as, Client: as, Namespace: namespace, Tell: t.Logf},
			Federation: "trial", Organization: "Example University", Site: "here",
			Authority: "weir-authority", ValidFor: 90 * 24 * time.Hour, Now: func() time.Time { return now },
		}
	}
	var wanted []issuing.Wanted
	var renewed []string
	for _, w := range workloads(render(t, trial()...)) {
		for _, a := range w.pod.Spec.Containers[0].Args {
			if v, ok := strings.CutPrefix(a, "--issue="); ok {
				one, err := issuing.ParseWanted(strings.NewReplacer("$(WEIR_GATEWAY_SERVICE_HOST)", "10.0.0.7",
					"$(WEIR_REGISTRY_SERVICE_HOST)", "10.0.0.8").Replace(v))
				if err != nil {
					t.Fatal(err)
				}
				wanted = append(wanted, one)
			}
			if v, ok := strings.CutPrefix(a, "--renew="); ok {
				renewed = append(renewed, v)
			}
		}
	}
	setup := issuer("weir-setup")
	if err := setup.Ensure(ctx, wanted, 10*365*24*time.Hour); err != nil || len(wanted) != 5 || len(renewed) != 5 {
		t.Fatalf("weir setup makes %d certificates, and %d are renewed: %v", len(wanted), len(renewed), err)
	}
	r := &issuing.Renewal{Issuer: issuer("weir-operator"), Certificates: renewed,
		Events: events.NewFakeRecorder(100), Log: slog.New(slog.DiscardHandler)}
	serials := func() (all []string) {
		t.Helper()
		for _, w := range wanted {
			var s corev1.Secret
			if !c.has(t, &s, w.Secret) {
				t.Fatalf("Secret %s is gone", w.Secret)
			}
			creds, err := pki.Load(s.Data["ca.crt"], pki.Pair{Cert: s.Data["tls.crt"], Key: s.Data["tls.key"]}, r.Now)
			if err != nil || creds.Identity().Gateway != w.Name {
				t.Fatalf("Secret %s: %v; want a valid certificate of %s", w.Secret, err, w.Name)
			}
			all = append(all, string(s.Data["tls.crt"]))
		}
		return all
	}
	before := serials()
	if err := r.Look(ctx); err != nil || !slices.Equal(serials(), before) {
		t.Fatalf("new certificates are renewed, or: %v", err)
	}
	now = now.Add(61 * 24 * time.Hour)
	if err := r.Look(ctx); err != nil {
		t.Fatal(err)
	}
	for i, cert := range serials() {
		if cert == before[i] {
			t.Errorf("certificate %s is not renewed", wanted[i].Name)
		}
	}

	operator := c.as(t, "weir-operator")
	var s corev1.Secret
	if err := operator.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "weir-store"}, &s); !apierrors.IsForbidden(err) {
		t.Errorf("the operator reads the Secret weir-store: %v", err)
	}
	if err := operator.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "weir-authority"}, &s); err != nil {
		t.Fatal(err)
	}
	if err := operator.Update(ctx, &s); !apierrors.IsForbidden(err) {
		t.Errorf("the operator changes the authority: %v", err)
	}
	if err := operator.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace)); !apierrors.IsForbidden(err) {
		t.Errorf("the operator lists Secrets: %v", err)
	}
}
