// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/controller"
)

// mayBeSkipped lists the cases that sanity may leave out, by a part of their text, and why that is
// right. The test fails when sanity leaves out any other case.
var mayBeSkipped = map[string]string{
	"snapshot with accessibility":            "a snapshot is where its volume is",
	"max attach limit":                       "a node has no limit",
	"NodeExpandVolume":                       "a node has nothing to do to expand a volume: EXPAND_VOLUME is the controller's",
	"NodeGetStorageHealth":                   "there is no health of a node's storage but that of its volumes",
	"pagination should detect volumes added": "sanity itself has it switched off; TestListPages does it",
}

// TestSanity runs csi-test's suite against the real servers. An interceptor adds what Kubernetes
// adds to calls: the suite knows CSI only.
func TestSanity(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	dir := t.TempDir()
	endpoint := "unix://" + filepath.Join(dir, "csi.sock")
	c, err := controller.NewServer(controllerConfig(w))
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, nodeConfig(w, newMounter(t)))
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		cfg := ServerConfig{Endpoint: endpoint, Log: slog.New(slog.DiscardHandler), After: never}
		served <- Serve(ctx, cfg, func(s grpc.ServiceRegistrar) {
			csi.RegisterIdentityServer(s, NewIdentity("test", nil))
			csi.RegisterControllerServer(s, c)
			csi.RegisterGroupControllerServer(s, c)
			csi.RegisterNodeServer(s, n)
		})
	}()

	cfg := sanity.NewTestConfig()
	cfg.Address = endpoint
	cfg.TargetPath, cfg.StagingPath = filepath.Join(dir, "pods"), filepath.Join(dir, "staging")
	cfg.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), grpc.WithChainUnaryInterceptor(w.kubernetes)}
	cfg.ControllerDialOptions = cfg.DialOptions
	cfg.IDGen = handles{}
	cfg.TestVolumeParameters = map[string]string{claimName: "claim", claimNamespace: testNamespace, "policy": "gold"}
	cfg.TestVolumeMutableParameters = map[string]string{"policy": "silver"}

	sc := sanity.GinkgoTest(&cfg)
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.ReportAfterSuite("what was left out", func(r ginkgo.Report) {
		ran := 0
		for _, s := range r.SpecReports {
			switch s.State.String() {
			case "passed":
				ran++
			case "skipped", "pending":
				if skipReason(s.FullText()) == "" {
					t.Errorf("sanity left out %q: %s", s.FullText(), s.FailureMessage())
				}
			}
		}
		t.Logf("sanity: %d passed", ran)
		if ran < 95 {
			t.Errorf("sanity ran %d of its cases only", ran)
		}
	})
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct = true
	ginkgo.RunSpecs(t, "CSI", suite, reporter)
	sc.Finalize()

	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if left, _ := w.attachments.List(context.Background(), ""); len(left) > 0 {
		t.Errorf("attachments are left: %v", left)
	}
}

func skipReason(text string) string {
	for part, why := range mayBeSkipped {
		if strings.Contains(text, part) {
			return why
		}
	}
	return ""
}

func controllerConfig(w *world) controller.Config {
	return controller.Config{Client: w.client, Attachments: w.attachments, Federation: testFederation, Site: testSite, Cluster: testCluster}
}

// handles makes volume handles of this driver's form.
type handles struct{ sanity.DefaultIDGenerator }

func (handles) GenerateUniqueValidVolumeID() string {
	return v1alpha1.VolumeHandle(testFederation, uuid.NewString())
}

// kubernetes does what Kubernetes does besides the calls: there is a VolumeAttachment of a
// PersistentVolume before the attacher calls, and the kubelet adds the pod's namespace.
func (w *world) kubernetes(
	ctx context.Context, method string, q, r any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	switch q := q.(type) {
	case *csi.ControllerPublishVolumeRequest:
		if q.GetVolumeId() != "" && q.GetNodeId() != "" {
			if err := w.attach(ctx, q.GetVolumeId(), q.GetNodeId(), testNamespace, q.GetReadonly()); err != nil {
				return err
			}
		}
	case *csi.NodePublishVolumeRequest:
		with := maps.Clone(q.VolumeContext)
		if with == nil {
			with = make(map[string]string)
		}
		with[podNamespace] = testNamespace
		q.VolumeContext = with
	}
	return call(ctx, method, q, r, cc, opts...)
}

// attach makes a PersistentVolume that is bound to a claim of the namespace, and a VolumeAttachment
// for the node. Of objects that exist it changes readOnly only.
func (w *world) attach(ctx context.Context, handle, node, namespace string, readOnly bool) error {
	id := idOf(handle)
	name := "pv-" + namespace + "-" + id
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			ClaimRef:    &corev1.ObjectReference{Namespace: namespace, Name: "claim"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: v1alpha1.Driver, VolumeHandle: handle, ReadOnly: readOnly}},
		},
	}
	if readOnly {
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	}
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("va-%s-%s", node, name)},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: v1alpha1.Driver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}},
	}
	err := errors.Join(ignoreExists(w.client.Create(ctx, pv)), ignoreExists(w.client.Create(ctx, va)))
	now := new(corev1.PersistentVolume)
	if err := errors.Join(err, w.client.Get(ctx, client.ObjectKey{Name: name}, now)); err != nil {
		return err
	}
	now.Spec = pv.Spec
	return w.client.Update(ctx, now)
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
