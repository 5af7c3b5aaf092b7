// SPDX-License-Identifier: Apache-2.0

package sitecmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	"github.com/weir-storage/weir/cmd/weir/sitecmd"
	"github.com/weir-storage/weir/test/apiserver"
)

// kubeconfig writes a file that leads to a cluster.
func kubeconfig(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	text, err := clientcmd.Write(*c)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// snapshotKinds gives a cluster the kinds of snapshot.storage.k8s.io, and waits until it serves
// them.
func snapshotKinds(t *testing.T, c client.Client) {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), "../../../hack/snapshot-crds").Output()
	if err != nil {
		t.Fatalf("find the kinds of snapshots: %v", err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		if o.GetName() != "volumesnapshotcontents.snapshot.storage.k8s.io" {
			continue
		}
		if err := c.Create(t.Context(), &o); err != nil {
			t.Fatal(err)
		}
	}
	clitest.Eventually(t, "the kinds are served", func() error {
		return c.List(t.Context(), &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "snapshot.storage.k8s.io/v1",
			"kind": "VolumeSnapshotContentList"}})
	})
}

// taken is the content of a VolumeSnapshot of a driver.
func taken(name, driver string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
		"spec": map[string]any{"driver": driver, "deletionPolicy": "Delete", "source": map[string]any{"volumeHandle": "v"},
			"volumeSnapshotRef": map[string]any{"name": "s", "namespace": "default"}}}}
	o.SetName(name)
	o.SetFinalizers([]string{"snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"})
	return o
}

// TestRelease: what Weir keeps from being deleted goes, in a real cluster without an operator. What
// others keep stays.
func TestRelease(t *testing.T) {
	cfg := apiserver.Start(t)
	c, err := client.New(cfg, client.Options{Scheme: process.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	const foreign, attacher = "example.org/foreign", "external-attacher/csi-weir-dev"
	volume := func(name, driver string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{attacher, foreign}},
			Spec: corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}}}}
	}
	size := resource.MustParse("1Gi")
	geo := &v1alpha1.GeoVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "default", Finalizers: []string{v1alpha1.Finalizer}},
		Spec:       v1alpha1.GeoVolumeSpec{Size: &size}}
	ours, others := volume("ours", v1alpha1.Driver), volume("others", "csi.example.org")
	attached := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va", Finalizers: []string{attacher}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: v1alpha1.Driver, NodeName: "n",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &ours.Name}}}
	labels := map[string]string{"app.kubernetes.io/name": "weir", "app.kubernetes.io/component": "operator"}
	operator := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "weir-operator", Namespace: "default", Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
	snapshot := &v1alpha1.GeoVolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "then", Namespace: "default", Finalizers: []string{v1alpha1.Finalizer}},
		Spec:       v1alpha1.GeoVolumeSnapshotSpec{Source: v1alpha1.SnapshotSource{Name: "data"}}}
	snapshotKinds(t, c)
	content, foreignContent := taken("ours", v1alpha1.Driver), taken("others", "csi.example.org")
	for _, o := range []client.Object{geo, ours, others, attached, operator, snapshot, content, foreignContent} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []client.Object{geo, attached} {
		if err := c.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	b := clitest.New(t, func(sh *cli.Shell, connect access.Connector) []*cobra.Command {
		return []*cobra.Command{sitecmd.Command(sh, connect)}
	})
	path := kubeconfig(t, cfg)
	b.Want(cli.ExitUsage, "no --kubeconfig", "", "site", "release")
	b.Want(cli.ExitError, "the operator is installed (Deployment weir-operator in namespace default)", "", "site", "release",
		"--kubeconfig", path, "--yes")
	if err := c.Delete(t.Context(), operator); err != nil {
		t.Fatal(err)
	}
	holder, seconds := "o", int32(15)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "o", Namespace: "default", Labels: labels}, Spec: operator.Spec.Template.Spec}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: process.OperatorLease, Namespace: "default"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds,
			RenewTime: &metav1.MicroTime{Time: clitest.Time}}}
	for said, o := range map[string]client.Object{"the operator still runs (Pod o": pod, "an operator still runs (o has": lease} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		b.Want(cli.ExitError, said, "", "site", "release", "--kubeconfig", path, "--yes", "--timeout", "1s")
		if err := c.Delete(t.Context(), o, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	b.Want(cli.ExitError, "not confirmed", "no\n", "site", "release", "--kubeconfig", path)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(geo), geo); err != nil {
		t.Fatalf("nobody confirmed it: %v", err)
	}
	out := b.Want(cli.ExitOK, "5 objects are let go", "release\n", "site", "release", "--kubeconfig", path)
	for _, want := range []string{"GeoVolume default/data, which is being deleted", "PersistentVolume ours\n",
		"VolumeAttachment va, which", "GeoVolumeSnapshot default/then\n", "VolumeSnapshotContent ours\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for _, o := range []client.Object{geo, attached} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%s is still there: %v", o.GetName(), err)
		}
	}
	const protection = "kubernetes.io/pv-protection" // the API server's own
	for o, want := range map[client.Object][]string{ours: {foreign, protection}, others: {attacher, foreign, protection}} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || !slices.Equal(o.GetFinalizers(), want) {
			t.Errorf("%s has the finalizers %v, want %v: %v", o.GetName(), o.GetFinalizers(), want, err)
		}
	}
	for o, want := range map[client.Object]int{snapshot: 0, content: 0, foreignContent: 1} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || len(o.GetFinalizers()) != want {
			t.Errorf("%s has the finalizers %v, want %d: %v", o.GetName(), o.GetFinalizers(), want, err)
		}
	}
	b.Want(cli.ExitOK, "nothing in this cluster waits for Weir", "", "site", "release", "--kubeconfig", path, "--yes")
}
