// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// far is the other end of a connection: an address outside of the cluster, or a pod.
type far struct {
	what string
	addr netip.Addr        // outside
	pod  map[string]string // labels of the pod
	port int
	udp  bool
}

// allows reports whether a rule lets a connection pass. named are the ports of the pod that it
// leads to.
func allows(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, f far, named map[string]int) bool {
	protocol := corev1.ProtocolTCP
	if f.udp {
		protocol = corev1.ProtocolUDP
	}
	port := len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		n := p.Port.IntValue()
		if p.Port.StrVal != "" {
			n = named[p.Port.StrVal]
		}
		return n == f.port && (p.Protocol == nil && !f.udp || p.Protocol != nil && *p.Protocol == protocol)
	})
	peer := len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		switch {
		case p.PodSelector != nil:
			return f.pod != nil && labels.SelectorFromSet(p.PodSelector.MatchLabels).Matches(labels.Set(f.pod))
		case p.IPBlock != nil:
			return f.addr.IsValid() && netip.MustParsePrefix(p.IPBlock.CIDR).Contains(f.addr)
		}
		return false
	})
	return port && peer
}

// ofPod are the policies that bind a pod.
func ofPod(all []runtime.Object, w workload) (some []*networkingv1.NetworkPolicy) {
	for _, p := range of[networkingv1.NetworkPolicy](all) {
		if selects([]workload{w}, p.Spec.PodSelector.MatchLabels) {
			some = append(some, p)
		}
	}
	return some
}

func out(policies []*networkingv1.NetworkPolicy, f far) bool {
	return slices.ContainsFunc(policies, func(p *networkingv1.NetworkPolicy) bool {
		return slices.ContainsFunc(p.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
			return allows(r.To, r.Ports, f, nil)
		})
	})
}

func into(policies []*networkingv1.NetworkPolicy, f far, named map[string]int) bool {
	return slices.ContainsFunc(policies, func(p *networkingv1.NetworkPolicy) bool {
		return slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
			return allows(r.From, r.Ports, f, named)
		})
	})
}

// flows are whom each kind of pod has to reach, as its configuration says.
func flows(t *testing.T, e example, all []runtime.Object) map[string][]far {
	t.Helper()
	v := settings(t, e)
	find := func(name string) workload {
		i := slices.IndexFunc(workloads(all), func(w workload) bool { return w.name == name })
		if i < 0 {
			t.Fatalf("%s: there is no %s", e.name, name)
		}
		return workloads(all)[i]
	}
	gateway := find("StatefulSet weir-gateway")
	var registry []far
	for _, u := range v.Registry.Endpoints {
		registry = append(registry, place(t, "registry "+u, u))
	}
	if v.Bundled.Registry.Enabled {
		registry = append(registry, far{what: "bundled registry", pod: find("StatefulSet weir-registry").pod.Labels, port: 2379})
	}
	dns := []far{{what: "DNS", port: 53}, {what: "DNS", port: 53, udp: true}}
	apis := far{what: "API server", port: 6443, addr: netip.MustParseAddr("203.0.113.5")}
	// Another site's values may be the chart's own defaults, whatever this site's are.
	host := far{what: "other site's gateway on its host", port: 7001, addr: netip.MustParseAddr("198.51.100.20")}
	node := far{what: "other site's gateway at a node port", port: 30701, addr: netip.MustParseAddr("198.51.100.20")}
	// At the Service's address, which is translated to the pod's, and at the one that it
	// registered.
	mine := []far{{what: "gateway", pod: gateway.pod.Labels, port: ports(gateway)["grpc"]}}
	if advertised := flag(gateway, "--advertise-grpc"); !strings.HasPrefix(advertised, "$(WEIR_GATEWAY") {
		mine = append(mine, place(t, "gateway at "+advertised, "https://"+advertised))
	}
	if gateway.pod.Spec.HostNetwork { // then the pod's address is the node's
		mine = mine[1:]
	}
	store := []far{}
	if v.Store.Endpoint != "" {
		store = append(store, place(t, "store", v.Store.Endpoint))
	}
	if v.Bundled.Store.Enabled {
		store = append(store, far{what: "bundled store", pod: find("StatefulSet weir-store").pod.Labels, port: 7070})
	}
	return map[string][]far{
		"StatefulSet weir-gateway":            slices.Concat(registry, dns, store, []far{apis, host, node}), // who may read metrics
		"Deployment weir-operator":            slices.Concat(registry, dns, mine, []far{apis, host, node}),
		"Deployment weir-csi-controller":      slices.Concat(registry, dns, mine, []far{apis}),
		"Deployment weir-console":             {apis},
		"Deployment weir-snapshot-controller": {apis},
	}
}

// chartValues are the values that say who is reached where.
type chartValues struct {
	Registry struct{ Endpoints []string }
	Store    struct{ Endpoint string }
	Bundled  struct{ Registry, Store struct{ Enabled bool } }
}

func settings(t *testing.T, e example) (v chartValues) {
	t.Helper()
	stdout, stderr, err := run(t, append([]string{"install", "weir", "weir", "--dry-run=client", "-o", "json"}, e.args...)...)
	if err != nil {
		t.Fatalf("helm install: %v: %s", err, stderr)
	}
	var release struct{ Config chartValues }
	if err := yaml.Unmarshal([]byte(stdout), &release); err != nil {
		t.Fatal(err)
	}
	return release.Config
}

func place(t *testing.T, what, at string) far {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	port := map[string]int{"http": 80, "https": 443}[u.Scheme]
	if u.Port() != "" {
		if port, err = strconv.Atoi(u.Port()); err != nil {
			t.Fatal(err)
		}
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil { // a name: of the networks that these examples give
		addr = netip.MustParseAddr("203.0.113.30")
	}
	return far{what: what, addr: addr, port: port}
}

func flag(w workload, name string) string {
	for _, a := range w.pod.Spec.Containers[0].Args {
		if v, ok := strings.CutPrefix(a, name+"="); ok {
			return v
		}
	}
	return ""
}

func ports(w workload) map[string]int {
	named := map[string]int{}
	for _, c := range w.pod.Spec.Containers {
		for _, p := range c.Ports {
			named[p.Name] = int(p.ContainerPort)
		}
	}
	return named
}

// NetworkPolicies let each pod reach what it needs for a first volume to be made, and nothing else.
func TestPoliciesAllowWhatIsNeeded(t *testing.T) {
	stranger := false
	for _, e := range examples(t) {
		all := render(t, e.args...)
		if len(of[networkingv1.NetworkPolicy](all)) == 0 {
			continue
		}
		stranger = stranger || e.name == "stranger"
		needed := flows(t, e, all)
		for _, w := range workloads(all) {
			policies := ofPod(all, w)
			for _, f := range needed[w.name] {
				if !out(policies, f) {
					t.Errorf("%s: %s does not reach %s at %v port %d", e.name, w.name, f.what, f.addr, f.port)
				}
			}
			if strings.HasPrefix(w.name, "Job weir-setup") && !out(policies, far{port: 6443, addr: netip.MustParseAddr("203.0.113.5")}) {
				t.Errorf("%s: %s does not reach the API server", e.name, w.name)
			}
			if w.name == "StatefulSet weir-gateway" {
				named := ports(w)
				for what, f := range map[string]far{
					"a node mounts":           {port: named["nfs"], addr: netip.MustParseAddr("203.0.113.7")},
					"a node asks":             {port: named["grpc"], addr: netip.MustParseAddr("203.0.113.7")},
					"another site replicates": {port: named["grpc"], addr: netip.MustParseAddr("198.51.100.20")},
				} {
					if !into(policies, f, named) {
						t.Errorf("%s: the gateway does not let in: %s, at port %d", e.name, what, f.port)
					}
				}
			}
			for _, f := range []far{
				{what: "a web server", port: 80, addr: netip.MustParseAddr("192.88.99.1")},
				{what: "SSH", port: 22, addr: netip.MustParseAddr("203.0.113.7")},
			} {
				if w.name != nodePlugin && out(policies, f) {
					t.Errorf("%s: %s reaches %s", e.name, w.name, f.what)
				}
			}
		}
	}
	if !stranger {
		t.Error("the values of a stranger have no NetworkPolicies")
	}
}

// With every network named, what is elsewhere is not reached, and mounts nothing.
func TestPoliciesOfAStranger(t *testing.T) {
	all := render(t, "-f", "weir/ci/stranger-values.yaml", "-f", certificates(t))
	elsewhere := netip.MustParseAddr("192.88.99.1")
	for _, w := range workloads(all) {
		policies := ofPod(all, w)
		for _, port := range []int{443, 2379, 6443, 9000} {
			if w.name != nodePlugin && out(policies, far{addr: elsewhere, port: port}) {
				t.Errorf("%s reaches %v port %d", w.name, elsewhere, port)
			}
		}
		if w.name != nodePlugin && w.pod.Spec.HostNetwork {
			t.Errorf("%s is on the host's network", w.name)
		}
		if named := ports(w); w.name == "StatefulSet weir-gateway" && into(policies, far{addr: elsewhere, port: named["nfs"]}, named) {
			t.Errorf("%v mounts", elsewhere)
		}
	}
	for _, name := range images(all) {
		if !strings.HasPrefix(name, "images.example.org/storage/mirror/") {
			t.Errorf("image %s is not under the prefix", name)
		}
	}
}
