// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// A tool that renders the chart without asking the cluster, again and again, as Argo CD does, sees
// no difference, and finds no key in it; and what it deletes because it did not render it is not a
// key.
func TestRendersTheSame(t *testing.T) {
	for _, e := range examples(t) {
		args := append([]string{"template", "weir", "weir", "--namespace", namespace, "--kube-version", kubeVersion}, e.args...)
		first, stderr, err := run(t, args...)
		if err != nil {
			t.Fatalf("%s: helm template: %v\n%s", e.name, err, stderr)
		}
		again, _, err := run(t, args...)
		if err != nil || first != again {
			t.Errorf("%s: rendered twice, it differs (%v)", e.name, err)
		}
		if e.name == "join" || e.name == "stranger" {
			continue // their keys were brought
		}
		if strings.Contains(first, "PRIVATE KEY") {
			t.Errorf("%s: there is a key in what is rendered", e.name)
		}
		for _, s := range of[corev1.Secret](decode(t, first)) {
			if s.Name != "weir-store" {
				t.Errorf("%s: Secret %s is rendered", e.name, s.Name)
			}
		}
	}
}

// A Job cannot be changed: its name is another when it is to do something else, and else it is the
// same.
func TestSetupRunsAgain(t *testing.T) {
	name := func(args ...string) string {
		t.Helper()
		jobs := of[batchv1.Job](render(t, trial(args...)...))
		if len(jobs) != 1 {
			t.Fatalf("%d jobs, want weir-setup", len(jobs))
		}
		return jobs[0].Name
	}
	same := name()
	if again := name(); again != same {
		t.Errorf("of the same values it is %s, then %s", same, again)
	}
	for _, set := range []string{"certificates.validFor=100h", "site.region=nl", "image.tag=v2", "policy.spec.maxLag.time=5m"} {
		if other := name("--set", set); other == same {
			t.Errorf("with %s it is still %s", set, other)
		}
	}
	for _, j := range of[batchv1.Job](render(t, trial()...)) {
		// One that is deleted when it is done would be made again by every synchronization.
		if j.Spec.TTLSecondsAfterFinished != nil || len(j.Annotations) > 0 {
			t.Errorf("Job %s has annotations %v, and a time to live %v", j.Name, j.Annotations, j.Spec.TTLSecondsAfterFinished)
		}
	}
}

// The operator renews what `weir setup` generates, and nothing in other modes.
func TestOperatorRenews(t *testing.T) {
	values := func(w workload, name string) (all []string) {
		for _, a := range w.pod.Spec.Containers[0].Args {
			if v, ok := strings.CutPrefix(a, name+"="); ok {
				all = append(all, v)
			}
		}
		return all
	}
	generated := 0
	for _, e := range examples(t) {
		var issued, renewed, authorities []string
		for _, w := range workloads(render(t, e.args...)) {
			switch {
			case strings.HasPrefix(w.name, "Job weir-setup"):
				for _, v := range values(w, "--issue") {
					issued = append(issued, strings.Split(v, "=")[1])
				}
				authorities = append(authorities, values(w, "--authority")...)
			case w.name == "Deployment weir-operator":
				renewed = values(w, "--renew")
				authorities = append(authorities, values(w, "--authority")...)
			}
		}
		if !slices.Equal(issued, renewed) || len(authorities) == 1 || len(authorities) == 2 && authorities[0] != authorities[1] {
			t.Errorf("%s: issued are %q and renewed %q, by %q", e.name, issued, renewed, authorities)
		}
		if len(renewed) > 0 {
			generated++
		}
	}
	if generated < 2 {
		t.Errorf("%d examples generate certificates, want the trials", generated)
	}
}

// The provisioner publishes how much room there is, with what that takes: a name, a namespace,
// rights.
func TestCapacity(t *testing.T) {
	for _, e := range examples(t) {
		found := false
		for _, w := range workloads(render(t, e.args...)) {
			for _, c := range w.pod.Spec.Containers {
				if c.Name != "provisioner" {
					continue
				}
				found = true
				for _, want := range []string{"--enable-capacity", "--capacity-ownerref-level=2", "--capacity-for-immediate-binding"} {
					if !slices.Contains(c.Args, want) {
						t.Errorf("%s: the provisioner lacks %s", e.name, want)
					}
				}
				for name, field := range map[string]string{"NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name"} {
					if !slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool {
						return v.Name == name && v.ValueFrom != nil && v.ValueFrom.FieldRef != nil &&
							v.ValueFrom.FieldRef.FieldPath == field
					}) {
						t.Errorf("%s: the provisioner's environment lacks %s", e.name, name)
					}
				}
			}
		}
		if !found {
			t.Errorf("%s: there is no provisioner", e.name)
		}
	}
}
