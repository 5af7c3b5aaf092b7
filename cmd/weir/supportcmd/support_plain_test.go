// SPDX-License-Identifier: Apache-2.0

package supportcmd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"path"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
)

// TestOnlyWhatIsWeirs: a bundle has nothing of other drivers and of other workloads of the
// namespace, and no value that may be a secret.
func TestOnlyWhatIsWeirs(t *testing.T) {
	const secret = "hunter2"
	applied := map[string]string{corev1.LastAppliedConfigAnnotation: secret, "vault.example.org/token": secret,
		v1alpha1.VolumeLabel: "kept-note", "kubernetes.io/what": "kept-too"}
	at := func(name string, ours bool) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Name: name, Annotations: applied, Labels: map[string]string{"app.kubernetes.io/name": "weir"}}
		if !ours {
			m.Labels, m.Annotations = map[string]string{"app": secret}, map[string]string{"kubernetes.io/x": secret}
		}
		return m
	}
	in := func(m metav1.ObjectMeta) metav1.ObjectMeta {
		m.Namespace = "weir-system"
		return m
	}
	env := []corev1.EnvVar{{Name: "KEPT_NAME", Value: secret}, {Name: "KEPT_FROM", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "kept-ref"}, Key: "k"}}}}
	late := corev1.EphemeralContainerCommon{Name: "e", Env: env[:1]}
	pod := corev1.PodSpec{InitContainers: []corev1.Container{{Name: "i", Env: env[:1]}},
		Containers:          []corev1.Container{{Name: "c", Env: env}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: late}}}
	template := corev1.PodTemplateSpec{ObjectMeta: at("", true), Spec: pod}
	source := func(driver string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "h",
			VolumeAttributes: map[string]string{"of": driver}}}
	}
	foreign := corev1.PersistentVolume{ObjectMeta: at("foreign", false), Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: source("cifs." + secret), MountOptions: []string{"password=" + secret}}}
	old := corev1.PersistentVolume{ObjectMeta: at("nfs", false), Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: secret}}}}
	objectsThere := []client.Object{
		&foreign, &old,
		&corev1.PersistentVolume{ObjectMeta: at("pv-ours", true), Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: source(v1alpha1.Driver)}},
		&storagev1.StorageClass{ObjectMeta: at("foreign", false), Provisioner: "rbd", Parameters: map[string]string{"restuserkey": secret}},
		&storagev1.StorageClass{ObjectMeta: at("class-ours", true), Provisioner: v1alpha1.Driver},
		&storagev1.VolumeAttachment{ObjectMeta: at("foreign", false), Spec: storagev1.VolumeAttachmentSpec{Attacher: secret}},
		&storagev1.VolumeAttachment{ObjectMeta: at("va-ours", true), Spec: storagev1.VolumeAttachmentSpec{Attacher: v1alpha1.Driver}},
		&storagev1.CSINode{ObjectMeta: at("n", true), Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: v1alpha1.Driver, NodeID: "n"}, {Name: secret, NodeID: secret}}}},
		&corev1.Node{ObjectMeta: at("node-kept", true), Status: corev1.NodeStatus{
			Images:       []corev1.ContainerImage{{Names: []string{secret}}},
			VolumesInUse: []corev1.UniqueVolumeName{secret, "kubernetes.io/csi/" + v1alpha1.Driver + "^kept"}}},
		&appsv1.Deployment{ObjectMeta: in(at("weir-operator", true)), Spec: appsv1.DeploymentSpec{Template: template}},
		&appsv1.Deployment{ObjectMeta: in(at("foreign", false))},
		&appsv1.StatefulSet{ObjectMeta: in(at("weir-gateway", true)), Spec: appsv1.StatefulSetSpec{Template: template}},
		&appsv1.DaemonSet{ObjectMeta: in(at("weir-csi-node", true)), Spec: appsv1.DaemonSetSpec{Template: template}},
		&corev1.Pod{ObjectMeta: in(at("weir-gateway-0", true)), Spec: pod},
		&corev1.Pod{ObjectMeta: in(at("foreign", false)), Spec: pod},
		&corev1.Event{ObjectMeta: in(metav1.ObjectMeta{Name: "e1"}), Message: "kept-event",
			InvolvedObject: corev1.ObjectReference{Name: "weir-gateway-0"}},
		&corev1.Event{ObjectMeta: in(metav1.ObjectMeta{Name: "e2"}), Message: secret,
			InvolvedObject: corev1.ObjectReference{Name: "foreign"}},
		&corev1.Secret{ObjectMeta: in(at("s", true)), StringData: map[string]string{"k": secret}},
	}
	c := fake.NewClientBuilder().WithScheme(process.Scheme()).WithObjects(objectsThere...).Build()
	var out bytes.Buffer
	b := newBundle(&out, "bundle", func() time.Time { return time.Unix(0, 0) })
	pods := objects(t.Context(), b, c, "weir-system")
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	if len(pods) != 1 || pods[0].Name != "weir-gateway-0" {
		t.Errorf("logs are taken of %d pods", len(pods))
	}
	z, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		text, rerr := io.ReadAll(r)
		if err := errors.Join(err, rerr); err != nil {
			t.Fatal(err)
		}
		all[path.Base(h.Name)] = string(text)
		for _, no := range []string{secret, "foreign"} {
			if strings.Contains(string(text), no) {
				t.Errorf("%s has %q:\n%s", h.Name, no, text)
			}
		}
	}
	for name, wants := range map[string][]string{
		"persistentvolumes.yaml": {"pv-ours", "kept-note", "kept-too"}, "storageclasses.yaml": {"class-ours"},
		"volumeattachments.yaml": {"va-ours"}, "csinodes.yaml": {v1alpha1.Driver}, "nodes.yaml": {"node-kept", "^kept"},
		"deployments.yaml": {"KEPT_NAME", "KEPT_FROM", "kept-ref"}, "pods.yaml": {"KEPT_NAME", "kept-ref", "weir-gateway-0"},
		"statefulsets.yaml": {"KEPT_NAME"}, "daemonsets.yaml": {"KEPT_NAME"}, "events.yaml": {"kept-event"},
	} {
		for _, want := range wants {
			if !strings.Contains(all[name], want) {
				t.Errorf("%s lacks %q:\n%s", name, want, all[name])
			}
		}
	}
}
