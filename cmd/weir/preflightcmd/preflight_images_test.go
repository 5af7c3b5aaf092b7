// SPDX-License-Identifier: Apache-2.0

package preflightcmd

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// waits is a pod of one container that waits; without a reason it runs.
func waits(name, node, image, reason, message string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "weir-system", Name: name},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: image}}}}
	s := corev1.ContainerStatus{Name: "c", Image: image}
	if reason != "" {
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{s}
	return p
}

func TestPreflightImages(t *testing.T) {
	const weir, etcd = "images.example.org/weir:0.1.0", "images.example.org/etcd:v3"
	for _, c := range []struct {
		name        string
		pods        []runtime.Object
		verdict     verdict
		check, says string
		mend        string
	}{
		{"nothing installed", nil, "", "images", "no pods", "helm install"},
		{"elsewhere", []runtime.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "p"}}}, "", "images",
			"no pods", "--namespace"},
		{"all well", []runtime.Object{waits("a", "n1", weir, "", ""), waits("b", "n1", etcd, "ContainerCreating", "")}, "", "images",
			"2 in namespace", ""},
		{"not there", []runtime.Object{waits("a", "n1", weir, "ErrImagePull",
			"rpc error: code = NotFound desc = failed to pull and unpack image: not found"), waits("b", "n1", etcd, "", "")},
			broken, "image " + weir, "on n1: ErrImagePull", "make images PUSH="},
		{"on two nodes, one backs off", []runtime.Object{waits("a", "n2", weir, "ImagePullBackOff", "Back-off pulling image"),
			waits("b", "n1", weir, "ErrImagePull", "dial tcp: lookup images.example.org: no such host")},
			broken, "image " + weir, "on n1, n2: ErrImagePull: dial tcp", "reach the registry"},
		{"no credentials", []runtime.Object{waits("a", "n1", weir, "ErrImagePull",
			"pull access denied, repository does not exist or may require authorization: authorization failed")},
			broken, "image " + weir, "access denied", "imagePullSecrets"},
		{"never", []runtime.Object{waits("a", "n1", weir, "ErrImageNeverPull", "")}, broken, "image " + weir, "ErrImageNeverPull",
			"imagePullPolicy"},
		{"bad name", []runtime.Object{waits("a", "n1", "a//b", "InvalidImageName", "couldn't parse")}, broken, "image a//b",
			"InvalidImageName", "correct imageRegistry"},
		{"who knows", []runtime.Object{waits("a", "", weir, "ErrImagePull", "something\nodd")}, broken, "image " + weir,
			"no node yet: ErrImagePull: something odd", "get events"},
	} {
		found := images(t.Context(), fake.NewClientset(c.pods...), "weir-system")
		if len(found) != 1 {
			t.Errorf("%s: %d findings, want one: %+v", c.name, len(found), found)
			continue
		}
		if f := found[0]; f.Verdict != c.verdict || f.Check != c.check || !strings.Contains(f.Found, c.says) ||
			!strings.Contains(f.Mend, c.mend) {
			t.Errorf("%s: %+v; want %s %s, %q and to do %q", c.name, f, c.verdict, c.check, c.says, c.mend)
		}
	}

	two := images(t.Context(), fake.NewClientset(waits("a", "n1", weir, "ErrImagePull", "not found"), waits("b", "n1", etcd,
		"ErrImagePull", "not found")), "weir-system")
	if len(two) != 2 || two[0].Check != "image "+etcd || two[1].Check != "image "+weir {
		t.Errorf("of two images: %+v, want both, in order", two)
	}

	cs := fake.NewClientset()
	cs.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no right") })
	if f := images(t.Context(), cs, "weir-system"); len(f) != 1 || f[0].Verdict != doubt || !strings.Contains(f[0].Mend,
		"may list the pods") {
		t.Errorf("without the right to list pods: %+v", f)
	}
}
