// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// EnforcePolicies makes the site's host node hold to the cluster's NetworkPolicies, until the node
// or ctx ends. It returns when the first rules are in force. Pods on the guest are not held to
// any.
//
// It looks at pods and policies each half second. A pod that it does not know yet may talk to
// nobody, so that no connection is older than the rules for it. A policy with a part that no chart
// of this project uses (a namespaceSelector, an endPort, a named port to send to) is an error.
// The source is the API reference of networking.k8s.io/v1.
func (s *Site) EnforcePolicies(ctx context.Context) error {
	last, err := s.enforce(ctx, "")
	if err != nil {
		return fmt.Errorf("enforce network policies at site %s: %w", s.Name(), err)
	}
	go func() {
		for s.HostNode() != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(500 * time.Millisecond):
			}
			rules, err := s.enforce(ctx, last)
			if err != nil && ctx.Err() == nil && s.HostNode() != nil {
				s.c.say("network policies at site %s stay as they are: %v", s.Name(), err)
				continue
			}
			last = rules
		}
	}()
	return nil
}

// enforce puts the rules into force, unless they are those that it put there last.
func (s *Site) enforce(ctx context.Context, last string) (string, error) {
	var pods corev1.PodList
	var policies networkingv1.NetworkPolicyList
	// Pods come second: a pod that was made under a policy is never seen without it.
	if err := s.api.get(ctx, "/apis/networking.k8s.io/v1/networkpolicies", &policies); err != nil {
		return last, err
	}
	if err := s.api.get(ctx, "/api/v1/pods", &pods); err != nil {
		return last, err
	}
	rules, err := firewall(pods.Items, policies.Items, netip.MustParsePrefix(s.nodePods(1)))
	if err != nil || rules == last {
		return last, err
	}
	host := s.HostNode()
	if host == nil {
		return last, fmt.Errorf("the node has ended")
	}
	if out, err := host.Output(ctx, "nft -f - <<'EOF'\n"+rules+"EOF\n"); err != nil {
		return last, fmt.Errorf("%w: %s", err, out)
	}
	return rules, nil
}

// firewall translates policies into rules of nftables for the pods of one node, whose addresses are
// in own. The node itself may talk to its pods, as the kubelet must.
func firewall(pods []corev1.Pod, policies []networkingv1.NetworkPolicy, own netip.Prefix) (string, error) {
	known := []string{own.Masked().Addr().Next().String()} // the bridge
	var chains, jumps strings.Builder
	var here []corev1.Pod
	for _, p := range pods {
		if a, err := netip.ParseAddr(p.Status.PodIP); err == nil && own.Contains(a) && isInPodNetwork(&p) {
			here, known = append(here, p), append(known, a.String())
		}
	}
	slices.SortFunc(here, func(a, b corev1.Pod) int { return strings.Compare(a.Status.PodIP, b.Status.PodIP) })
	for i, p := range here {
		for _, way := range []networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress} {
			rules, selected, err := allowed(&p, way, pods, policies)
			if err != nil {
				return "", err
			}
			if !selected {
				continue
			}
			chain, side := fmt.Sprintf("%s%d", strings.ToLower(string(way)), i), "saddr"
			if way == networkingv1.PolicyTypeIngress {
				side = "daddr"
			}
			fmt.Fprintf(&chains, "  chain %s {\n%s    drop\n  }\n", chain, rules)
			fmt.Fprintf(&jumps, "    ip %s %s jump %s\n", side, p.Status.PodIP, chain)
		}
	}
	slices.Sort(known)
	unknown := fmt.Sprintf("ip %%s %s ip %%[1]s != { %s } drop\n", own, strings.Join(known, ", "))
	check := "    ct state established,related accept\n" +
		"    " + fmt.Sprintf(unknown, "saddr") + "    " + fmt.Sprintf(unknown, "daddr") + jumps.String()
	// What a pod sends to its own node is filtered too: there are the API server and node ports.
	return "table ip e2e-policies\ndelete table ip e2e-policies\ntable ip e2e-policies {\n" + chains.String() +
		"  chain forward {\n    type filter hook forward priority filter\n" + check + "  }\n" +
		"  chain input {\n    type filter hook input priority filter\n" + check + "  }\n}\n", nil
}

// isInPodNetwork says whether a pod has an address of its own.
func isInPodNetwork(p *corev1.Pod) bool {
	return !p.Spec.HostNetwork && p.Status.PodIP != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// allowed are the rules that let through what a pod may receive or send. selected says whether any
// policy restricts that.
func allowed(p *corev1.Pod, way networkingv1.PolicyType, pods []corev1.Pod, policies []networkingv1.NetworkPolicy) (
	rules string, selected bool, err error) {
	var text strings.Builder
	for _, policy := range policies {
		picks, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		if err != nil {
			return "", false, err
		}
		if policy.Namespace != p.Namespace || !picks.Matches(labels.Set(p.Labels)) || !slices.Contains(policy.Spec.PolicyTypes, way) {
			continue
		}
		selected = true
		var all []string
		if way == networkingv1.PolicyTypeIngress {
			for _, r := range policy.Spec.Ingress {
				if all, err = matches(all, p, "saddr", r.From, r.Ports, policy.Namespace, pods); err != nil {
					return "", false, fmt.Errorf("NetworkPolicy %s: ingress: %w", policy.Name, err)
				}
			}
		} else {
			for _, r := range policy.Spec.Egress {
				if all, err = matches(all, nil, "daddr", r.To, r.Ports, policy.Namespace, pods); err != nil {
					return "", false, fmt.Errorf("NetworkPolicy %s: egress: %w", policy.Name, err)
				}
			}
		}
		for _, m := range all {
			fmt.Fprintf(&text, "    %sreturn\n", m)
		}
	}
	return text.String(), selected, nil
}

// matches appends the matches of one rule: each of its peers with each of its ports. A pod is
// given where ports may have the names of its containers' ports.
func matches(all []string, p *corev1.Pod, side string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort,
	namespace string, pods []corev1.Pod) ([]string, error) {
	from, to := []string{""}, []string{""}
	if len(peers) > 0 {
		from = nil
		for _, peer := range peers {
			m, err := peerMatch(peer, side, namespace, pods)
			if err != nil {
				return nil, err
			}
			if m != "" {
				from = append(from, m)
			}
		}
	}
	if len(ports) > 0 {
		to = nil
		for _, port := range ports {
			m, err := portMatch(port, p)
			if err != nil {
				return nil, err
			}
			if m != "" {
				to = append(to, m)
			}
		}
	}
	for _, f := range from {
		for _, t := range to {
			all = append(all, f+t)
		}
	}
	return all, nil
}

// peerMatch is empty if nobody is such a peer.
func peerMatch(peer networkingv1.NetworkPolicyPeer, side, namespace string, pods []corev1.Pod) (string, error) {
	switch {
	case peer.NamespaceSelector != nil:
		return "", fmt.Errorf("a namespaceSelector is not supported here")
	case peer.IPBlock != nil && len(peer.IPBlock.Except) > 0:
		return fmt.Sprintf("ip %s %s ip %s != { %s } ", side, peer.IPBlock.CIDR, side, strings.Join(peer.IPBlock.Except, ", ")), nil
	case peer.IPBlock != nil:
		return fmt.Sprintf("ip %s %s ", side, peer.IPBlock.CIDR), nil
	}
	picks, err := metav1.LabelSelectorAsSelector(peer.PodSelector)
	if err != nil {
		return "", err
	}
	var addresses []string
	for _, p := range pods {
		if p.Namespace == namespace && isInPodNetwork(&p) && picks.Matches(labels.Set(p.Labels)) {
			addresses = append(addresses, p.Status.PodIP)
		}
	}
	if len(addresses) == 0 {
		return "", nil
	}
	slices.Sort(addresses)
	return fmt.Sprintf("ip %s { %s } ", side, strings.Join(addresses, ", ")), nil
}

// portMatch is empty if the pod has no port of that name.
func portMatch(port networkingv1.NetworkPolicyPort, p *corev1.Pod) (string, error) {
	protocol := "tcp"
	if port.Protocol != nil {
		protocol = strings.ToLower(string(*port.Protocol))
	}
	if port.EndPort != nil {
		return "", fmt.Errorf("an endPort is not supported here")
	}
	if port.Port == nil {
		return "meta l4proto " + protocol + " ", nil
	}
	number := port.Port.IntValue()
	if name := port.Port.StrVal; name != "" {
		if p == nil {
			return "", fmt.Errorf("port %q has a name: that is not supported here", name)
		}
		for _, c := range p.Spec.Containers {
			for _, have := range c.Ports {
				if have.Name == name {
					number = int(have.ContainerPort)
				}
			}
		}
		if number == 0 {
			return "", nil
		}
	}
	return protocol + " dport " + strconv.Itoa(number) + " ", nil
}
