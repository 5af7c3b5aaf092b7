// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/weir-storage/weir/pki"
)

const day = 24 * time.Hour

// site is one whose certificates `weir setup` made, and its operator.
type site struct {
	t       *testing.T
	now     time.Time
	api     client.WithWatch
	refuse  error    // what the API server answers to writes
	written []string // names of Secrets that were updated
	events  *events.FakeRecorder
	log     bytes.Buffer
	renewal *Renewal
}

func newSite(t *testing.T) *site {
	s := &site{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), events: events.NewFakeRecorder(100)}
	s.api = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if s.refuse != nil {
				return s.refuse
			}
			s.written = append(s.written, o.GetName())
			return c.Update(ctx, o, opts...)
		},
	})
	s.renewal = &Renewal{
		Issuer: Issuer{
			Secrets:    Secrets{Reader: s.api, Client: s.api, Namespace: "weir-system", Tell: t.Logf},
			Federation: "demo", Organization: "SURF", Site: "ams", Authority: "weir-authority",
			ValidFor: 90 * day, Now: func() time.Time { return s.now },
		},
		Certificates: []string{"weir-gateway-tls", "weir-operator-tls"},
		Events:       s.events, Log: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	s.setup()
	return s
}

// setup does what `weir setup` does.
func (s *site) setup() {
	s.t.Helper()
	wanted := []Wanted{{pki.PartGateway, "ams-0", "weir-gateway-tls", []string{"192.0.2.7", "gateway.ams"}},
		{pki.PartOperator, "ams-operator", "weir-operator-tls", nil}}
	if err := s.renewal.Ensure(s.t.Context(), wanted, 3650*day); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) look() {
	s.t.Helper()
	if err := s.renewal.Look(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) secret(name string) *corev1.Secret {
	s.t.Helper()
	secret, err := s.renewal.Get(s.t.Context(), name)
	if err != nil || secret == nil {
		s.t.Fatalf("secret %s: %v, %v", name, secret, err)
	}
	return secret
}

func (s *site) change(secret *corev1.Secret) {
	s.t.Helper()
	if err := s.api.Update(s.t.Context(), secret); err != nil {
		s.t.Fatal(err)
	}
	s.written = nil
}

// valid is a process's view: it loads the Secret as it is now.
func (s *site) valid(name, gateway string) *pki.Credentials {
	s.t.Helper()
	d := s.secret(name).Data
	c, err := pki.Load(d["ca.crt"], pki.Pair{Cert: d["tls.crt"], Key: d["tls.key"]}, s.renewal.Now)
	want := pki.Identity{Federation: "demo", Organization: "SURF", Site: "ams", Gateway: gateway,
		Part: map[string]pki.Part{"weir-gateway-tls": pki.PartGateway, "weir-operator-tls": pki.PartOperator}[name]}
	if err != nil || c.Identity() != want {
		s.t.Fatalf("at %v, secret %s: %v; want a valid certificate of %v", s.now, name, err, want)
	}
	return c
}

func (s *site) happened() (all []string) {
	for {
		select {
		case e := <-s.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// Through two years certificates are valid each day, are renewed when a third of their time is
// left, and keep their identity and their hosts.
func TestRenewsInTime(t *testing.T) {
	s := newSite(t)
	s.look()
	if s.written != nil {
		t.Fatalf("new certificates are renewed at once: %q", s.written)
	}
	s.now = s.now.Add(59 * day)
	s.look()
	if s.written != nil {
		t.Fatalf("with more than a third left, %q are renewed", s.written)
	}
	s.now = s.now.Add(2 * day)
	s.look()
	if !slices.Equal(s.written, s.renewal.Certificates) {
		t.Fatalf("with less than a third left, %q are renewed, want both", s.written)
	}
	if e := s.happened(); len(e) != 2 || !strings.Contains(e[0], ReasonRenewed) {
		t.Errorf("events %q, want that both were renewed", e)
	}
	for range 2 * 365 {
		s.now = s.now.Add(day)
		s.look()
		s.valid("weir-gateway-tls", "ams-0")
		s.valid("weir-operator-tls", "ams-operator")
	}
	if n := len(s.written); n < 20 || n > 30 {
		t.Errorf("in two years, certificates of 90 days were renewed %d times, want about 2 × 12", n)
	}
	c, err := leaf(s.secret("weir-gateway-tls").Data["tls.crt"])
	if err != nil || !slices.Equal(c.DNSNames, []string{"gateway.ams"}) || len(c.IPAddresses) != 1 ||
		!c.IPAddresses[0].Equal(net.IPv4(192, 0, 2, 7)) {
		t.Errorf("after renewals its hosts are %v and %v (%v)", c.DNSNames, c.IPAddresses, err)
	}
	if _, there := s.secret("weir-gateway-tls").Data["ca.key"]; there {
		t.Error("the authority's key is in a gateway's Secret")
	}
}

// An operator that was away until certificates had expired renews them all the same.
func TestRenewsExpired(t *testing.T) {
	s := newSite(t)
	s.now = s.now.Add(400 * day)
	s.look()
	s.valid("weir-gateway-tls", "ams-0")
}

// The authority is never replaced. Its end is reported once a day; a certificate that ends with it
// is not renewed again and again.
func TestAuthorityEnds(t *testing.T) {
	s := newSite(t)
	before := s.secret("weir-authority")
	s.now = s.now.Add(3559 * day) // 91 days are left
	s.look()
	s.happened()
	s.written = nil
	s.log.Reset()
	s.now = s.now.Add(2 * day)
	s.look()
	if e := s.happened(); len(e) != 1 || !strings.Contains(e[0], "Warning "+ReasonAuthorityExpires) || !strings.Contains(e[0],
		"2035-12-30") {
		t.Errorf("events %q, want one that the authority ends at 2035-12-30", e)
	}
	if !strings.Contains(s.log.String(), "level=WARN") || !strings.Contains(s.log.String(), "nears its end") {
		t.Errorf("the log does not warn: %s", &s.log)
	}
	s.now = s.now.Add(time.Hour)
	s.look()
	if e := s.happened(); len(e) > 0 {
		t.Errorf("an hour later it is told again: %q", e)
	}
	for range 88 * 24 {
		s.now = s.now.Add(time.Hour)
		s.look()
		s.valid("weir-gateway-tls", "ams-0")
	}
	if n := len(s.written); n > 4 {
		t.Errorf("at the authority's end, certificates were renewed %d times", n)
	}
	if !bytes.Equal(before.Data["ca.crt"], s.secret("weir-authority").Data["ca.crt"]) {
		t.Error("the authority was replaced")
	}
	s.happened()
	s.now = s.now.Add(7 * day)
	if err := s.renewal.Look(t.Context()); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("past the authority's end: %v, want that it has expired", err)
	}
}

// Another authority takes over as docs/operations.md says: at each step every certificate is valid
// to those that are still at the step before.
func TestAuthorityTakesOver(t *testing.T) {
	s := newSite(t)
	s.now = s.now.Add(day)
	next, err := pki.NewAuthority("demo", s.now, 3650*day)
	if err != nil {
		t.Fatal(err)
	}
	p, err := next.Pair()
	if err != nil {
		t.Fatal(err)
	}
	first := s.secret("weir-gateway-tls").Data
	authority := s.secret("weir-authority")
	old := authority.Data["ca.crt"]

	authority.Data["trusted.crt"] = p.Cert
	s.change(authority)
	s.look()
	second := s.secret("weir-gateway-tls").Data
	if !bytes.Equal(second["tls.crt"], first["tls.crt"]) || !bytes.Equal(second["ca.crt"], slices.Concat(old, p.Cert)) {
		t.Fatal("beside a second authority, the certificate is another, or its ca.crt has not both")
	}

	authority = s.secret("weir-authority")
	authority.Data["ca.crt"], authority.Data["ca.key"], authority.Data["trusted.crt"] = p.Cert, p.Key, old
	s.change(authority)
	s.look()
	third := s.secret("weir-gateway-tls").Data
	if _, err := pki.Load(second["ca.crt"], pki.Pair{Cert: third["tls.crt"], Key: third["tls.key"]}, s.renewal.Now); err != nil {
		t.Errorf("who trusts both refuses what the second issued: %v", err)
	}
	if _, err := pki.Load(third["ca.crt"], pki.Pair{Cert: first["tls.crt"], Key: first["tls.key"]}, s.renewal.Now); err != nil {
		t.Errorf("whose authority is the second refuses what the first issued, too early: %v", err)
	}

	authority = s.secret("weir-authority")
	delete(authority.Data, "trusted.crt")
	s.change(authority)
	s.look()
	last := s.secret("weir-gateway-tls").Data
	if !bytes.Equal(last["tls.crt"], third["tls.crt"]) || !bytes.Equal(last["ca.crt"], p.Cert) {
		t.Error("at the end the certificate is another, or its ca.crt is not the second authority's")
	}
	s.written = nil
	s.setup() // an upgrade changes nothing of that
	if s.written != nil {
		t.Errorf("`weir setup` then renews %q", s.written)
	}
}

// What is wrong with one Secret is reported, with its remedy, and does not keep others from
// renewal.
func TestNotRenewed(t *testing.T) {
	for _, c := range []struct {
		name, says string
		spoil      func(*site, *corev1.Secret)
	}{
		{"gone", "helm upgrade", func(s *site, g *corev1.Secret) {
			if err := s.api.Delete(s.t.Context(), g); err != nil {
				s.t.Fatal(err)
			}
		}},
		{"somebody else's", "certificates.mode=existing", func(s *site, g *corev1.Secret) { g.Labels = nil; s.change(g) }},
		{"damaged", "delete it", func(s *site, g *corev1.Secret) { g.Data["tls.crt"] = []byte("x"); s.change(g) }},
		{"another's key", "delete it", func(s *site, g *corev1.Secret) {
			g.Data["tls.key"] = s.secret("weir-operator-tls").Data["tls.key"]
			s.change(g)
		}},
		{"another site's", "is of weir://demo/SURF/utr/utr-0", func(s *site, g *corev1.Secret) {
			s.renewal.Site = "utr"
			a, err := s.renewal.authority(s.t.Context())
			if err != nil {
				s.t.Fatal(err)
			}
			g.Data, err = s.renewal.issue(a, pki.Identity{Federation: "demo", Organization: "SURF", Site: "utr", Gateway: "utr-0"}, nil)
			if err != nil {
				s.t.Fatal(err)
			}
			s.renewal.Site = "ams"
			s.change(g)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t)
			s.now = s.now.Add(61 * day)
			c.spoil(s, s.secret("weir-gateway-tls"))
			if err := s.renewal.Look(t.Context()); err == nil || !strings.Contains(err.Error(), "weir-gateway-tls") ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want it to name the Secret and say %q", err, c.says)
			}
			if !slices.Equal(s.written, []string{"weir-operator-tls"}) {
				t.Errorf("renewed %q, want the other one only", s.written)
			}
			if !strings.Contains(s.log.String(), "level=ERROR") {
				t.Errorf("the log does not tell: %s", &s.log)
			}
		})
	}
}

// Start looks at once, then each hour, and each minute while something fails.
func TestStart(t *testing.T) {
	s := newSite(t)
	asked, fire := make(chan time.Duration), make(chan time.Time)
	s.renewal.After = func(d time.Duration) <-chan time.Time { asked <- d; return fire }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.renewal.Start(ctx) }()
	next := func(want time.Duration) {
		t.Helper()
		if got := <-asked; got != want {
			t.Errorf("it looks again after %v, want %v", got, want)
		}
	}
	next(time.Hour)
	s.now, s.refuse = s.now.Add(61*day), errors.New("the API server is away")
	fire <- s.now
	next(time.Minute)
	s.refuse = nil
	fire <- s.now
	next(time.Hour)
	if !slices.Equal(s.written, s.renewal.Certificates) {
		t.Errorf("renewed %q, want both", s.written)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}

	// Certificates for hours are looked at more often, or one could end between two looks.
	s.renewal.ValidFor = 2 * time.Hour
	ctx, cancel = context.WithCancel(t.Context())
	go func() { ended <- s.renewal.Start(ctx) }()
	next(20 * time.Minute)
	s.renewal.ValidFor = 0 // as somebody may write it: it must not look all the time
	fire <- s.now
	next(time.Minute)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// What others put into a certificate's Secret stays: a site of which one file of values was
// forgotten keeps its certificates, and gets no authority of its own.
func TestSetupLeavesOthersSecrets(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"by hand": nil, "the chart's": {managedBy: "Helm"},
	} {
		t.Run(name, func(t *testing.T) {
			theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "weir-gateway-tls", Labels: labels},
				Data: map[string][]byte{"tls.key": []byte("theirs")}}
			c := fake.NewClientBuilder().WithObjects(theirs).Build()
			i := Issuer{Secrets: Secrets{Reader: c, Client: c, Namespace: "n", Tell: t.Logf}, Federation: "demo", Organization: "SURF",
				Site: "ams", Authority: "weir-authority", ValidFor: time.Hour, Now: time.Now}
			err := i.Ensure(t.Context(), []Wanted{{Name: "ams-operator", Secret: "weir-operator-tls"}, {Name: "ams-0",
				Secret: "weir-gateway-tls"}}, time.Hour)
			if err == nil || !strings.Contains(err.Error(), "secret n/weir-gateway-tls was not made by `weir setup`") ||
				!strings.Contains(err.Error(), "certificates.mode") {
				t.Errorf("Ensure = %v, want that the Secret is somebody else's, and what to do", err)
			}
			var all corev1.SecretList
			if err := c.List(t.Context(), &all); err != nil || len(all.Items) != 1 || string(all.Items[0].Data["tls.key"]) != "theirs" {
				t.Errorf("Secrets after it: %+v, %v, want theirs as it was, and no other", all.Items, err)
			}
		})
	}
}
