// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"

	"github.com/weir-storage/weir/api/v1alpha1"
)

func volumeSource(handle string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: handle}}}
}

// TestClone: a volume is made of another one, and is as large at least. A repeated call finds it,
// also when the other one is gone.
func TestClone(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	c := w.controller(t)
	parent, other := w.create(t, "pvc-1", nil), w.create(t, "pvc-2", nil)
	ask := func(name, of string, required int64) (*csi.CreateVolumeResponse, error) {
		q := createRequest(name, nil)
		q.CapacityRange, q.VolumeContentSource = &csi.CapacityRange{RequiredBytes: required}, volumeSource(of)
		return c.CreateVolume(t.Context(), q)
	}
	r, err := ask("clone", parent, 20<<20)
	wantOK(t, err)
	handle := r.GetVolume().GetVolumeId()
	if got := w.content(t, handle).Spec; got.Source == nil || *got.Source != (v1alpha1.ContentSource{Volume: idOf(parent)}) ||
		got.Size.Value() != 20<<20 || r.GetVolume().GetContentSource().GetVolume().GetVolumeId() != parent {
		t.Errorf("%+v, and %+v", got, r)
	}
	_, err = ask("small", parent, 1<<20)
	wantCode(t, err, codes.OutOfRange, "10485760")
	r, err = ask("any", parent, 0)
	wantOK(t, err)
	if got := r.GetVolume().GetCapacityBytes(); got != 1<<30 {
		t.Errorf("a clone of any size has %d bytes", got)
	}
	_, err = ask("none", v1alpha1.VolumeHandle(testFederation, uuid.NewString()), 20<<20)
	wantCode(t, err, codes.NotFound)
	_, err = ask("nothing", "", 20<<20)
	wantCode(t, err, codes.InvalidArgument, "volume_id")
	_, err = ask("clone", other, 20<<20)
	wantCode(t, err, codes.AlreadyExists, "content source")
	_, err = c.CreateVolume(t.Context(), createRequest("clone", nil))
	wantCode(t, err, codes.AlreadyExists, "content source")
	_, err = c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: parent})
	wantOK(t, err)
	again, err := ask("clone", parent, 20<<20)
	wantOK(t, err)
	if again.GetVolume().GetVolumeId() != handle {
		t.Errorf("a repeated call makes %s of what is %s", again.GetVolume().GetVolumeId(), handle)
	}
}
