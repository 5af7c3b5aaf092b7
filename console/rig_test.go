// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/test/apiserver"
)

// fed is a federation whose registry is in memory, and a clock that tests set.
type fed struct {
	t      testing.TB
	server *memory.Server
	reg    *memory.Client
	mu     sync.Mutex
	ahead  time.Duration
}

func newFed(t *testing.T) *fed {
	log.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	s := memory.NewServer(7)
	return &fed{t: t, server: s, reg: s.Client(nil)}
}

func (f *fed) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(f.ahead)
}

func (f *fed) advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead += d
}

func (f *fed) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// house is an organization's cluster: a real API server, the operator and the console.
type house struct {
	*fed
	organization, site string
	cfg                *rest.Config
	api                client.Client
	url                string
}

// cluster starts an API server.
func (f *fed) cluster() *house {
	f.t.Helper()
	h := &house{fed: f, cfg: apiserver.Start(f.t)}
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, eventsv1.AddToScheme, rbacv1.AddToScheme, v1alpha1.AddToScheme,
		authenticationv1.AddToScheme} {
		f.ok(add(s))
	}
	var err error
	h.api, err = client.New(h.cfg, client.Options{Scheme: s})
	f.ok(err)
	return h
}

// house builds one. Its gateway lives.
func (f *fed) house(organization, site string, labels map[string]string) *house {
	f.t.Helper()
	ctx := f.t.Context()
	key, err := keyring.NewSiteKey()
	f.ok(err)
	f.ok(f.reg.Register(ctx, federation.Site{Name: site, Organization: organization, WrapKey: key.Public(), Labels: labels,
		Gateways: []federation.Gateway{{Name: site + "-1", Addr: site + ":7440", Incarnation: "1"}}}))
	_, err = f.reg.Heartbeat(ctx, federation.Alive{Gateway: site + "-1", Site: site, Incarnation: "1"}, time.Hour)
	f.ok(err)
	h := f.cluster()
	h.organization, h.site = organization, site
	skip := true // names of controllers are checked per process, of which these are two clusters
	mgr, err := ctrl.NewManager(h.cfg, ctrl.Options{Scheme: h.api.Scheme(), Cache: controllers.CacheOptions(),
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip}})
	f.ok(err)
	f.ok(controllers.Setup(ctx, mgr, controllers.Options{Federation: "demo", Organization: organization, Site: site,
		By: "weir://demo/" + site + "-operator", LentStore: "https://store." + site + ".example.org:7005", Registry: f.server.Client(nil),
		Random: rand.Reader, Now: f.now, After: time.After, Ping: 100 * time.Millisecond,
		AskPool: func(context.Context, federation.Site, federation.Gateway, string) (plan.Pool, error) {
			return plan.Pool{}, nil
		}}))
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(running) }()
	f.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			f.t.Errorf("manager of %s: %v", site, err)
		}
	})
	f.ok(h.api.Create(ctx, &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: site, Labels: labels},
		Spec: v1alpha1.SiteSpec{Organization: organization, Federation: "demo"}}))
	h.open()
	return h
}

// open serves the console.
func (h *house) open() {
	h.t.Helper()
	l, err := (&net.ListenConfig{}).Listen(h.t.Context(), "tcp", "127.0.0.1:0")
	h.ok(err)
	h.url = "https://" + l.Addr().String()
	c, err := New(Config{Cluster: h.cfg, URL: h.url, Now: time.Now, Random: rand.Reader, Logger: slog.New(slog.NewTextHandler(io.Discard,
		nil))})
	h.ok(err)
	s := httptest.NewUnstartedServer(c)
	_ = s.Listener.Close() // another one is used
	s.Listener = l
	s.StartTLS()
	h.t.Cleanup(s.Close)
}

// rules of ClusterRoles: those of the chart's weir-exchange and weir-view.
var exchangeRules = []rbacv1.PolicyRule{
	{APIGroups: []string{v1alpha1.Group}, Resources: []string{"storageoffers", "storagerequests"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch",
			"delete"}},
	{APIGroups: []string{v1alpha1.Group}, Resources: []string{"storageagreements"}, Verbs: []string{"get", "list", "watch", "update",
		"patch"}},
	{APIGroups: []string{v1alpha1.Group}, Resources: []string{"storageusages", "sites", "geovolumecontents"},
		Verbs: []string{"get", "list", "watch"}},
}

var viewRules = []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.Group}, Verbs: []string{"get", "list", "watch"},
	Resources: []string{"geovolumecontents", "sites", "storageoffers", "storagerequests", "storageagreements", "storageusages"}}}

// person makes an account with these rights, and returns a token of it.
func (h *house) person(name string, rules []rbacv1.PolicyRule) (token string) {
	h.t.Helper()
	ctx := h.t.Context()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	for _, o := range []client.Object{account, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: name}}}} {
		h.ok(h.api.Create(ctx, o))
	}
	hour := int64(3600)
	r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}
	h.ok(h.api.SubResource("token").Create(ctx, account, r))
	return r.Status.Token
}

// chromium is the browser.
func chromium(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil && os.Geteuid() == 0 { // as continuous integration, which installs it
		t.Fatal("there is no chromium: run hack/install-deps")
	}
	if err != nil {
		t.Skip("there is no chromium: hack/install-deps chromium (as root) installs it")
	}
	return path
}

// do is a request of somebody who has a cookie.
func (h *house) do(method, path, cookie, body, origin string) (*http.Response, string) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, stringsReader(body))
	h.ok(err)
	if body != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if cookie != "" {
		req.AddCookie(&http.Cookie{Name: "__Host-weir", Value: cookie})
	}
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	cl := insecure()
	cl.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := cl.Do(req)
	h.ok(err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	h.ok(err)
	return res, string(text)
}
