// SPDX-License-Identifier: Apache-2.0

package preflightcmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// defaultNamespace is where the documentation has Weir installed.
const defaultNamespace = "weir-system"

// notPulled are the kubelet's reasons for a container that waits for its image.
var notPulled = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
	"RegistryUnavailable", "SignatureValidationFailed"}

// pull is what was seen of one image that cannot be pulled.
type pull struct {
	reason, message string
	nodes           []string
}

// images reports which images of the namespace's pods cannot be pulled: each with the nodes that
// tried, why, and what to do.
func images(ctx context.Context, cs kubernetes.Interface, namespace string) []finding {
	f := finding{Check: "images"}
	list, err := cs.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		f.Verdict, f.Found, f.Mend = doubt, err.Error(),
			"to have images checked, give a kubeconfig whose user may list the pods of namespace "+namespace
		return []finding{f}
	}
	all, failed := map[string]bool{}, map[string]*pull{}
	for i := range list.Items {
		pod := &list.Items[i]
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			all[c.Image] = true
			if w := waitingFor(pod, c.Name); w != nil {
				p := failed[c.Image]
				if p == nil {
					p = &pull{}
					failed[c.Image] = p
				}
				p.add(cmp.Or(pod.Spec.NodeName, "no node yet"), w)
			}
		}
	}
	switch {
	case len(all) == 0:
		f.Found = "no pods are in namespace " + namespace + " yet"
		f.Mend = "run `weir preflight` again after `helm install`, with --namespace if it is another"
		return []finding{f}
	case len(failed) == 0:
		f.Found = fmt.Sprintf("%d in namespace %s, none of which waits to be pulled", len(all), namespace)
		return []finding{f}
	}
	var found []finding
	for image, p := range failed {
		why := p.reason
		if p.message != "" {
			why += ": " + p.message
		}
		found = append(found, finding{Check: "image " + image, Verdict: broken, Mend: p.mend(image, namespace),
			Found: fmt.Sprintf("cannot be pulled on %s: %s", strings.Join(p.nodes, ", "), why)})
	}
	slices.SortFunc(found, func(a, b finding) int { return cmp.Compare(a.Check, b.Check) })
	return found
}

// waitingFor returns how a container waits for its image; nil: it does not.
func waitingFor(pod *corev1.Pod, container string) *corev1.ContainerStateWaiting {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; s.Name == container && w != nil && slices.Contains(notPulled, w.Reason) {
			return w
		}
	}
	return nil
}

// add records why one container waits. A back-off says less than the failed attempt before it, so
// it never replaces that.
func (p *pull) add(node string, w *corev1.ContainerStateWaiting) {
	if p.reason == "" || p.reason == "ImagePullBackOff" && w.Reason != p.reason {
		p.reason, p.message = w.Reason, strings.Join(strings.Fields(w.Message), " ")
	}
	if !slices.Contains(p.nodes, node) {
		p.nodes = append(p.nodes, node)
		slices.Sort(p.nodes)
	}
}

// mend is what to do, by what registries and container runtimes write.
func (p *pull) mend(image, namespace string) string {
	said := strings.ToLower(p.reason + " " + p.message)
	says := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(said, w) })
	}
	switch {
	case p.reason == "ErrImageNeverPull":
		return "with imagePullPolicy=Never an image has to be on the node: load it there, or set imagePullPolicy=IfNotPresent"
	case p.reason == "InvalidImageName":
		return "correct imageRegistry, or the image's registry, repository, tag or digest, in the chart's values"
	case says("unauthorized", "authorization failed", "denied", "forbidden", "authentication required"):
		return "name a Secret of namespace " + namespace + " with the registry's credentials in imagePullSecrets, and see that they " +
			"may pull " + image
	case says("not found", "manifest unknown", "name unknown", "does not exist"):
		return "push it there (`make images PUSH=...` pushes Weir's), or correct imageRegistry, or the image's registry, repository, " +
			"tag or digest, in the chart's values"
	case says("no such host", "dial tcp", "timeout", "connection refused", "no route", "unreachable", "x509", "tls:",
		"http response to https"):
		return "see that these nodes reach the registry, know its name and trust its certificate; or set imageRegistry to one that " +
			"they reach"
	case says("no match for platform", "exec format"):
		return "push the image for the nodes' architecture too"
	}
	return "`kubectl -n " + namespace + " get events` has more; see that these nodes can pull " + image
}
