// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/test/apiserver"
)

// shown is a process that shows its metrics, and a reader of them.
type shown struct {
	t       *testing.T
	address string
	roots   *x509.CertPool
	pair    tls.Certificate // of a gateway of the federation
}

func show(t *testing.T, cluster *rest.Config) *shown {
	t.Helper()
	return showAt(t, cluster, freeAddr(t), func(context.Context, time.Duration) bool {
		t.Error("metrics are not shown at the first try")
		return false
	})
}

func showAt(t *testing.T, cluster *rest.Config, address string, pause func(context.Context, time.Duration) bool) *shown {
	t.Helper()
	ca, err := pki.NewAuthority("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(name string) pki.Pair {
		id := pki.Identity{Federation: "test", Organization: "o", Site: "a", Gateway: name}
		p, err := ca.Issue(id, []string{"127.0.0.1"}, time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	root, err := ca.Pair()
	if err != nil {
		t.Fatal(err)
	}
	creds, err := pki.Load(root.Cert, issue("ga"), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s := &shown{t: t, address: address, roots: x509.NewCertPool()}
	s.roots.AppendCertsFromPEM(root.Cert)
	other := issue("gb")
	if s.pair, err = tls.X509KeyPair(other.Cert, other.Key); err != nil {
		t.Fatal(err)
	}
	all := NewRegistry()
	if err := Describe(all, "gateway", "v1", "ga", creds); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		shown := Metrics{Address: s.address, Credentials: creds, Cluster: cluster, From: all}
		shown.Keep(ctx, pause, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// get reads the metrics with a certificate, if cert is true, and a token, if it is not empty.
func (s *shown) get(cert bool, token string) (int, string, error) {
	s.t.Helper()
	config := &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS13}
	if cert {
		config.Certificates = []tls.Certificate{s.pair}
	}
	c := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: time.Minute}
	var res *http.Response
	var err error
	for range 100 { // until it listens
		q, qerr := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "https://"+s.address+"/metrics", nil)
		if qerr != nil {
			s.t.Fatal(qerr)
		}
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		if res, err = c.Do(q); err == nil || strings.Contains(err.Error(), "certificate") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

const infoLine = `weir_info{federation="test",name="ga",organization="o",part="gateway",site="a",version="v1"} 1`

// TestMetricsByCertificate: who has a certificate of the federation reads the metrics, nobody else.
func TestMetricsByCertificate(t *testing.T) {
	s := show(t, nil)
	code, text, err := s.get(true, "")
	if err != nil || code != http.StatusOK {
		t.Fatalf("%d, %v", code, err)
	}
	for _, line := range []string{infoLine, "\nweir_certificate_expiry_timestamp_seconds 1.", "\nweir_charter_serial 0\n",
		"\ngo_goroutines ",
		"\nprocess_resident_memory_bytes "} {
		if !strings.Contains(text, line) {
			t.Errorf("there is no line %s", strings.TrimSpace(line))
		}
	}
	if code, _, err := s.get(false, ""); err == nil {
		t.Errorf("without a certificate: %d", code)
	}
}

// TestMetricsByKubernetes: who may get /metrics, as the cluster says, reads them, nobody else.
func TestMetricsByKubernetes(t *testing.T) {
	cfg := apiserver.Start(t)
	k, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	token := func(name string) string {
		if _, err := k.CoreV1().ServiceAccounts("default").Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r, err := k.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name, &authenticationv1.TokenRequest{},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status.Token
	}
	prometheus, stranger := token("prometheus"), token("stranger")
	if _, err := k.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bound := rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "prometheus"}}}
	if _, err := k.RbacV1().ClusterRoleBindings().Create(t.Context(), &bound, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s := show(t, cfg)
	for _, x := range []struct {
		what, token string
		code        int
	}{
		{"who may", prometheus, http.StatusOK},
		{"who may not", stranger, http.StatusForbidden},
		{"nobody", "", http.StatusUnauthorized},
		{"who made a token up", "abc", http.StatusInternalServerError}, // controller-runtime answers so
	} {
		code, text, err := s.get(false, x.token)
		if err != nil || code != x.code || strings.Contains(text, infoLine) != (x.code == http.StatusOK) {
			t.Errorf("%s: %d, %v, want %d", x.what, code, err, x.code)
		}
	}
	// A certificate of the federation is no word of the cluster's.
	if code, _, err := s.get(true, ""); err != nil || code != http.StatusUnauthorized {
		t.Errorf("with a certificate: %d, %v", code, err)
	}
}

// TestMetricsWaitForTheirPort: a port that is taken ends nothing. Metrics are shown later.
func TestMetricsWaitForTheirPort(t *testing.T) {
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := showAt(t, nil, taken.Addr().String(), func(ctx context.Context, _ time.Duration) bool {
		_ = taken.Close() // so it is free at the second try
		return ctx.Err() == nil
	})
	if code, _, err := s.get(true, ""); err != nil || code != http.StatusOK {
		t.Errorf("%d, %v", code, err)
	}
}
