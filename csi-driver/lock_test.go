// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// TestOneCallPerVolume: while a node is being detached from a volume, calls on that node of the
// volume and calls on the whole volume are ABORTED. Calls on another node go on.
func TestOneCallPerVolume(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	c := w.controller(t)
	handle := w.create(t, "pvc-1", nil)
	w.publish(t, handle, testNode, testNamespace, manyWriters, false)
	unpublish := func(node string) error {
		_, err := c.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: node})
		return err
	}
	began, release := make(chan struct{}), make(chan struct{})
	w.attachments.detaching = func(node string) {
		if node == testNode {
			began <- struct{}{}
			<-release
		}
	}
	ended := make(chan error)
	go func() { ended <- unpublish(testNode) }()
	<-began

	wantCode(t, unpublish(testNode), codes.Aborted, "under way")
	wantCode(t, unpublish(""), codes.Aborted, "under way")
	_, err := c.CreateVolume(t.Context(), createRequest("pvc-1", nil))
	wantCode(t, err, codes.Aborted, "under way")
	_, err = c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
	wantCode(t, err, codes.Aborted, "under way")
	_, err = c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: handle, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 20}})
	wantCode(t, err, codes.Aborted, "under way")
	_, err = c.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: handle})
	wantCode(t, err, codes.Aborted, "under way")
	wantOK(t, unpublish("node-2"))
	_, err = c.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: handle})
	wantOK(t, err)

	close(release)
	wantOK(t, <-ended)
	w.attachments.detaching = nil
	wantOK(t, unpublish(testNode))
}
