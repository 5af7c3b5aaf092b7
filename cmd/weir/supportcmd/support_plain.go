// SPDX-License-Identifier: Apache-2.0

package supportcmd

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// hidden replaces what may be a secret: none is in a support bundle (support-1).
const hidden = "(hidden)"

// plain is a list of Weir's objects, without those of others, without what only the API server and
// kubectl need, and without what may be a secret.
func plain(list client.ObjectList) ([]byte, error) {
	var own []runtime.Object
	err := meta.EachListItem(list, func(x runtime.Object) error {
		o, err := meta.Accessor(x)
		if err != nil || !ours(x) {
			return err
		}
		o.SetManagedFields(nil)
		notes := o.GetAnnotations()
		hideNotes(notes)
		o.SetAnnotations(notes)
		hide(x)
		own = append(own, x)
		return nil
	})
	if err == nil {
		err = meta.SetList(list, own)
	}
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(list)
}

// ours reports whether an object is Weir's, as far as its kind is not Weir's alone.
func ours(x runtime.Object) bool {
	switch o := x.(type) {
	case *corev1.PersistentVolume:
		return o.Spec.CSI != nil && o.Spec.CSI.Driver == v1alpha1.Driver
	case *storagev1.VolumeAttachment:
		return o.Spec.Attacher == v1alpha1.Driver
	case *storagev1.StorageClass:
		return o.Provisioner == v1alpha1.Driver
	case *corev1.Event:
		return strings.HasPrefix(o.InvolvedObject.Name, "weir-")
	}
	return true
}

// hide removes from an object what is of others, and the values in it that may be secrets.
func hide(x runtime.Object) {
	switch o := x.(type) {
	case *storagev1.CSINode:
		o.Spec.Drivers = slices.DeleteFunc(o.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name != v1alpha1.Driver })
	case *corev1.Node:
		o.Status.Images = nil
		o.Status.VolumesInUse = slices.DeleteFunc(o.Status.VolumesInUse, othersVolume)
		o.Status.VolumesAttached = slices.DeleteFunc(o.Status.VolumesAttached,
			func(a corev1.AttachedVolume) bool { return othersVolume(a.Name) })
	case *appsv1.Deployment:
		hideIn(&o.Spec.Template)
	case *appsv1.StatefulSet:
		hideIn(&o.Spec.Template)
	case *appsv1.DaemonSet:
		hideIn(&o.Spec.Template)
	case *corev1.Pod:
		hideInSpec(&o.Spec)
	}
}

// othersVolume reports whether the unique name of a volume at a node is of another driver.
func othersVolume(name corev1.UniqueVolumeName) bool {
	return !strings.HasPrefix(string(name), "kubernetes.io/csi/"+v1alpha1.Driver+"^")
}

func hideIn(t *corev1.PodTemplateSpec) {
	hideNotes(t.Annotations)
	hideInSpec(&t.Spec)
}

// hideInSpec hides values of the environment. Names stay, and where a value comes from.
func hideInSpec(s *corev1.PodSpec) {
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			hideValues(list[i].Env)
		}
	}
	for i := range s.EphemeralContainers {
		hideValues(s.EphemeralContainers[i].Env)
	}
}

func hideValues(env []corev1.EnvVar) {
	for i := range env {
		if env[i].Value != "" {
			env[i].Value = hidden
		}
	}
}

// hideNotes hides the values of annotations that are not Weir's, Kubernetes' or Helm's own. What
// kubectl applied last goes altogether: it has all that is hidden elsewhere.
func hideNotes(notes map[string]string) {
	delete(notes, corev1.LastAppliedConfigAnnotation)
	for key := range notes {
		domain, _, _ := strings.Cut(key, "/")
		if !slices.ContainsFunc([]string{"weir.dev", "kubernetes.io", "k8s.io", "helm.sh"}, func(known string) bool {
			return domain == known || strings.HasSuffix(domain, "."+known)
		}) {
			notes[key] = hidden
		}
	}
}
