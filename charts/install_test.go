// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// hangGuard ends what hangs; nothing is measured by it.
const hangGuard = 2 * time.Minute

// cluster is a real API server, without controllers and nodes.
type cluster struct {
	config     *rest.Config
	kubeconfig string
	client     client.Client
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	bin, err := helm()
	if err != nil {
		t.Fatalf("find helm: %v", err)
	}
	dir := filepath.Dir(bin)
	for _, p := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
			t.Fatalf("%v: build it with hack/tools/build etcd kube", err)
		}
	}
	// Its own limits are 20 s, which a busy machine needs.
	env := &envtest.Environment{BinaryAssetsDirectory: dir, ControlPlaneStartTimeout: hangGuard, ControlPlaneStopTimeout: hangGuard}
	cfg, err := env.Start()
	if err != nil {
		t.Fatalf("start kube-apiserver: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop kube-apiserver: %v", err)
		}
	})
	admin, err := env.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	text, err := admin.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	c := cluster{config: cfg, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := os.WriteFile(c.kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensions.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	if c.client, err = client.New(cfg, client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	return c
}

// helm runs helm in the cluster.
func (c cluster) helm(t *testing.T, args ...string) {
	t.Helper()
	_, stderr, err := run(t, append(args, "--kubeconfig", c.kubeconfig, "--namespace", namespace)...)
	if err != nil || strings.Contains(stderr, "Warning") {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
}

func (c cluster) has(t *testing.T, o client.Object, name string) bool {
	t.Helper()
	err := c.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

func TestCluster(t *testing.T) {
	log.SetLogger(logr.Discard())
	c := newCluster(t)
	t.Run("kinds of snapshots", c.snapshotKinds)
	t.Run("dry run", c.dryRun)
	t.Run("a forgotten file", c.forgotten)
	t.Run("install", c.install)
}

// forgotten: certificates that were handed over are not replaced by others, because their file was
// not given to helm again.
func (c cluster) forgotten(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "weir-gateway-tls",
		Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}}}
	if err := c.client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := run(t, append([]string{"install", "weir", "weir", "--dry-run=server", "--namespace", namespace,
		"--kubeconfig", c.kubeconfig}, trial()...)...)
	if err == nil || !strings.Contains(stderr, "give its file again") {
		t.Errorf("helm install without the file: %v: %s", err, stderr)
	}
	if err := c.client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// dryRun: the API server takes all objects, and warns of none.
func (c cluster) dryRun(t *testing.T) {
	if err := c.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	for _, e := range examples(t) {
		out, stderr, err := run(t, append([]string{"template", "weir", "weir", "--namespace", namespace, "--kube-version", kubeVersion},
			e.args...)...)
		if err != nil {
			t.Fatalf("%s: helm template: %v\n%s", e.name, err, stderr)
		}
		var known []string
		for doc := range strings.SplitSeq("\n"+out, "\n---") {
			if !strings.Contains(doc, "\napiVersion: "+certManager.String()+"\n") {
				known = append(known, doc)
			}
		}
		kubectl := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(must(helm())), "kubectl"), "--kubeconfig", c.kubeconfig,
			"apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
		kubectl.Stdin = strings.NewReader(strings.Join(known, "\n---"))
		var messages bytes.Buffer
		kubectl.Stderr = &messages
		if err := kubectl.Run(); err != nil || messages.Len() > 0 {
			t.Errorf("%s: kubectl apply: %v\n%s", e.name, err, &messages)
		}
	}
}

func must(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}

// install: a release is installed, its own objects applied as `weir setup` does; it is upgraded,
// uninstalled, and installed again.
func (c cluster) install(t *testing.T) {
	trial := append([]string{"weir", "weir"}, trial()...)
	c.helm(t, append([]string{"install", "--create-namespace"}, trial...)...)
	c.established(t)
	c.apply(t)
	t.Run("user roles", c.userRoles)
	t.Run("the operator's deletes", c.operatorDeletes)
	t.Run("certificates", c.certificates)

	var gateway corev1.Service
	if !c.has(t, &gateway, "weir-gateway") {
		t.Fatal("there is no Service weir-gateway")
	}
	c.helm(t, append([]string{"upgrade", "--set", "operator.replicas=3,policy.spec.replication.copies=1"}, trial...)...)
	c.apply(t)

	c.helm(t, "uninstall", "weir")
	for name, o := range map[string]client.Object{"weir-gateway": &corev1.Service{}, "weir-gateway-pool": &corev1.PersistentVolumeClaim{},
		"weir-store": &corev1.Secret{}} {
		if !c.has(t, o, name) || o.GetDeletionTimestamp() != nil {
			t.Errorf("%T %s is gone with the release", o, name)
		}
	}
	for _, name := range []string{"weir-gateway", "weir-objects"} {
		if c.has(t, &corev1.ConfigMap{}, name) {
			t.Errorf("ConfigMap %s is still there", name)
		}
	}
	c.established(t)

	c.helm(t, append([]string{"install"}, trial...)...)
	var again corev1.Service
	if !c.has(t, &again, "weir-gateway") || again.Spec.ClusterIP != gateway.Spec.ClusterIP {
		t.Errorf("nodes mount from %s, and the Service is now at %s", gateway.Spec.ClusterIP, again.Spec.ClusterIP)
	}
}

// established waits until the API server serves all of Weir's kinds.
func (c cluster) established(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("../config/crd/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	defer cancel()
	for {
		var all apiextensions.CustomResourceDefinitionList
		if err := c.client.List(ctx, &all); err != nil {
			t.Fatalf("wait for definitions: %v", err)
		}
		n := 0
		for _, d := range all.Items {
			if d.Spec.Group == v1alpha1.Group && isEstablished(d) {
				n++
			}
		}
		if n == len(files) {
			return
		}
	}
}

func isEstablished(d apiextensions.CustomResourceDefinition) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(k apiextensions.CustomResourceDefinitionCondition) bool {
		return k.Type == apiextensions.Established && k.Status == apiextensions.ConditionTrue
	})
}

// apply applies the objects of the ConfigMap weir-objects with the rights of `weir setup`.
func (c cluster) apply(t *testing.T) {
	t.Helper()
	var list corev1.ConfigMap
	if !c.has(t, &list, "weir-objects") {
		t.Fatal("there is no ConfigMap weir-objects")
	}
	setup := rest.CopyConfig(c.config)
	setup.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":weir-setup",
		Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	as, err := client.New(setup, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	defer cancel()
	for doc := range strings.SplitSeq(list.Data["objects.yaml"], "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		for {
			err := as.Apply(ctx, client.ApplyConfigurationFromUnstructured(&o), client.FieldOwner("weir-setup"), client.ForceOwnership)
			if err == nil {
				break
			}
			// Discovery is a little behind the definitions.
			if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
				t.Fatalf("apply %s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
	}
}
