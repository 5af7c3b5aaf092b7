// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// imageName is the name of an image, in its parts.
type imageName struct{ registry, repository, tag, digest string }

// The registry is a host with a dot or a port, and perhaps folders; the repository is what the
// chart calls it, so only its last folder is known here.
var imageForm = regexp.MustCompile(`^([^/@:]+(?:\.[^/@:]+)+(?::\d+)?)/([a-z0-9._/-]+)(?::([A-Za-z0-9_.-]+)|@(sha256:[0-9a-f]{64}))$`)

func parseImage(s string) (imageName, error) {
	m := imageForm.FindStringSubmatch(s)
	if m == nil {
		return imageName{}, fmt.Errorf("%q is not HOST/REPOSITORY:TAG or HOST/REPOSITORY@DIGEST", s)
	}
	return imageName{m[1], m[2], m[3], m[4]}, nil
}

// images are those of all pods, each once, in order.
func images(all []runtime.Object) []string {
	var names []string
	for _, w := range workloads(all) {
		for _, c := range slices.Concat(w.pod.Spec.InitContainers, w.pod.Spec.Containers) {
			names = append(names, c.Image)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// places are the images in values, and what each is by default.
var places = map[string]string{
	"image":                      "weir:0.1.0",
	"csi.provisioner.image":      "sig-storage/csi-provisioner:v5.3.0",
	"csi.attacher.image":         "sig-storage/csi-attacher:v4.13.0",
	"csi.resizer.image":          "sig-storage/csi-resizer:v2.3.0",
	"csi.snapshotter.image":      "sig-storage/csi-snapshotter:v8.7.0",
	"csi.healthMonitor.image":    "sig-storage/csi-external-health-monitor-controller:v0.18.0",
	"snapshots.controller.image": "sig-storage/snapshot-controller:v8.7.0",
	"bundled.registry.image":     "etcd-development/etcd:v3.7.3",
	"bundled.store.image":        "versity/versitygw:v1.8.0",
}

// Each image can be replaced by itself, in each of its parts, and all of them by one prefix.
func TestImages(t *testing.T) {
	const host = "images.example.org/weir"
	all := trial("--set", "csi.healthMonitor.enabled=true,snapshots.enabled=true,snapshots.controller.enabled=true")
	var want []string
	for _, name := range places {
		want = append(want, host+"/"+name)
	}
	slices.Sort(want)
	if got := images(render(t, all...)); !slices.Equal(got, want) {
		t.Fatalf("by one prefix, the images are %q, want %q", got, want)
	}
	digest := "sha256:" + strings.Repeat("0123abcd", 8)
	for place, name := range places {
		repository, tag, _ := strings.Cut(name, ":")
		for set, becomes := range map[string]string{
			"registry=other.example.org:5000/": "other.example.org:5000/" + name,
			"repository=a/b-c":                 host + "/a/b-c:" + tag,
			"tag=v9":                           host + "/" + repository + ":v9",
			"digest=" + digest:                 host + "/" + repository + "@" + digest,
		} {
			got := images(render(t, append(all, "--set", place+"."+set)...))
			changed := slices.Clone(want)
			changed[slices.Index(changed, host+"/"+name)] = becomes
			slices.Sort(changed)
			if !slices.Equal(got, changed) {
				t.Errorf("%s.%s: the images are %q, want %q", place, set, got, changed)
			}
		}
	}

	// Without a prefix: Weir from one registry, sidecars from their project's.
	for _, e := range examples(t) {
		if e.name != "cert-manager" {
			continue
		}
		got := images(render(t, e.args...))
		want := []string{"images.example.org/weir/weir:0.1.0", "kubernetes-images.example.org/sig-storage/csi-attacher:v4.13.0",
			"kubernetes-images.example.org/sig-storage/csi-provisioner:v5.3.0",
			"kubernetes-images.example.org/sig-storage/csi-resizer:v2.3.0"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the images are %q, want %q", e.name, got, want)
		}
	}
}

// The versions are those that hack/tools pins, and the tests run. The health monitor is not among
// them.
func TestVersionsOfImages(t *testing.T) {
	text, err := os.ReadFile("weir/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	for place, module := range map[string][2]string{
		"csi.provisioner.image":      {"provisioner", "github.com/kubernetes-csi/external-provisioner/"},
		"csi.attacher.image":         {"csi", "github.com/kubernetes-csi/external-attacher/"},
		"csi.resizer.image":          {"csi", "github.com/kubernetes-csi/external-resizer/"},
		"csi.snapshotter.image":      {"snapshotter", "github.com/kubernetes-csi/external-snapshotter/"},
		"snapshots.controller.image": {"snapshotter", "github.com/kubernetes-csi/external-snapshotter/"},
		"bundled.registry.image":     {"etcd", "go.etcd.io/etcd/server/"},
		"bundled.store.image":        {"s3", "github.com/versity/versitygw"},
	} {
		v := any(values)
		for part := range strings.SplitSeq(place+".tag", ".") {
			v = v.(map[string]any)[part]
		}
		pins, err := os.ReadFile(filepath.Join("..", "hack", "tools", module[0], "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(module[1]) + `(?:v\d+)? (v\S+)`).FindSubmatch(pins)
		if m == nil || v != string(m[1]) {
			t.Errorf("%s.tag is %v, and hack/tools/%s/go.mod has %q of %s", place, v, module[0], m, module[1])
		}
	}
}

// The line of docs/kubernetes/install.md that lists images for a mirror lists all of them.
func TestListOfImages(t *testing.T) {
	text, err := os.ReadFile("../docs/kubernetes/install.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^    (helm template weir dist/weir-VERSION\.tgz .*\bimage: .*)$`).FindSubmatch(text)
	if line == nil {
		t.Fatal("docs/kubernetes/install.md has no line `helm template weir dist/weir-VERSION.tgz ... image: ...`")
	}
	bin, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range examples(t) {
		// The line, word for word, but for chart and file of values, and run in this folder.
		command := strings.NewReplacer("dist/weir-VERSION.tgz", "weir", "-f ams.yaml", `"$@"`).Replace(string(line[1]))
		c := exec.CommandContext(t.Context(), "sh", append([]string{"-ec", command, "sh"}, e.args...)...)
		c.Env = []string{"HOME=" + t.TempDir(), "PATH=" + filepath.Dir(bin) + ":" + os.Getenv("PATH")}
		out, err := c.CombinedOutput()
		if got, want := strings.Fields(string(out)), images(render(t, e.args...)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %s: %v\n%s\nwant %q", e.name, command, err, out, want)
		}
	}
}
