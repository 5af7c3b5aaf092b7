// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// TestSnapshots: a snapshot is one object, whichever instance of the controller is asked, and how
// often; and its volume stays until it is deleted. A volume is made of it.
func TestSnapshots(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	parent, other := w.create(t, "pvc-1", nil), w.create(t, "pvc-2", nil)
	const name = "snapshot-0b7c7a52-0000-4000-8000-000000000001"
	take := func(name, of string, parameters map[string]string) (*csi.CreateSnapshotResponse, error) {
		return w.controller(t).CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: of,
			Parameters: parameters})
	}
	r, err := take(name, parent, map[string]string{"csi.storage.k8s.io/volumesnapshot/name": "s"})
	wantOK(t, err)
	again, err := take(name, parent, nil)
	wantOK(t, err)
	id := r.GetSnapshot().GetSnapshotId()
	if s := r.GetSnapshot(); id != testNamespace+"/"+name || again.GetSnapshot().GetSnapshotId() != id || s.GetSourceVolumeId() != parent ||
		!s.GetReadyToUse() || s.GetSizeBytes() != 1<<20 || s.GetCreationTime() == nil {
		t.Errorf("%+v, and again %+v", r, again)
	}
	x := new(v1alpha1.GeoVolumeSnapshot)
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: testNamespace, Name: name}, x); err != nil {
		t.Fatal(err)
	}
	if x.Spec.Source != (v1alpha1.SnapshotSource{Kind: "PersistentVolumeClaim", Name: "claim"}) ||
		x.Spec.DeletionPolicy != v1alpha1.Delete {
		t.Errorf("%+v", x.Spec)
	}
	_, err = take(name, other, nil)
	wantCode(t, err, codes.AlreadyExists, idOf(parent))
	_, err = take("x", parent, map[string]string{"keep": "1"})
	wantCode(t, err, codes.InvalidArgument, "keep")
	odd, err := take("Odd Name", parent, nil)
	wantOK(t, err)
	c := w.controller(t)
	_, err = c.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: odd.GetSnapshot().GetSnapshotId()})
	wantOK(t, err)

	restore := func(name, id string, required int64) (*csi.CreateVolumeResponse, error) {
		q := createRequest(name, nil)
		q.CapacityRange = &csi.CapacityRange{RequiredBytes: required}
		q.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
		return c.CreateVolume(t.Context(), q)
	}
	made, err := restore("restored", id, 2<<20)
	wantOK(t, err)
	if got := w.content(t, made.GetVolume().GetVolumeId()).Spec.Source; got == nil ||
		*got != (v1alpha1.ContentSource{Volume: idOf(parent), Snapshot: name}) {
		t.Errorf("it is made of %+v", got)
	}
	_, err = restore("small", id, 1000)
	wantCode(t, err, codes.OutOfRange, "1048576")
	_, err = restore("none", testNamespace+"/none", 2<<20)
	wantCode(t, err, codes.NotFound)
	_, err = c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: parent})
	wantCode(t, err, codes.FailedPrecondition, id)
	_, err = c.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: id})
	wantOK(t, err)
	_, err = c.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: id})
	wantOK(t, err)
	_, err = c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: parent})
	wantOK(t, err)
	_, err = restore("restored", id, 2<<20) // the answer to the first call was lost
	wantOK(t, err)
}

// TestListSnapshots: pages are by ID, whoever made the objects.
func TestListSnapshots(t *testing.T) {
	w := newWorld(t)
	var objects []string
	for _, name := range []string{"b", "a", "c"} {
		x := &v1alpha1.GeoVolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: name}}
		if err := w.client.Create(t.Context(), x); err != nil {
			t.Fatal(err)
		}
		now := metav1.Now()
		x.Status.Volume, x.Status.Time = "v-"+name, &now
		if err := w.client.Status().Update(t.Context(), x); err != nil {
			t.Fatal(err)
		}
	}
	c := w.controller(t)
	for token := ""; ; {
		r, err := c.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{MaxEntries: 2, StartingToken: token})
		wantOK(t, err)
		for _, e := range r.GetEntries() {
			objects = append(objects, e.GetSnapshot().GetSnapshotId())
		}
		if token = r.GetNextToken(); token == "" {
			break
		}
	}
	if want := []string{"team/a", "team/b", "team/c"}; !slices.Equal(objects, want) {
		t.Errorf("it lists %q", objects)
	}
	r, err := c.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{SourceVolumeId: v1alpha1.VolumeHandle(testFederation, "v-b")})
	wantOK(t, err)
	if len(r.GetEntries()) != 1 || r.GetEntries()[0].GetSnapshot().GetSnapshotId() != "team/b" {
		t.Errorf("of one volume it lists %+v", r)
	}
	_, err = c.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{StartingToken: "x"})
	wantCode(t, err, codes.Aborted, "starting_token")
}

// TestSnapshotFails: what does not pass by itself is told at once.
func TestSnapshotFails(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	handle := w.create(t, "pvc-1", nil)
	name := "snapshot-1"
	x := &v1alpha1.GeoVolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: name,
		Labels: map[string]string{"refused": v1alpha1.ReasonExhausted, v1alpha1.VolumeLabel: idOf(handle),
			v1alpha1.Group + "/csi-snapshot": volumeUUID(name)}}}
	if err := w.client.Create(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	_, err := w.controller(t).CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: handle})
	wantCode(t, err, codes.ResourceExhausted, name)
}
