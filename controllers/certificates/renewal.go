// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/weir-storage/weir/pki"
)

// What the operator may do besides, in mode generated: write the certificates' Secrets, and read
// the authority's, by name. The names are the chart's values; these are their defaults.
//
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get,resourceNames=weir-authority
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;update,resourceNames=weir-gateway-tls;weir-operator-tls;weir-csi-controller-tls;weir-csi-node-tls;weir-registry-tls;weir-lending-tls

const (
	// lookEvery is how often certificates are looked at, unless they are valid for less than six
	// times that, and retryEvery how soon after a failure.
	lookEvery  = time.Hour
	retryEvery = time.Minute
	// tellEvery is how often a failure is reported again, and that the authority nears its end.
	tellEvery = 24 * time.Hour
)

// Reasons of the events.
const (
	ReasonRenewed          = "CertificateRenewed"
	ReasonNotRenewed       = "CertificateNotRenewed"
	ReasonAuthorityExpires = "AuthorityExpires"
)

// Renewal renews certificates for as long as it runs. A manager runs it on the leader only.
type Renewal struct {
	Issuer
	// Certificates are the names of their Secrets.
	Certificates []string
	// After is time.After, or a test's.
	After func(time.Duration) <-chan time.Time
	// Events and Log hear of what was renewed, of what could not be, and of an authority that ends.
	Events events.EventRecorder
	Log    *slog.Logger

	told map[string]time.Time // when it was last reported, by event reason and Secret
}

var _ manager.Runnable = (*Renewal)(nil)

// Start implements manager.Runnable. It looks at once and then each hour, or more often, and
// returns when ctx ends.
func (r *Renewal) Start(ctx context.Context) error {
	for {
		next := max(retryEvery, min(lookEvery, r.ValidFor/6)) // twice in the last third of a certificate's time
		if err := r.Look(ctx); err != nil {
			next = retryEvery
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.After(next):
		}
	}
}

// Look renews what is to be renewed now. What its error says is already in an event and in the log.
func (r *Renewal) Look(ctx context.Context) error {
	a, err := r.authority(ctx)
	if err == nil && a == nil {
		err = fmt.Errorf("secret %s/%s is gone: put it back from its copy; without one, delete the Secrets of all certificates too, "+
			"and have `weir setup` make all anew", r.Namespace, r.Authority)
	}
	if err != nil {
		return r.failed(ctx, r.Authority, nil, err)
	}
	r.tellEnd(ctx, a)
	var failed []error
	for _, name := range r.Certificates {
		secret, err := r.Get(ctx, name)
		if err == nil {
			err = r.renew(ctx, a, name, secret)
		}
		if err != nil {
			failed = append(failed, r.failed(ctx, name, secret, err))
		}
	}
	return errors.Join(failed...)
}

// renew issues a certificate anew, for the identity and the hosts that it has.
func (r *Renewal) renew(ctx context.Context, a *authority, name string, secret *corev1.Secret) error {
	switch {
	case secret == nil:
		return fmt.Errorf("secret %s/%s is gone: run `helm upgrade`; or delete the Job weir-setup-... and have it applied again: it "+
			"makes the Secret", r.Namespace, name)
	case secret.Labels[managedBy] != bySetup:
		return fmt.Errorf("secret %s/%s was not made by `weir setup`, its label %s is %q: it is left alone; if it is yours, use "+
			"certificates.mode=existing",
			r.Namespace, name, managedBy, secret.Labels[managedBy])
	}
	cert, id, err := r.held(secret)
	if err != nil {
		return err
	}
	hosts := append([]string(nil), cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	done, err := r.keep(ctx, a, secret, id, nil)
	if done || err != nil {
		return err
	}
	data, err := r.issue(a, id, hosts)
	if err != nil {
		return err
	}
	if err := r.replace(ctx, secret, data); err != nil {
		return err
	}
	delete(r.told, ReasonNotRenewed+" "+name) // a later failure is reported at once
	fresh, err := leaf(data[corev1.TLSCertKey])
	if err != nil {
		return err
	}
	end := fresh.NotAfter.UTC().Format(time.RFC3339)
	r.Log.InfoContext(ctx, "certificate is renewed", "secret", name, "identity", id.String(), "expires", end)
	r.Events.Eventf(secret, nil, corev1.EventTypeNormal, ReasonRenewed, "Renew", "%s is valid until %s", id.String(), end)
	return nil
}

// held is the certificate of a Secret. One that has expired is still known by its authority and
// key; it is checked as of the time when it began.
func (r *Renewal) held(secret *corev1.Secret) (*x509.Certificate, pki.Identity, error) {
	fail := func(err error) (*x509.Certificate, pki.Identity, error) {
		return nil, pki.Identity{}, fmt.Errorf("secret %s/%s: %w: delete it, and run `helm upgrade`: `weir setup` makes it anew",
			r.Namespace, secret.Name, err)
	}
	cert, err := leaf(secret.Data[corev1.TLSCertKey])
	if err != nil {
		return fail(fmt.Errorf("%s: %w", corev1.TLSCertKey, err))
	}
	pair := pki.Pair{Cert: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
	creds, err := pki.Load(secret.Data[caCert], pair, func() time.Time { return cert.NotBefore })
	if err != nil {
		return fail(err)
	}
	id := creds.Identity()
	if id.Federation != r.Federation || id.Organization != r.Organization || id.Site != r.Site {
		return fail(fmt.Errorf("its certificate is of %s, and this is site %s of %s in federation %s", id.String(), r.Site,
			r.Organization, r.Federation))
	}
	return cert, id, nil
}

// failed reports an error, once a day for each Secret, and returns it.
func (r *Renewal) failed(ctx context.Context, name string, secret *corev1.Secret, err error) error {
	if ctx.Err() != nil || !r.time(ReasonNotRenewed, name) {
		return err
	}
	r.Log.ErrorContext(ctx, "certificate cannot be renewed", "secret", name, "error", err)
	if secret != nil {
		r.Events.Eventf(secret, nil, corev1.EventTypeWarning, ReasonNotRenewed, "Renew", "%v", err)
	}
	return err
}

// tellEnd reports that the authority ends before a certificate that is issued now would.
func (r *Renewal) tellEnd(ctx context.Context, a *authority) {
	left := a.cert.NotAfter.Sub(r.Now())
	if left > r.ValidFor || !r.time(ReasonAuthorityExpires, r.Authority) {
		return
	}
	end := a.cert.NotAfter.UTC().Format(time.RFC3339)
	r.Log.WarnContext(ctx, "the federation's authority nears its end, and with it all certificates: have another one take over "+
		"(docs/kubernetes/install.md, Certificates)",
		"secret", r.Authority, "expires", end)
	r.Events.Eventf(a.secret, nil, corev1.EventTypeWarning, ReasonAuthorityExpires, "Renew",
		"the federation's authority ends at %s, and all its certificates with it: it is not replaced by itself; have another one take "+
			"over (docs/kubernetes/install.md, Certificates)", end)
}

// time reports whether something is due to be reported again, and records that it now is.
func (r *Renewal) time(reason, name string) bool {
	if r.told == nil {
		r.told = map[string]time.Time{}
	}
	key, now := reason+" "+name, r.Now()
	if last := r.told[key]; !last.IsZero() && now.Sub(last) < tellEvery {
		return false
	}
	r.told[key] = now
	return true
}
