// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/pki"
)

// Commands and flags that pods run with are those that the program has.
func TestFlags(t *testing.T) {
	weir := program(t)
	asked := map[string]string{}
	for _, e := range examples(t) {
		for _, w := range workloads(render(t, e.args...)) {
			for _, c := range w.pod.Spec.Containers {
				if image := c.Image[strings.LastIndex(c.Image, "/")+1:]; !strings.HasPrefix(image, "weir:") &&
					!strings.HasPrefix(image, "weir@") {
					continue
				}
				var command, flags []string
				for _, a := range c.Args {
					if strings.HasPrefix(a, "--") {
						flags = append(flags, a)
					} else {
						command = append(command, a)
					}
				}
				name := strings.Join(command, " ")
				if _, ok := asked[name]; !ok {
					out, err := exec.CommandContext(t.Context(), weir, append(command, "--help")...).CombinedOutput()
					if err != nil || !strings.Contains(string(out), "weir "+name+" ") {
						t.Errorf("%s: there is no command weir %s: %v", w.name, name, err)
						out = nil
					}
					asked[name] = string(out)
				}
				if asked[name] == "" {
					continue
				}
				for _, a := range flags {
					flag, _, _ := strings.Cut(a, "=")
					if !regexp.MustCompile(`\s` + flag + `\s`).MatchString(asked[name]) {
						t.Errorf("%s: weir %s has no flag %s", w.name, name, flag)
					}
				}
			}
		}
	}
	if len(asked) < 4 {
		t.Errorf("asked for %d commands: the search misses most", len(asked))
	}
}

// The gateway's configuration has the fields that docs/reference/gateway-config.md lists, and no
// others: the gateway refuses those.
func TestGatewayConfig(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/gateway-config.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range examples(t) {
		for _, m := range of[corev1.ConfigMap](render(t, e.args...)) {
			if m.Name != "weir-gateway" {
				continue
			}
			var config map[string]any
			if err := yaml.UnmarshalStrict([]byte(m.Data["gateway.yaml"]), &config); err != nil {
				t.Fatalf("%s: gateway.yaml: %v", e.name, err)
			}
			for _, name := range paths("", config) {
				if strings.HasPrefix(name, "labels.") || strings.Contains(name, ".labels.") {
					continue
				}
				if !strings.Contains(string(text), "`"+name+"`") {
					t.Errorf("%s: gateway.yaml has %s, which docs/reference/gateway-config.md does not list", e.name, name)
				}
			}
		}
	}
}

// Nodes that mount over TLS look for a name that the gateway's certificate has.
func TestNodesOverTLS(t *testing.T) {
	render := func(args ...string) (looked string, names []string) {
		t.Helper()
		all := render(t, append([]string{"-f", "weir/ci/cert-manager-values.yaml"}, args...)...)
		for _, w := range workloads(all) {
			for _, a := range w.pod.Spec.Containers[0].Args {
				if name, ok := strings.CutPrefix(a, "--nfs-tls-name="); ok && w.name == "DaemonSet weir-csi-node" {
					looked += name
				}
			}
		}
		for _, c := range of[certificate](all) {
			if slices.Contains(c.Spec.Subject.OrganizationalUnits, string(pki.PartGateway)) {
				names = c.Spec.DNSNames
			}
		}
		return looked, names
	}
	if looked, names := render(); looked == "" || !slices.Contains(names, looked) {
		t.Errorf("they look for %q, and it has %q", looked, names)
	}
	if looked, _ := render("--set", "csi.node.tlsName=other.example.org"); looked != "other.example.org" {
		t.Errorf("they look for %q", looked)
	}
	if looked, _ := render("--set", "csi.node.tls=false"); looked != "" {
		t.Errorf("in the clear they look for %q", looked)
	}
}

// paths are the names of all leaves, such as pool.size.
func paths(above string, v map[string]any) []string {
	var all []string
	for k, x := range v {
		if m, ok := x.(map[string]any); ok {
			all = append(all, paths(above+k+".", m)...)
		} else {
			all = append(all, above+k)
		}
	}
	return all
}
