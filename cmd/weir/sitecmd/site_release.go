// SPDX-License-Identifier: Apache-2.0

package sitecmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
)

func releaseCommand(sh *cli.Shell) *cobra.Command {
	var kubeconfig string
	var yes bool
	var limit time.Duration
	c := &cobra.Command{
		Use: "release --kubeconfig FILE", Short: "Let go of a cluster from which Weir was uninstalled", Args: cli.Args(cobra.NoArgs),
		Long: "Takes Weir's finalizers off what is left in a cluster after `helm uninstall`: GeoVolumes,\n" +
			"GeoVolumeContents, GeoVolumeSnapshots, and persistent volumes, attachments and contents of\n" +
			"VolumeSnapshots of its driver. Else deleting them, or their namespaces, would wait for an operator\n" +
			"for ever. The federation's volumes, their snapshots and their data stay. The command refuses while\n" +
			"the operator is installed, and waits while one still ends.",
		Example: "  weir site release --kubeconfig ~/.kube/config",
		RunE: func(c *cobra.Command, _ []string) error {
			if kubeconfig == "" {
				return cli.Usage("site release: no --kubeconfig: give the file with the cluster's address")
			}
			return release(c.Context(), sh, kubeconfig, yes, limit)
		},
	}
	c.Flags().StringVar(&kubeconfig, "kubeconfig", sh.Getenv("KUBECONFIG"), "`FILE` with the cluster's address [KUBECONFIG]")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().DurationVar(&limit, "timeout", time.Minute, "`TIME` to wait for an operator that has not ended yet")
	return c
}

// held is an object with finalizers that only Weir's parts take off.
type held struct {
	object client.Object
	keeps  []string // the finalizers
}

// Finalizers of csi-provisioner and csi-attacher. The latter's ends in the driver's name.
const provisionerFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"

// Finalizers of contents of VolumeSnapshots and of VolumeGroupSnapshots, which go when the driver's
// snapshotter has dropped the snapshot.
const (
	snapshotFinalizer = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
	groupFinalizer    = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection"
)

var attacherFinalizer = "external-attacher/" + strings.ReplaceAll(v1alpha1.Driver, ".", "-")

func release(ctx context.Context, sh *cli.Shell, kubeconfig string, yes bool, limit time.Duration) error {
	cfg, err := process.Cluster(kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	c, err := client.New(cfg, client.Options{Scheme: process.Scheme()})
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	operators := new(appsv1.DeploymentList)
	part := client.MatchingLabels{"app.kubernetes.io/name": "weir", "app.kubernetes.io/component": "operator"}
	if err := c.List(ctx, operators, part); err != nil {
		return err
	}
	if len(operators.Items) > 0 {
		o := operators.Items[0]
		return fmt.Errorf("the operator is installed (Deployment %s in namespace %s): it lets go of what is deleted by itself; "+
			"`helm uninstall` comes first", o.Name, o.Namespace)
	}
	if err := ended(ctx, sh, c, part, limit); err != nil {
		return err
	}
	all, err := listHeld(ctx, c)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return sh.Say("nothing in this cluster waits for Weir\n")
	}
	for _, h := range all {
		if err := sh.Say("%s\n", h); err != nil {
			return err
		}
	}
	if !yes {
		sh.Tell("Weir lets go of these %d objects of %s. Type release to go on: ", len(all), cfg.Host)
		if err := sh.Confirm("site release", "release"); err != nil {
			return err
		}
	}
	for _, h := range all {
		before := h.object.DeepCopyObject().(client.Object)
		h.object.SetFinalizers(slices.DeleteFunc(h.object.GetFinalizers(), func(f string) bool { return slices.Contains(h.keeps, f) }))
		err := c.Patch(ctx, h.object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("%s: %w; the same command may be repeated", h, err)
		}
	}
	return sh.Say("%d objects are let go\n", len(all))
}

// ended waits until no operator that is not installed any more runs, for limit at most. An
// uninstallation ends before what it uninstalls does.
func ended(ctx context.Context, sh *cli.Shell, c client.Client, part client.MatchingLabels, limit time.Duration) error {
	told := false
	for end := time.Now().Add(limit); ; {
		why := operates(ctx, c, part, sh.Now())
		if why == nil || !time.Now().Before(end) {
			return why
		}
		if !told {
			told = true
			sh.Tell("%v: waiting for at most %v\n", why, limit)
		}
		select {
		case <-ctx.Done():
			return why
		case <-time.After(time.Second):
		}
	}
}

// operates returns an error while an operator that is not installed any more still runs: it would
// put its finalizers back.
func operates(ctx context.Context, c client.Client, part client.MatchingLabels, now time.Time) error {
	pods := new(corev1.PodList)
	if err := c.List(ctx, pods, part); err != nil {
		return err
	}
	for _, p := range pods.Items {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("the operator still runs (Pod %s in namespace %s): wait until it has ended", p.Name, p.Namespace)
		}
	}
	leases := new(coordinationv1.LeaseList)
	if err := c.List(ctx, leases); err != nil {
		return err
	}
	for _, l := range leases.Items {
		s := l.Spec
		if l.Name != process.OperatorLease || s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil ||
			s.LeaseDurationSeconds == nil {
			continue
		}
		if until := s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second); now.Before(until) {
			return fmt.Errorf("an operator still runs (%s has the Lease %s in namespace %s): stop it, and repeat this after %v",
				*s.HolderIdentity, l.Name, l.Namespace, until.Sub(now).Round(time.Second))
		}
	}
	return nil
}

// listHeld finds what Weir keeps from being deleted.
func listHeld(ctx context.Context, c client.Client) (out []held, err error) {
	of := func(list client.ObjectList, keeps ...string) {
		if err != nil {
			return
		}
		if err = c.List(ctx, list); meta.IsNoMatchError(err) { // the definitions are deleted
			err = nil
			return
		}
		if err != nil {
			return
		}
		err = meta.EachListItem(list, func(x runtime.Object) error {
			o := x.(client.Object)
			if ours(o) && slices.ContainsFunc(o.GetFinalizers(), func(f string) bool { return slices.Contains(keeps, f) }) {
				out = append(out, held{o, keeps})
			}
			return nil
		})
	}
	of(new(v1alpha1.GeoVolumeList), v1alpha1.Finalizer)
	of(new(v1alpha1.GeoVolumeContentList), v1alpha1.Finalizer)
	of(new(v1alpha1.GeoVolumeSnapshotList), v1alpha1.Finalizer)
	of(listOf("snapshot.storage.k8s.io", "VolumeSnapshotContent"), snapshotFinalizer)
	of(listOf("groupsnapshot.storage.k8s.io", "VolumeGroupSnapshotContent"), groupFinalizer)
	of(new(storagev1.VolumeAttachmentList), attacherFinalizer)
	of(new(corev1.PersistentVolumeList), provisionerFinalizer, attacherFinalizer)
	return out, err
}

// listOf lists a kind that the cluster need not have.
func listOf(group, kind string) *unstructured.UnstructuredList {
	l := new(unstructured.UnstructuredList)
	l.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind + "List"})
	return l
}

// ours reports whether an object is Weir's: those of other groups only if they are of its driver.
func ours(o client.Object) bool {
	switch o := o.(type) {
	case *corev1.PersistentVolume:
		return o.Spec.CSI != nil && o.Spec.CSI.Driver == v1alpha1.Driver
	case *storagev1.VolumeAttachment:
		return o.Spec.Attacher == v1alpha1.Driver
	case *unstructured.Unstructured:
		driver, _, _ := unstructured.NestedString(o.Object, "spec", "driver")
		return driver == v1alpha1.Driver
	}
	return true
}

// String is for people: GeoVolume team/data.
func (h held) String() string {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", h.object), "*")
	kind = kind[strings.LastIndex(kind, ".")+1:]
	if o, ok := h.object.(*unstructured.Unstructured); ok {
		kind = o.GetKind()
	}
	name := h.object.GetName()
	if ns := h.object.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	if h.object.GetDeletionTimestamp() != nil {
		name += ", which is being deleted"
	}
	return kind + " " + name
}
