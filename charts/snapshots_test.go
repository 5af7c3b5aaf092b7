// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// Kinds of external-snapshotter: the fields that the chart uses.
var (
	snapshotting = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}
	grouping     = schema.GroupVersion{Group: "groupsnapshot.storage.k8s.io", Version: "v1"}
)

type snapshotClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Driver            string `json:"driver"`
	DeletionPolicy    string `json:"deletionPolicy"`
}

type groupClass struct {
	snapshotClass `json:",inline"`
	Parameters    map[string]string `json:"parameters"`
}

func (c *snapshotClass) DeepCopyObject() runtime.Object { d := *c; return &d }
func (c *groupClass) DeepCopyObject() runtime.Object    { d := *c; return &d }

// A site whose claims have VolumeSnapshots has a sidecar for them, with its rights, and a class; a
// site that does not want them has nothing of it, and nobody has the snapshot controller unasked.
func TestSnapshots(t *testing.T) {
	const isDefault = "snapshot.storage.kubernetes.io/is-default-class"
	for name, c := range map[string]struct {
		set                             string
		sidecar, class, def, controller bool
		policy                          string
	}{
		"none":       {"snapshots.enabled=false", false, false, false, false, ""},
		"by default": {"snapshots.enabled=true", true, true, true, false, "Delete"},
		"kept": {"snapshots.enabled=true,snapshots.class.isDefault=false,snapshots.class.deletionPolicy=Retain", true, true, false, false,
			"Retain"},
		"a class of one's own": {"snapshots.enabled=true,snapshots.class.create=false", true, false, false, false, ""},
		"with the controller": {"snapshots.enabled=true,snapshots.controller.enabled=true,snapshots.controller.replicas=3", true, true,
			true, true, "Delete"},
	} {
		all := render(t, trial("--set", c.set)...)
		classes := of[snapshotClass](all)
		if len(classes) > 0 != c.class || c.class && (classes[0].Driver != v1alpha1.Driver || classes[0].Name != "weir" ||
			classes[0].DeletionPolicy != c.policy || (classes[0].Annotations[isDefault] == "true") != c.def) {
			t.Errorf("%s: classes %+v, want one: %v, the default: %v, %s", name, classes, c.class, c.def, c.policy)
		}
		sidecar, controller := false, false
		for _, w := range workloads(all) {
			sidecar = sidecar || w.name == "Deployment weir-csi-controller" && len(w.pod.Spec.Containers) == 5 &&
				w.pod.Spec.Containers[4].Name == "snapshotter"
			controller = controller || w.name == "Deployment weir-snapshot-controller"
		}
		if sidecar != c.sidecar || controller != c.controller {
			t.Errorf("%s: the sidecar runs: %v, the snapshot controller: %v", name, sidecar, controller)
		}
		for _, d := range of[appsv1.Deployment](all) {
			if d.Name == "weir-snapshot-controller" && *d.Spec.Replicas != 3 {
				t.Errorf("%s: %d snapshot controllers", name, *d.Spec.Replicas)
			}
		}
		got := map[string]bool{}
		for _, r := range of[rbacv1.ClusterRole](all) {
			if r.Name == "weir-csi-sidecars" {
				rights(got, r.Rules...)
			}
		}
		for _, right := range []string{"volumesnapshots get", "volumesnapshotclasses list", "volumesnapshotcontents patch",
			"volumesnapshotcontents/status patch"} {
			if got[snapshotting.Group+" "+right] != c.sidecar {
				t.Errorf("%s: the sidecars have the right %s: %v", name, right, !c.sidecar)
			}
		}
	}
}

// Groups are taken by a class that says what they are, and nobody looks at them unasked.
func TestGroupSnapshots(t *testing.T) {
	for _, on := range []bool{false, true} {
		all := render(t, trial("--set", fmt.Sprintf("snapshots.enabled=true,snapshots.controller.enabled=true,snapshots.groups.enabled=%v,"+
			"snapshots.groups.className=together", on))...)
		classes := of[groupClass](all)
		if len(classes) > 0 != on || on && (classes[0].Name != "together" || classes[0].Driver != v1alpha1.Driver ||
			classes[0].Parameters["consistency"] != "PerVolume" || classes[0].DeletionPolicy != "Delete") {
			t.Errorf("groups %v: classes %+v", on, classes)
		}
		gates := 0
		for _, w := range workloads(all) {
			for _, c := range w.pod.Spec.Containers {
				if slices.Contains(c.Args, fmt.Sprintf("--feature-gates=CSIVolumeGroupSnapshot=%v", on)) {
					gates++
				}
			}
		}
		if gates != 2 {
			t.Errorf("groups %v: %d programs know it, want the snapshotter and the snapshot controller", on, gates)
		}
		for _, r := range of[rbacv1.ClusterRole](all) {
			got := map[string]bool{}
			rights(got, r.Rules...)
			if want := on && (r.Name == "weir-csi-sidecars" || r.Name == "weir-snapshot-controller"); want !=
				got[grouping.Group+" volumegroupsnapshotcontents patch"] {
				t.Errorf("groups %v: %s may change VolumeGroupSnapshotContents: %v", on, r.Name, !want)
			}
		}
	}
}

// snapshotKinds: a cluster without the kinds of snapshots is told so, with what to do; then it gets
// them, which the other tests here need.
func (c cluster) snapshotKinds(t *testing.T) {
	install := append([]string{"install", "weir", "weir", "--dry-run=server", "--namespace", "default", "--kubeconfig", c.kubeconfig},
		trial("--set", "snapshots.enabled=true")...)
	_, stderr, err := run(t, install...)
	if err == nil || !strings.Contains(stderr, "snapshots.enabled: the cluster has no kinds of snapshot.storage.k8s.io/v1") ||
		!strings.Contains(stderr, "snapshots.controller.enabled=true") {
		t.Errorf("helm install without the kinds of snapshots: %v: %s", err, stderr)
	}
	_, stderr, err = run(t, append(install, "--set", "snapshots.enabled=false,snapshots.groups.enabled=true")...)
	if err == nil || !strings.Contains(stderr, "snapshots.groups.enabled: snapshots.enabled is false") {
		t.Errorf("helm install with groups alone: %v: %s", err, stderr)
	}
	definitions, err := exec.CommandContext(t.Context(), "../hack/snapshot-crds").Output()
	if err != nil {
		t.Fatalf("find the kinds of snapshots: %v", err)
	}
	kubectl := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(must(helm())), "kubectl"), "--kubeconfig", c.kubeconfig,
		"apply", "--server-side", "-f", "-")
	kubectl.Stdin = strings.NewReader(string(definitions))
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("kubectl apply: %v: %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	defer cancel()
	for served := false; !served; {
		var all apiextensions.CustomResourceDefinitionList
		if err := c.client.List(ctx, &all); err != nil {
			t.Fatalf("wait for definitions: %v", err)
		}
		served = len(all.Items) > 0 && !slices.ContainsFunc(all.Items, func(d apiextensions.CustomResourceDefinition) bool {
			return !isEstablished(d)
		})
	}
	if _, stderr, err := run(t, append(install, "--set", "snapshots.groups.enabled=true")...); err != nil {
		t.Errorf("helm install with the kinds of snapshots: %v: %s", err, stderr)
	}
}
