// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/federation/etcd/etcdtest"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/test/apiserver"
)

const (
	federationName = "scale"
	here           = "ams" // the site whose operator it is
	organization   = "org-0"
	namespace      = "apps"
	// hang is when a step is given up; it only ends what hangs.
	hang = 7 * time.Minute
)

// rig is the API server, the registry, the program, and how to reach them.
type rig struct {
	reader  *http.Client // of the operator's metrics
	t       *testing.T
	cfg     *rest.Config
	host    string // URL of the API server
	api     client.Client
	cluster string // UID
	server  *etcdtest.Server
	files   pki.Files // of the operator
	creds   *pki.Credentials
	program string
	env     []string // of the program
}

func newRig(t *testing.T) *rig {
	log.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	r := &rig{t: t}
	r.program = filepath.Join(t.TempDir(), "weir")
	// With the flags of `make build`, so that only the linker runs.
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", r.program, "../../cmd/weir")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build weir: %v\n%s", err, out)
	}
	r.certify()
	// The servers collect garbage seldom, for they are most of the work; the program does as
	// always.
	r.env = os.Environ()
	t.Setenv("GOGC", "200")
	r.cfg = apiserver.Start(t)
	r.cfg.QPS = -1 // the test does not wait for itself
	r.host = "https://" + strings.TrimSuffix(strings.TrimPrefix(r.cfg.Host, "https://"), "/")
	scheme := runtime.NewScheme()
	r.ok(clientgoscheme.AddToScheme(scheme))
	r.ok(v1alpha1.AddToScheme(scheme))
	var err error
	r.api, err = client.New(r.cfg, client.Options{Scheme: scheme})
	r.ok(err)
	var system corev1.Namespace
	r.ok(r.api.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, &system))
	r.cluster = string(system.UID)
	r.mayRead()
	return r
}

// mayRead makes a ServiceAccount that reads the operator's metrics, as Prometheus has one.
func (r *rig) mayRead() {
	ctx := r.t.Context()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "prometheus"}}
	name := metav1.ObjectMeta{Name: "prometheus"}
	for _, o := range []client.Object{account,
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: name,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}}},
	} {
		r.ok(r.api.Create(ctx, o))
	}
	day := int64((24 * time.Hour).Seconds())
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}
	r.ok(r.api.SubResource("token").Create(ctx, account, token))
	var err error
	r.reader, err = rest.HTTPClientFor(&rest.Config{BearerToken: token.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: r.files.CA}})
	r.ok(err)
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// certify makes the federation's authority and certificates, and starts the registry with them.
func (r *rig) certify() {
	dir, now := r.t.TempDir(), time.Now()
	a, err := pki.NewAuthority(federationName, now, 24*time.Hour)
	r.ok(err)
	root, err := a.Pair()
	r.ok(err)
	ca, _, err := root.Write(dir, "ca")
	r.ok(err)
	issue := func(name string) pki.Files {
		p, err := a.Issue(pki.Identity{Federation: federationName, Organization: organization, Site: here, Gateway: name},
			[]string{"127.0.0.1"}, now, 24*time.Hour)
		r.ok(err)
		cert, key, err := p.Write(dir, name)
		r.ok(err)
		return pki.Files{CA: ca, Cert: cert, Key: key}
	}
	member, mine := issue("registry"), issue("gateways")
	r.files = issue("operator")
	r.creds, err = pki.LoadFiles(mine, time.Now)
	r.ok(err)
	r.server = etcdtest.Start(r.t, &etcdtest.Files{CA: member.CA, Cert: member.Cert, Key: member.Key})
}

// registry opens a connection, which is closed when the test ends.
func (r *rig) registry() *etcd.Registry {
	r.t.Helper()
	reg, err := etcd.Open(etcd.Config{After: time.After, Endpoints: []string{r.server.Endpoint}, Federation: federationName,
		TLS: r.creds.Client(pki.Expect{}), CallTimeout: time.Minute})
	r.ok(err)
	r.t.Cleanup(func() { _ = reg.Close() })
	return reg
}

// kubeconfig writes one.
func (r *rig) kubeconfig(name, server string, ca, cert, key []byte) string {
	r.t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	path := filepath.Join(r.t.TempDir(), name)
	r.ok(clientcmd.WriteToFile(*c, path))
	return path
}

// until calls done until it says true; it says what is missing otherwise.
func (r *rig) until(what string, done func() (bool, string)) {
	r.t.Helper()
	for end, pause := time.Now().Add(hang), 50*time.Millisecond; ; pause = min(2*pause, time.Second) {
		ok, missing := done()
		if ok {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s: %s", what, missing)
		}
		select {
		case <-r.t.Context().Done():
			r.t.Fatal(r.t.Context().Err())
		case <-time.After(pause):
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
