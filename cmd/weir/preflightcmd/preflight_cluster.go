// SPDX-License-Identifier: Apache-2.0

package preflightcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// oldest is the first version of Kubernetes in which VolumeAttributesClass is stable.
const oldest = "1.34"

// checkCluster checks a cluster through its API.
func checkCluster(ctx context.Context, kubeconfig, namespace string) []finding {
	f := finding{Check: "cluster", Mend: "see that --kubeconfig is the cluster's, and that its user may list nodes"}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		f.Verdict, f.Found = broken, err.Error()
		return []finding{f}
	}
	cfg.Timeout = farTime
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		f.Verdict, f.Found = broken, err.Error()
		return []finding{f}
	}
	v, err := cs.Discovery().ServerVersion()
	if err != nil {
		f.Verdict, f.Found = broken, err.Error()
		return []finding{f}
	}
	f = finding{Check: "cluster", Found: "Kubernetes " + v.GitVersion}
	have, err := utilversion.ParseGeneric(v.GitVersion)
	if err != nil || have.LessThan(utilversion.MustParseGeneric(oldest)) {
		f.Verdict, f.Mend = doubt, "volumes work, and cannot be changed by VolumeAttributesClass: that needs Kubernetes "+oldest
	}
	return append([]finding{f, nodes(ctx, cs), driverThere(ctx, cs)}, images(ctx, cs, namespace)...)
}

// nodes finds nodes that cannot run the node plugin.
func nodes(ctx context.Context, cs kubernetes.Interface) finding {
	f := finding{Check: "nodes"}
	list, err := cs.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		f.Verdict, f.Found, f.Mend = broken, err.Error(), "give a kubeconfig whose user may list nodes"
		return f
	}
	var other, hosts []string
	for _, n := range list.Items {
		if os := n.Status.NodeInfo.OperatingSystem; os != "" && os != "linux" {
			other = append(other, n.Name)
		}
		for _, a := range n.Status.Addresses {
			if a.Type == "Hostname" {
				hosts = append(hosts, a.Address)
			}
		}
	}
	f.Found = fmt.Sprintf("%d, with Linux on %d", len(list.Items), len(list.Items)-len(other))
	slices.Sort(hosts)
	switch {
	case len(list.Items) == len(other):
		f.Verdict, f.Mend = broken, "add a Linux node: volumes are mounted by its kernel"
	case len(other) > 0:
		f.Verdict, f.Mend = doubt, "pods with volumes cannot run on "+strings.Join(other, ", ")
	case len(slices.Compact(hosts)) < len(list.Items):
		f.Verdict, f.Mend = doubt, "some nodes share a host name: the node plugin tells them apart, other NFS clients on them may not"
	default:
		f.Mend = "run `weir preflight` on each of them to see its kernel"
	}
	return f
}

// driverThere finds another install of the driver.
func driverThere(ctx context.Context, cs kubernetes.Interface) finding {
	f := finding{Check: "CSI driver " + v1alpha1.Driver, Found: "is not installed yet"}
	d, err := cs.StorageV1().CSIDrivers().Get(ctx, v1alpha1.Driver, metav1.GetOptions{})
	if err == nil {
		f.Found = "is installed, by release " +
			d.Annotations["meta.helm.sh/release-namespace"] + "/" + d.Annotations["meta.helm.sh/release-name"]
		f.Mend = "`helm upgrade` that release; a cluster is one site"
	}
	return f
}
