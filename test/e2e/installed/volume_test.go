// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/test/e2e/kube"
)

// hang bounds each step; nothing here is expected to take it.
const hang = 3 * time.Minute

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

func newFederated(t *testing.T, cfg kube.Config) *Federated {
	t.Helper()
	c := kube.Test(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 2*hang)
	defer cancel()
	f, err := Install(ctx, c, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// kubectl runs a command that must succeed.
func (f *Federated) kubectl(t *testing.T, site string, args ...string) string {
	t.Helper()
	out, err := f.Site(site).Kubectl(bounded(t), args...)
	if err != nil {
		t.Fatalf("site %s: kubectl %s: %v: %s", site, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func (f *Federated) apply(t *testing.T, site, yaml string) {
	t.Helper()
	if err := f.Site(site).Apply(bounded(t), yaml); err != nil {
		t.Fatalf("site %s: %v", site, err)
	}
}

// exec runs a script in a pod; it must succeed.
func (f *Federated) exec(t *testing.T, site, pod, script string) string {
	t.Helper()
	out, err := f.Site(site).Exec(bounded(t), pod, "sh", "-c", script)
	if err != nil {
		t.Fatalf("site %s, pod %s: %s: %v: %s", site, pod, script, err, out)
	}
	return strings.TrimSpace(out)
}

// pod is a manifest of a pod with a claim at /data, on the guest of its site.
func pod(name, claim string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {e2e.weir.dev/node: guest}
  containers:
  - {name: app, image: %s, imagePullPolicy: Never, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
`, name, kube.ImageName("app"), claim)
}

const policy = `apiVersion: storage.weir.dev/v1alpha1
kind: VolumePolicy
metadata: {name: safe}
spec: {replication: {copies: 2}, durability: {acknowledge: Sites, sites: 2}}
`

// TestTwoSitesShareAVolume applies a volume at a, imports it at b, and has pods at both use it.
func TestTwoSitesShareAVolume(t *testing.T) {
	f := newFederated(t, kube.Config{Sites: []string{"a", "b", "c"}})
	f.apply(t, "a", policy+`---
apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: shared, namespace: default}
spec: {size: 1Gi, policy: safe, grants: [{site: b, namespace: default}], home: {preferredSites: [a]}}
`)
	f.kubectl(t, "a", "wait", "--for=condition=Ready", "--timeout=60s", "gv/shared")
	f.apply(t, "a", pod("writer", "shared"))
	f.kubectl(t, "a", "wait", "--for=condition=Ready", "--timeout=120s", "pod/writer")
	f.exec(t, "a", "writer", "echo hello from a > /data/greeting; sync; grep /data /proc/mounts")

	f.apply(t, "b", `apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: from-a, namespace: default}
spec: {import: {volume: default.shared}}
`)
	f.kubectl(t, "b", "wait", "--for=condition=Ready", "--timeout=60s", "gv/from-a")
	f.apply(t, "b", pod("reader", "from-a"))
	f.kubectl(t, "b", "wait", "--for=condition=Ready", "--timeout=120s", "pod/reader")
	if got := f.exec(t, "b", "reader", "cat /data/greeting"); got != "hello from a" {
		t.Errorf("the pod at b reads %q", got)
	}
	f.exec(t, "b", "reader", "echo hello from b > /data/answer; sync")
	if got := f.exec(t, "a", "writer", "cat /data/answer"); got != "hello from b" {
		t.Errorf("the pod at a reads %q", got)
	}
	for _, site := range f.Names() {
		t.Logf("site %s:\n%s", site, f.kubectl(t, site, "get", "gv,gvc,sites,vp,cp", "-A", "-o", "wide"))
	}
}
