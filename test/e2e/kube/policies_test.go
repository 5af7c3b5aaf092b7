// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

func manifest[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestFirewall(t *testing.T) {
	pods := manifest[corev1.PodList](t, `
items:
- metadata: {name: server, namespace: team, labels: {app: server}}
  spec: {containers: [{name: c, ports: [{name: web, containerPort: 8080}]}]}
  status: {podIP: 10.0.1.5}
- metadata: {name: client, namespace: team, labels: {app: client}}
  status: {podIP: 10.0.1.3}
- {metadata: {name: elsewhere, namespace: other, labels: {app: client}}, status: {podIP: 10.0.1.4}}
- {metadata: {name: on-another-node, namespace: team, labels: {app: client}}, status: {podIP: 10.0.2.3}}
- {metadata: {name: done, namespace: team, labels: {app: client}}, status: {podIP: 10.0.1.9, phase: Succeeded}}
- {metadata: {name: on-the-host, namespace: team, labels: {app: server}}, spec: {hostNetwork: true}, status: {podIP: 10.0.1.5}}
`)
	for name, test := range map[string]struct{ spec, want, err string }{
		"nobody is selected": {`{podSelector: {matchLabels: {app: none}}, policyTypes: [Ingress]}`, ``, ``},
		"nothing is allowed": {`{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress]}`, `
  chain ingress2 {
    drop
  }
ip daddr 10.0.1.5 jump ingress2
`, ``},
		"from pods to a named port, and from networks": {`
podSelector: {matchLabels: {app: server}}
policyTypes: [Ingress]
ingress:
- {from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: web, protocol: TCP}]}
- {from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.9/32]}}, {ipBlock: {cidr: 198.51.100.0/24}}]}
`, `
  chain ingress2 {
    ip saddr { 10.0.1.3, 10.0.2.3 } tcp dport 8080 return
    ip saddr 192.0.2.0/24 ip saddr != { 192.0.2.9/32 } return
    ip saddr 198.51.100.0/24 return
    drop
  }
ip daddr 10.0.1.5 jump ingress2
`, ``},
		"from nobody who is there": {`
podSelector: {matchLabels: {app: server}}
policyTypes: [Ingress]
ingress: [{from: [{podSelector: {matchLabels: {app: none}}}]}]
`, `
  chain ingress2 {
    drop
  }
ip daddr 10.0.1.5 jump ingress2
`, ``},
		"all of a namespace's pods may send to two ports": {`
podSelector: {}
policyTypes: [Egress]
egress: [{ports: [{port: 53, protocol: UDP}, {port: 53}]}]
`, `
  chain egress0 {
    udp dport 53 return
    tcp dport 53 return
    drop
  }
  chain egress2 {
    udp dport 53 return
    tcp dport 53 return
    drop
  }
ip saddr 10.0.1.3 jump egress0
ip saddr 10.0.1.5 jump egress2
`, ``},
		"a namespace's pods": {`{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {}}]}]}`, ``,
			`NetworkPolicy p: ingress: a namespaceSelector is not supported here`},
		"many ports": {`{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 1, endPort: 9}]}]}`, ``,
			`NetworkPolicy p: egress: an endPort is not supported here`},
		"a name of whose port": {`{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: web}]}]}`, ``,
			`NetworkPolicy p: egress: port "web" has a name: that is not supported here`},
	} {
		t.Run(name, func(t *testing.T) {
			policy := networkingv1.NetworkPolicy{Spec: manifest[networkingv1.NetworkPolicySpec](t, test.spec)}
			policy.Name, policy.Namespace = "p", "team"
			got, err := firewall(pods.Items, []networkingv1.NetworkPolicy{policy}, netip.MustParsePrefix("10.0.1.0/24"))
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Errorf("firewall = %v, want the error %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkRules(t, got, test.want)
		})
	}
}

// checkRules compares what depends on the policy, and checks that the rest is there.
func checkRules(t *testing.T, got, want string) {
	t.Helper()
	const (
		top = "table ip e2e-policies\ndelete table ip e2e-policies\ntable ip e2e-policies {\n"
		all = `    ct state established,related accept
    ip saddr 10.0.1.0/24 ip saddr != { 10.0.1.1, 10.0.1.3, 10.0.1.4, 10.0.1.5 } drop
    ip daddr 10.0.1.0/24 ip daddr != { 10.0.1.1, 10.0.1.3, 10.0.1.4, 10.0.1.5 } drop
`
	)
	var chains, jumps string
	for line := range strings.Lines(strings.TrimPrefix(want, "\n")) {
		if strings.HasPrefix(line, "ip ") {
			jumps += "    " + line
		} else {
			chains += line
		}
	}
	text := top + chains
	for _, hook := range []string{"forward", "input"} {
		text += "  chain " + hook + " {\n    type filter hook " + hook + " priority filter\n" + all + jumps + "  }\n"
	}
	if text += "}\n"; got != text {
		t.Errorf("firewall =\n%s\nwant\n%s", got, text)
	}
}
