// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/controller"
)

// lists counts the lists of all PersistentVolumes and VolumeAttachments that go to the API server.
type lists struct {
	client.WithWatch
	n int
}

func (l *lists) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	switch list.(type) {
	case *corev1.PersistentVolumeList, *storagev1.VolumeAttachmentList:
		l.n++
	}
	return l.WithWatch.List(ctx, list, o...)
}

// TestAttachBySight: an attachment is decided by the objects that a cache names, which are read
// again. A cache that trails changes no answer.
func TestAttachBySight(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	handle := w.create(t, "pvc-1", nil)
	live, trails := &lists{WithWatch: w.client}, newWorld(t).client
	writes := manyWriters
	attach := func(seen client.Reader, node string) (int, error) {
		cfg := controllerConfig(w)
		cfg.Client, cfg.Seen = live, seen
		c, err := controller.NewServer(cfg)
		wantOK(t, err)
		live.n = 0
		_, err = c.ControllerPublishVolume(t.Context(),
			&csi.ControllerPublishVolumeRequest{VolumeId: handle, NodeId: node, VolumeCapability: capability(writes)})
		return live.n, err
	}
	wantOK(t, w.attach(t.Context(), handle, testNode, testNamespace, false))
	if n, err := attach(trails, testNode); err != nil || n != 2 {
		t.Errorf("with a cache that has nothing: %d lists, %v", n, err)
	}
	if n, err := attach(w.client, testNode); err != nil || n != 0 {
		t.Errorf("with a cache: %d lists, %v", n, err)
	}
	// One that only reads: what the cache has decides it, unless a claim that may write has no
	// PersistentVolume there.
	v := w.content(t, handle)
	v.Spec.Claims = []v1alpha1.ClaimReference{
		{Kind: "GeoVolume", Namespace: testNamespace, Name: "claim", Access: v1alpha1.ReadWrite},
		{Kind: "GeoVolume", Namespace: "readers", Name: "claim", Access: v1alpha1.ReadOnly},
	}
	wantOK(t, w.client.Update(t.Context(), v))
	wantOK(t, w.attach(t.Context(), handle, "node-2", testNamespace, true))
	wantOK(t, w.attach(t.Context(), handle, "node-2", "readers", true))
	writes = manyReaders
	if n, err := attach(w.client, "node-2"); err != nil || n != 0 {
		t.Errorf("one that reads, with a cache: %d lists, %v", n, err)
	}
	v = w.content(t, handle)
	v.Spec.Claims = append(v.Spec.Claims,
		v1alpha1.ClaimReference{Kind: "GeoVolume", Namespace: "late", Name: "claim", Access: v1alpha1.ReadWrite})
	wantOK(t, w.client.Update(t.Context(), v))
	if n, err := attach(w.client, "node-2"); err != nil || n != 2 {
		t.Errorf("one that reads, with a cache that lacks a writer: %d lists, %v", n, err)
	}
	writes = manyWriters
	wantOK(t, w.attach(t.Context(), handle, testNode, testNamespace, false))
	// The cache has what is gone.
	wantOK(t, w.attach(t.Context(), handle, "node-2", testNamespace, false))
	old := newWorld(t).client
	copied := func(list client.ObjectList) {
		wantOK(t, w.client.List(t.Context(), list))
		wantOK(t, meta.EachListItem(list, func(o runtime.Object) error {
			c := o.(client.Object)
			c.SetResourceVersion("")
			return old.Create(t.Context(), c)
		}))
	}
	copied(&corev1.PersistentVolumeList{})
	copied(&storagev1.VolumeAttachmentList{})
	wantOK(t, w.client.DeleteAllOf(t.Context(), &storagev1.VolumeAttachment{}))
	if _, err := attach(old, "node-2"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("an attachment that is gone counts: %v", err)
	}
}
