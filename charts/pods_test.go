// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// workload is what makes pods.
type workload struct {
	name string
	pod  corev1.PodTemplateSpec
	job  bool // ends by itself, and needs no probes
	zfs  bool // has a pool of ZFS, and so the rights of its node
}

func workloads(all []runtime.Object) []workload {
	var some []workload
	for _, o := range all {
		switch v := o.(type) {
		case *appsv1.Deployment:
			some = append(some, workload{name: kindAndName(v), pod: v.Spec.Template})
		case *appsv1.StatefulSet:
			zfs := slices.ContainsFunc(v.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "host" })
			some = append(some, workload{name: kindAndName(v), pod: v.Spec.Template, zfs: zfs})
		case *appsv1.DaemonSet:
			some = append(some, workload{name: kindAndName(v), pod: v.Spec.Template})
		case *batchv1.Job:
			some = append(some, workload{name: kindAndName(v), pod: v.Spec.Template, job: true})
		}
	}
	return some
}

// nodePlugin is the one that has to be root.
const nodePlugin = "DaemonSet weir-csi-node"

func TestPods(t *testing.T) {
	for _, e := range examples(t) {
		t.Run(e.name, func(t *testing.T) {
			found := workloads(render(t, e.args...))
			if len(found) < 5 {
				t.Fatalf("found %d workloads: setup, gateway, operator, CSI controller and node plugin should be there", len(found))
			}
			for _, w := range found {
				checkPod(t, w)
				for _, c := range w.pod.Spec.Containers {
					checkContainer(t, w, c)
				}
			}
		})
	}
}

func checkPod(t *testing.T, w workload) {
	t.Helper()
	s := w.pod.Spec
	if w.name == nodePlugin {
		if !s.HostNetwork || s.PriorityClassName != "system-node-critical" ||
			!slices.Contains(s.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists}) {
			t.Errorf("%s: hostNetwork %v, priority %q, tolerations %v: it has to run on every node, and mounts outlive it", w.name,
				s.HostNetwork, s.PriorityClassName, s.Tolerations)
		}
		return
	}
	sc := s.SecurityContext
	if w.zfs {
		if !s.HostNetwork && len(s.NodeSelector) == 0 {
			t.Errorf("%s: its pool is on a node, and it may run on any", w.name)
		}
		return
	}
	if sc == nil || sc.RunAsNonRoot == nil || !*sc.RunAsNonRoot || sc.SeccompProfile == nil ||
		sc.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: its pod's security context is %+v: want non-root and the runtime's seccomp profile", w.name, sc)
	}
	if s.HostNetwork && w.name != "StatefulSet weir-gateway" {
		t.Errorf("%s is on the host's network", w.name)
	}
}

func checkContainer(t *testing.T, w workload, c corev1.Container) {
	t.Helper()
	where := w.name + " container " + c.Name
	if _, limited := c.Resources.Limits[corev1.ResourceMemory]; !limited || c.Resources.Requests.Cpu().IsZero() ||
		c.Resources.Requests.Memory().IsZero() {
		t.Errorf("%s: resources %+v: want requests of CPU and memory, and a limit of memory", where, c.Resources)
	}
	// A sidecar serves nobody, so it needs no readiness probe.
	sidecar := slices.Contains([]string{"provisioner", "attacher", "resizer", "snapshotter", "health-monitor"}, c.Name)
	if !w.job && (c.LivenessProbe == nil || c.ReadinessProbe == nil && !sidecar) {
		t.Errorf("%s has no probes", where)
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p == nil || w.name == nodePlugin {
			continue
		}
		if !slices.ContainsFunc(c.Ports, func(q corev1.ContainerPort) bool { return q.Name == p.HTTPGet.Port.StrVal }) {
			t.Errorf("%s: a probe asks port %s, which it does not have", where, p.HTTPGet.Port.String())
		}
	}
	sc := c.SecurityContext
	switch {
	case sc == nil || sc.ReadOnlyRootFilesystem == nil || !*sc.ReadOnlyRootFilesystem:
		t.Errorf("%s: its root file system is not read-only", where)
	case w.name == nodePlugin:
	case w.zfs:
		if sc.Privileged == nil || !*sc.Privileged {
			t.Errorf("%s: its security context is %+v: ZFS needs a privileged container", where, sc)
		}
	case sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation || sc.Privileged != nil || sc.RunAsUser != nil ||
		sc.Capabilities == nil || !slices.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(sc.Capabilities.Add) > 0:
		t.Errorf("%s: its security context is %+v: want no privileges and no capabilities", where, sc)
	}
	if i, err := parseImage(c.Image); err != nil || i.tag == "latest" {
		t.Errorf("%s: image %q has no fixed tag", where, c.Image)
	}
	for _, a := range c.Args {
		if strings.Contains(a, "<no value>") || strings.HasSuffix(a, "=") {
			t.Errorf("%s: the argument %q lacks its value", where, a)
		}
		for _, name := range variables(a) {
			if !known(name, c) {
				t.Errorf("%s: the argument %q uses %s, which is not in its environment", where, a, name)
			}
		}
	}
}

// variables are the names in $(NAME).
func variables(s string) []string {
	var names []string
	for _, part := range strings.Split(s, "$(")[1:] {
		name, _, _ := strings.Cut(part, ")")
		names = append(names, name)
	}
	return names
}

// known reports whether the container's environment has the name: what the pod says, and what the
// kubelet adds for Services of the chart.
func known(name string, c corev1.Container) bool {
	services := []string{"WEIR_GATEWAY_SERVICE_HOST", "WEIR_REGISTRY_SERVICE_HOST", "WEIR_STORE_SERVICE_HOST"}
	return slices.Contains(services, name) || slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
}

// A Service whose address is taken from the environment has to be there, by this name.
func TestServicesOfTheEnvironment(t *testing.T) {
	for _, e := range examples(t) {
		all := render(t, e.args...)
		for _, w := range workloads(all) {
			for _, c := range w.pod.Spec.Containers {
				for _, a := range c.Args {
					for _, name := range variables(a) {
						service, isService := strings.CutSuffix(name, "_SERVICE_HOST")
						service = strings.ReplaceAll(strings.ToLower(service), "_", "-")
						if isService && !slices.ContainsFunc(of[corev1.Service](all),
							func(s *corev1.Service) bool { return s.Name == service }) {
							t.Errorf("%s: %s uses %s: there is no Service %s", e.name, w.name, name, service)
						}
					}
				}
			}
		}
	}
}

func selects(pods []workload, selector map[string]string) bool {
	return slices.ContainsFunc(pods, func(w workload) bool { return labels.SelectorFromSet(selector).Matches(labels.Set(w.pod.Labels)) })
}
