// SPDX-License-Identifier: Apache-2.0

package supportcmd

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
)

// logLines and logBytes bound the log of one container.
const (
	logLines = int64(20000)
	logBytes = int64(8 << 20)
)

// kubernetesPart adds Weir's objects of a cluster, and its pods with their events and logs.
// Secrets and ConfigMaps stay out, and what others have in the cluster.
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
	for _, p := range objects(ctx, b, c, namespace) {
		logs(ctx, b, cs, &p)
	}
}

// objects adds Weir's objects, and returns its pods.
func objects(ctx context.Context, b *bundle, c client.Client, namespace string) []corev1.Pod {
	pods := new(corev1.PodList)
	here := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "weir"}}
	for _, l := range []struct {
		name string
		list client.ObjectList
		in   []client.ListOption
	}{
		{"geovolumes", new(v1alpha1.GeoVolumeList), nil},
		{"geovolumecontents", new(v1alpha1.GeoVolumeContentList), nil},
		{"geovolumesnapshots", new(v1alpha1.GeoVolumeSnapshotList), nil},
		{"volumepolicies", new(v1alpha1.VolumePolicyList), nil},
		{"placementquotas", new(v1alpha1.PlacementQuotaList), nil},
		{"sites", new(v1alpha1.SiteList), nil},
		{"cachepools", new(v1alpha1.CachePoolList), nil},
		{"persistentvolumes", new(corev1.PersistentVolumeList), nil},
		{"volumeattachments", new(storagev1.VolumeAttachmentList), nil},
		{"storageclasses", new(storagev1.StorageClassList), nil},
		{"csinodes", new(storagev1.CSINodeList), nil},
		{"nodes", new(corev1.NodeList), nil},
		{"deployments", new(appsv1.DeploymentList), here},
		{"statefulsets", new(appsv1.StatefulSetList), here},
		{"daemonsets", new(appsv1.DaemonSetList), here},
		{"services", new(corev1.ServiceList), here},
		{"pods", pods, here},
		{"events", new(corev1.EventList), here[:1]},
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
	return pods.Items
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
