// SPDX-License-Identifier: Apache-2.0

package supportcmd

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
)

// logLines and logBytes bound the log of one container.
const (
	logLines = int64(20000)
	logBytes = int64(8 << 20)
)

// kubernetesPart adds Weir's objects of a cluster, and its pods with their events and logs.
// Secrets and ConfigMaps stay out.
func kubernetesPart(ctx context.Context, b *bundle, kubeconfig, namespace string) {
	cfg, err := process.Cluster(kubeconfig)
	if err != nil {
		b.say("kubernetes is missing: %v", err)
		return
	}
	c, err := client.New(cfg, client.Options{Scheme: process.Scheme()})
	if err != nil {
		b.say("kubernetes is missing: %v", err)
		return
	}
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		b.say("kubernetes is missing: %v", err)
		return
	}
	pods := new(corev1.PodList)
	here := client.InNamespace(namespace)
	for _, l := range []struct {
		name string
		list client.ObjectList
		in   []client.ListOption
	}{
		{"geovolumes", new(v1alpha1.GeoVolumeList), nil},
		{"geovolumecontents", new(v1alpha1.GeoVolumeContentList), nil},
		{"volumepolicies", new(v1alpha1.VolumePolicyList), nil},
		{"sites", new(v1alpha1.SiteList), nil},
		{"cachepools", new(v1alpha1.CachePoolList), nil},
		{"persistentvolumes", new(corev1.PersistentVolumeList), nil},
		{"volumeattachments", new(storagev1.VolumeAttachmentList), nil},
		{"storageclasses", new(storagev1.StorageClassList), nil},
		{"csinodes", new(storagev1.CSINodeList), nil},
		{"nodes", new(corev1.NodeList), nil},
		{"deployments", new(appsv1.DeploymentList), []client.ListOption{here}},
		{"statefulsets", new(appsv1.StatefulSetList), []client.ListOption{here}},
		{"daemonsets", new(appsv1.DaemonSetList), []client.ListOption{here}},
		{"services", new(corev1.ServiceList), []client.ListOption{here}},
		{"pods", pods, []client.ListOption{here}},
		{"events", new(corev1.EventList), []client.ListOption{here}},
	} {
		name := "kubernetes/" + l.name + ".yaml"
		if err := c.List(ctx, l.list, l.in...); err != nil {
			b.say("%s is missing: %v", name, err)
			continue
		}
		text, err := plain(l.list)
		if err != nil {
			b.say("%s is missing: %v", name, err)
			continue
		}
		b.put(name, text)
	}
	for i := range pods.Items {
		logs(ctx, b, cs, &pods.Items[i])
	}
}

// plain is a list without what only the API server and kubectl need.
func plain(list client.ObjectList) ([]byte, error) {
	err := meta.EachListItem(list, func(x runtime.Object) error {
		o, err := meta.Accessor(x)
		if err != nil {
			return err
		}
		o.SetManagedFields(nil)
		notes := o.GetAnnotations()
		delete(notes, corev1.LastAppliedConfigAnnotation)
		o.SetAnnotations(notes)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(list)
}

// logs adds the logs of a pod's containers, and of those before them that ended.
func logs(ctx context.Context, b *bundle, cs kubernetes.Interface, p *corev1.Pod) {
	for _, s := range append(append([]corev1.ContainerStatus{}, p.Status.InitContainerStatuses...), p.Status.ContainerStatuses...) {
		for _, former := range []bool{false, true} {
			if former && s.RestartCount == 0 {
				continue
			}
			name := fmt.Sprintf("kubernetes/logs/%s/%s.txt", p.Name, s.Name)
			if former {
				name = fmt.Sprintf("kubernetes/logs/%s/%s.former.txt", p.Name, s.Name)
			}
			text, err := cs.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: s.Name, Previous: former,
				TailLines: new(logLines), LimitBytes: new(logBytes), Timestamps: true}).DoRaw(ctx)
			if err != nil {
				b.say("%s is missing: %v", name, err)
				continue
			}
			b.put(name, text)
		}
	}
}
