// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/api/v1alpha1"
)

const (
	namespace = "weir-system"
	// The version of Kubernetes for which templates are rendered; Weir is built with this one's
	// client.
	kubeVersion = "1.36.0"
)

// trial is one site with all that it needs; where its images are is for who installs it to say.
func trial(more ...string) []string {
	return append([]string{"-f", "weir/ci/trial-values.yaml", "--set", "imageRegistry=images.example.org/weir"}, more...)
}

// helm returns the path of the program, as hack/tools pins it.
var helm = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("../hack/tools/build", "-p").Output()
	return filepath.Join(strings.TrimSpace(string(out)), "helm"), err
})

// run runs helm; its home is empty, so that nothing of the machine counts.
func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	bin, err := helm()
	if err != nil {
		t.Fatalf("find helm: %v", err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v: build it with hack/tools/build helm", err)
	}
	cmd := exec.CommandContext(t.Context(), bin, args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

// example is a file of weir/ci, and what has to be added to it.
type example struct {
	name string
	args []string
}

// examples are all files of weir/ci, and what belongs to them: a site that joins gets the
// certificates that a federation's administrator hands over.
func examples(t *testing.T) []example {
	t.Helper()
	files, err := filepath.Glob("weir/ci/*-values.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("list weir/ci: %q, %v", files, err)
	}
	var all []example
	for _, f := range files {
		e := example{name: strings.TrimSuffix(filepath.Base(f), "-values.yaml"), args: []string{"-f", f}}
		switch e.name {
		case "join", "stranger":
			e.args = append(e.args, "-f", certificates(t))
		case "trial":
			e.args = trial()
		}
		all = append(all, e)
	}
	return all
}

// render returns the objects that helm would install.
func render(t *testing.T, args ...string) []runtime.Object {
	t.Helper()
	out, stderr, err := run(t, append([]string{"template", "weir", "weir", "--namespace", namespace, "--kube-version", kubeVersion},
		args...)...)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, stderr)
	}
	return decode(t, out)
}

// decode reads objects strictly: an unknown field is a mistake.
func decode(t *testing.T, text string) []runtime.Object {
	t.Helper()
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(certManager.WithKind("Certificate"), &certificate{})
	s.AddKnownTypeWithName(certManager.WithKind("Issuer"), &issuer{})
	s.AddKnownTypeWithName(snapshotting.WithKind("VolumeSnapshotClass"), &snapshotClass{})
	s.AddKnownTypeWithName(grouping.WithKind("VolumeGroupSnapshotClass"), &groupClass{})
	s.AddKnownTypeWithName(monitoring.WithKind("ServiceMonitor"), &serviceMonitor{})
	s.AddKnownTypeWithName(monitoring.WithKind("PrometheusRule"), &prometheusRule{})
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensions.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
	var all []runtime.Object
	for doc := range strings.SplitSeq("\n"+text, "\n---") {
		if onlyComments(doc) {
			continue
		}
		o, _, err := decoder.Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		all = append(all, o)
	}
	return all
}

func onlyComments(doc string) bool {
	var v any
	return yaml.Unmarshal([]byte(doc), &v) == nil && v == nil
}

// of returns the objects of a type.
func of[T any](all []runtime.Object) []*T {
	var some []*T
	for _, o := range all {
		if v, ok := o.(any).(*T); ok {
			some = append(some, v)
		}
	}
	return some
}

// kindAndName is how messages call an object.
func kindAndName(o runtime.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + o.(metav1.Object).GetName()
}

// cert-manager's kinds: the fields that the chart uses, as cert-manager documents them for
// cert-manager.io/v1.
var certManager = schema.GroupVersion{Group: "cert-manager.io", Version: "v1"}

type certificate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SecretName string `json:"secretName"`
		CommonName string `json:"commonName"`
		Subject    struct {
			Organizations       []string `json:"organizations"`
			OrganizationalUnits []string `json:"organizationalUnits"`
		} `json:"subject"`
		IsCA        bool            `json:"isCA"`
		URIs        []string        `json:"uris"`
		IPAddresses []string        `json:"ipAddresses"`
		DNSNames    []string        `json:"dnsNames"`
		Usages      []string        `json:"usages"`
		Duration    metav1.Duration `json:"duration"`
		RenewBefore metav1.Duration `json:"renewBefore"`
		PrivateKey  struct {
			Algorithm      string `json:"algorithm"`
			Size           int    `json:"size"`
			Encoding       string `json:"encoding"`
			RotationPolicy string `json:"rotationPolicy"`
		} `json:"privateKey"`
		IssuerRef struct {
			Name  string `json:"name"`
			Kind  string `json:"kind"`
			Group string `json:"group"`
		} `json:"issuerRef"`
	} `json:"spec"`
}

type issuer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SelfSigned *struct{} `json:"selfSigned,omitempty"`
		CA         *struct {
			SecretName string `json:"secretName"`
		} `json:"ca,omitempty"`
	} `json:"spec"`
}

func (c *certificate) DeepCopyObject() runtime.Object { d := *c; return &d }
func (i *issuer) DeepCopyObject() runtime.Object      { d := *i; return &d }
