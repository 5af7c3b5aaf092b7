// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// monitored are the workloads that show metrics.
var monitored = map[string]string{"StatefulSet weir-gateway": "gateway", "Deployment weir-operator": "operator",
	"Deployment weir-csi-controller": "csi-controller", nodePlugin: "csi-node"}

// Every component shows metrics at a port with a Service, a ServiceMonitor finds that, and its
// certificate has the name by which Prometheus knows it. NetworkPolicies let Prometheus in.
func TestMetrics(t *testing.T) {
	for _, e := range examples(t) {
		t.Run(e.name, func(t *testing.T) {
			all := render(t, append(slices.Clone(e.args), "--set", "metrics.serviceMonitors.create=true",
				"--set", "metrics.serviceMonitors.labels.release=prometheus", "--set", "metrics.readers[0].namespace=monitoring",
				"--set", "metrics.readers[0].name=prometheus",
				"--set", "networkPolicies.metricsFrom[0].podSelector.matchLabels.app=prometheus")...)
			monitors := map[string]*serviceMonitor{}
			for _, m := range of[serviceMonitor](all) {
				monitors[strings.TrimPrefix(m.Name, "weir-")] = m
			}
			if len(monitors) != len(monitored) {
				t.Errorf("%d ServiceMonitors, want %d", len(monitors), len(monitored))
			}
			prometheus := far{pod: map[string]string{"app": "prometheus"}}
			for _, w := range workloads(all) {
				component, ok := monitored[w.name]
				if !ok {
					continue
				}
				port, ok := ports(w)["metrics"]
				if !ok {
					t.Errorf("%s has no port for metrics", w.name)
					continue
				}
				var service *corev1.Service
				for _, s := range of[corev1.Service](all) {
					if s.Name == "weir-"+component+"-metrics" {
						service = s
					}
				}
				if service == nil || !selects([]workload{w}, service.Spec.Selector) ||
					service.Spec.Ports[0].TargetPort.StrVal != "metrics" {
					t.Errorf("%s: its Service is %+v", w.name, service)
					continue
				}
				m := monitors[component]
				if m == nil || m.GetLabels()["release"] != "prometheus" {
					t.Errorf("%s: its ServiceMonitor is %+v", w.name, m)
					continue
				}
				for k, v := range m.Spec.Selector.MatchLabels {
					if service.Labels[k] != v {
						t.Errorf("%s: its ServiceMonitor selects %s=%s, its Service has %q", w.name, k, v, service.Labels[k])
					}
				}
				end := m.Spec.Endpoints[0]
				name := end.TLSConfig.ServerName
				if end.Port != "metrics" || end.Scheme != "https" || name != "weir-"+component+"-metrics."+namespace+".svc" ||
					end.TLSConfig.CA.Secret.Name != secretOf(w) {
					t.Errorf("%s: Prometheus asks %+v", w.name, end)
				}
				if !issuedFor(all, name) {
					t.Errorf("%s: no certificate is issued for %s", w.name, name)
				}
				policies := ofPod(all, w)
				prometheus.port = port
				if len(of[networkingv1.NetworkPolicy](all)) > 0 && w.name != nodePlugin && !into(policies, prometheus, ports(w)) {
					t.Errorf("%s: its NetworkPolicy does not let Prometheus in", w.name)
				}
				apiServer := far{port: 6443, addr: place(t, "API server", "https://203.0.113.5:6443").addr}
				if len(policies) > 0 && !out(policies, apiServer) {
					t.Errorf("%s cannot ask the cluster who reads", w.name)
				}
			}
		})
	}
	none := render(t, append(slices.Clone(examples(t)[0].args), "--set", "metrics.enabled=false")...)
	for _, w := range workloads(none) {
		if _, ok := ports(w)["metrics"]; ok || strings.Contains(strings.Join(w.pod.Spec.Containers[0].Args, " "), "--metrics") {
			t.Errorf("%s shows metrics although that is off", w.name)
		}
	}
}

// secretOf is the Secret with a workload's certificate.
func secretOf(w workload) string {
	for _, v := range w.pod.Spec.Volumes {
		if v.Name == "tls" {
			return v.Secret.SecretName
		}
	}
	return ""
}

// issuedFor reports whether a certificate is issued for a host, or the user provides all.
func issuedFor(all []runtime.Object, host string) bool {
	asked := ""
	for _, j := range of[batchv1.Job](all) {
		asked += strings.Join(j.Spec.Template.Spec.Containers[0].Args, " ")
	}
	certificates := of[certificate](all)
	for _, c := range certificates {
		asked += " " + strings.Join(c.Spec.DNSNames, " ")
	}
	return strings.Contains(asked, host) || len(certificates) == 0 && !strings.Contains(asked, "--issue=")
}

var monitoring = schema.GroupVersion{Group: "monitoring.coreos.com", Version: "v1"}

// serviceMonitor is the part of a ServiceMonitor of the Prometheus operator that the chart uses.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		NamespaceSelector struct {
			MatchNames []string `json:"matchNames"`
		} `json:"namespaceSelector"`
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port            string `json:"port"`
			Scheme          string `json:"scheme"`
			Path            string `json:"path"`
			Interval        string `json:"interval"`
			BearerTokenFile string `json:"bearerTokenFile"`
			TLSConfig       struct {
				ServerName string `json:"serverName"`
				CA         struct {
					Secret struct {
						Name string `json:"name"`
						Key  string `json:"key"`
					} `json:"secret"`
				} `json:"ca"`
			} `json:"tlsConfig"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// DeepCopyObject implements runtime.Object. Nobody changes these.
func (m *serviceMonitor) DeepCopyObject() runtime.Object { return m }

// prometheusRule is a PrometheusRule of the Prometheus operator.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              rules `json:"spec"`
}

// DeepCopyObject implements runtime.Object. Nobody changes these.
func (r *prometheusRule) DeepCopyObject() runtime.Object { return r }
