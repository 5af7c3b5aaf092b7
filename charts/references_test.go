// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// What pods refer to is in the chart, or made by `weir setup` or cert-manager, or brought by the
// administrator.
func TestReferences(t *testing.T) {
	brought := map[string][]string{
		"join":          {"utr-s3"},
		"stranger":      {"utr-s3"},
		"load-balancer": {"lie-0", "lie-operator", "lie-csi-controller", "lie-csi-node"},
		"console":       {"weir-console-oidc"},
		"kms":           {"weir-gateway-tls", "weir-operator-tls", "weir-csi-controller-tls", "weir-csi-node-tls"},
	}
	for _, e := range examples(t) {
		t.Run(e.name, func(t *testing.T) {
			all := render(t, e.args...)
			there := map[string]bool{}
			for _, o := range all {
				there[kindAndName(o)] = true
			}
			for _, name := range slices.Concat(brought[e.name], made(t, all)) {
				there["Secret "+name] = true
			}
			used := map[string]bool{}
			for _, w := range workloads(all) {
				s := w.pod.Spec
				wanted := []string{}
				for _, v := range s.Volumes {
					switch {
					case v.Secret != nil && v.Secret.Optional != nil && *v.Secret.Optional:
					case v.Secret != nil:
						wanted = append(wanted, "Secret "+v.Secret.SecretName)
					case v.ConfigMap != nil && v.ConfigMap.Name == "kube-root-ca.crt": // Kubernetes makes it in each namespace
					case v.ConfigMap != nil:
						wanted = append(wanted, "ConfigMap "+v.ConfigMap.Name)
					case v.PersistentVolumeClaim != nil:
						wanted = append(wanted, "PersistentVolumeClaim "+v.PersistentVolumeClaim.ClaimName)
					}
				}
				if s.ServiceAccountName != "" {
					wanted = append(wanted, "ServiceAccount "+s.ServiceAccountName)
				} else if s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken {
					t.Errorf("%s has the token of the default ServiceAccount", w.name)
				}
				for _, c := range s.Containers {
					wanted = append(wanted, checkMounts(t, w, c)...)
				}
				for _, name := range wanted {
					used[name] = true
					if !there[name] {
						t.Errorf("%s refers to %s, which nobody makes", w.name, name)
					}
				}
			}
			for name := range there {
				kind, _, _ := strings.Cut(name, " ")
				if slices.Contains([]string{"ConfigMap", "ServiceAccount", "PersistentVolumeClaim", "Secret"}, kind) && !used[name] &&
					name != "Secret weir-authority" {
					t.Errorf("%s is used by nobody", name)
				}
			}
		})
	}
}

// checkMounts returns the Secrets of the environment.
func checkMounts(t *testing.T, w workload, c corev1.Container) (secrets []string) {
	t.Helper()
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(w.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("%s container %s mounts %s, which the pod does not have", w.name, c.Name, m.Name)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			secrets = append(secrets, "Secret "+e.ValueFrom.SecretKeyRef.Name)
		}
	}
	return secrets
}

// made are the Secrets that `weir setup` and cert-manager make.
func made(t *testing.T, all []runtime.Object) []string {
	t.Helper()
	var names []string
	for _, j := range of[batchv1.Job](all) {
		for _, a := range j.Spec.Template.Spec.Containers[0].Args {
			flag, value, _ := strings.Cut(a, "=")
			switch flag {
			case "--site-key", "--authority":
				names = append(names, value)
			case "--issue":
				parts := strings.Split(value, "=")
				if len(parts) != 2 && len(parts) != 3 {
					t.Errorf("%s: %q is not NAME=SECRET or NAME=SECRET=HOSTS", kindAndName(j), a)
					continue
				}
				names = append(names, parts[1])
			}
		}
	}
	for _, c := range of[certificate](all) {
		names = append(names, c.Spec.SecretName)
	}
	return names
}

// What selects pods selects some, and each kind of pod has a NetworkPolicy of its own.
func TestSelectors(t *testing.T) {
	for _, e := range examples(t) {
		t.Run(e.name, func(t *testing.T) {
			all := render(t, e.args...)
			pods := workloads(all)
			selectors := map[string]map[string]string{}
			for _, s := range of[corev1.Service](all) {
				selectors[kindAndName(s)] = s.Spec.Selector
				for _, p := range s.Spec.Ports {
					checkTarget(t, s, p, pods)
				}
			}
			for _, b := range of[policyv1.PodDisruptionBudget](all) {
				selectors[kindAndName(b)] = b.Spec.Selector.MatchLabels
			}
			policies := of[networkingv1.NetworkPolicy](all)
			for _, p := range policies {
				selectors[kindAndName(p)] = p.Spec.PodSelector.MatchLabels
				for _, peer := range peers(p) {
					if peer.PodSelector != nil {
						selectors["a peer of "+kindAndName(p)] = peer.PodSelector.MatchLabels
					}
				}
			}
			for name, selector := range selectors {
				if len(selector) == 0 || !selects(pods, selector) {
					t.Errorf("%s selects %v: there are no such pods", name, selector)
				}
			}
			if len(policies) == 0 {
				if e.name != "load-balancer" {
					t.Error("no NetworkPolicies")
				}
				return
			}
			for _, w := range pods {
				covered := slices.ContainsFunc(policies, func(p *networkingv1.NetworkPolicy) bool {
					return len(p.Spec.PolicyTypes) == 2 && selects([]workload{w}, p.Spec.PodSelector.MatchLabels)
				})
				if !covered && w.name != nodePlugin {
					t.Errorf("%s has no NetworkPolicy for both ways", w.name)
				}
			}
		})
	}
}

func peers(p *networkingv1.NetworkPolicy) []networkingv1.NetworkPolicyPeer {
	var all []networkingv1.NetworkPolicyPeer
	for _, r := range p.Spec.Ingress {
		all = append(all, r.From...)
	}
	for _, r := range p.Spec.Egress {
		all = append(all, r.To...)
	}
	return all
}

func checkTarget(t *testing.T, s *corev1.Service, p corev1.ServicePort, pods []workload) {
	t.Helper()
	for _, w := range pods {
		if !selects([]workload{w}, s.Spec.Selector) {
			continue
		}
		if !slices.ContainsFunc(w.pod.Spec.Containers, func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Ports, func(c corev1.ContainerPort) bool { return c.Name == p.TargetPort.StrVal })
		}) {
			t.Errorf("%s leads to port %q of %s, which has none of that name", kindAndName(s), p.TargetPort.StrVal, w.name)
		}
	}
}
