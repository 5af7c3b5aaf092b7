// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

const groupLabel = v1alpha1.Group + "/csi-group"

// accepted is what a class says that accepts moments that differ.
var accepted = map[string]string{"consistency": "PerVolume"}

// ofGroup lists the objects of all groups.
func (w *world) ofGroup(t *testing.T) []v1alpha1.GeoVolumeSnapshot {
	t.Helper()
	var all v1alpha1.GeoVolumeSnapshotList
	if err := w.client.List(t.Context(), &all, client.HasLabels{groupLabel}); err != nil {
		t.Fatal(err)
	}
	return all.Items
}

func (w *world) group(
	t *testing.T, name string, parameters map[string]string, volumes ...string,
) (*csi.VolumeGroupSnapshot, error) {
	t.Helper()
	r, err := w.controller(t).CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: name,
		SourceVolumeIds: volumes, Parameters: parameters})
	return r.GetGroupSnapshot(), err
}

func idsOf(g *csi.VolumeGroupSnapshot) (ids []string) {
	for _, s := range g.GetSnapshots() {
		ids = append(ids, s.GetSnapshotId())
	}
	return ids
}

// TestGroup: a group is a snapshot of each of its volumes, the same one however often it is asked
// for; it is taken and deleted as a whole.
func TestGroup(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	a, b, other := w.create(t, "pvc-1", nil), w.create(t, "pvc-2", nil), w.create(t, "pvc-3", nil)
	const name = "groupsnapshot-0b7c7a52-0000-4000-8000-000000000001"

	// Who does not accept that the moments differ gets no group of several volumes.
	_, err := w.group(t, name, nil, a, b)
	wantCode(t, err, codes.FailedPrecondition, "consistency: PerVolume")
	_, err = w.group(t, name, map[string]string{"consistency": "Group"}, a, b)
	wantCode(t, err, codes.InvalidArgument, "consistency")
	_, err = w.group(t, name, map[string]string{"keep": "1"}, a)
	wantCode(t, err, codes.InvalidArgument, "keep")
	_, err = w.group(t, name, accepted)
	wantCode(t, err, codes.InvalidArgument, "source_volume_ids")
	_, err = w.group(t, name, accepted, a, a)
	wantCode(t, err, codes.InvalidArgument, "once")
	_, err = w.group(t, name, accepted, a, v1alpha1.VolumeHandle(testFederation, "00000000-0000-4000-8000-000000000009"))
	wantCode(t, err, codes.NotFound)
	if all := w.ofGroup(t); len(all) > 0 {
		t.Fatalf("what was refused left %d objects", len(all))
	}

	g, err := w.group(t, name, accepted, b, a)
	wantOK(t, err)
	again, err := w.group(t, name, accepted, a, b)
	wantOK(t, err)
	if !g.GetReadyToUse() || g.GetCreationTime() == nil || len(g.GetSnapshots()) != 2 ||
		again.GetGroupSnapshotId() != g.GetGroupSnapshotId() || !slices.Equal(idsOf(g), idsOf(again)) || len(w.ofGroup(t)) != 2 {
		t.Fatalf("it is %+v, and again %+v", g, again)
	}
	for _, s := range g.GetSnapshots() {
		if s.GetGroupSnapshotId() != g.GetGroupSnapshotId() || !slices.Contains([]string{a, b}, s.GetSourceVolumeId()) {
			t.Errorf("snapshot %+v", s)
		}
	}
	for _, x := range w.ofGroup(t) {
		if string(x.Spec.SnapshotName) != name || x.Namespace != testNamespace {
			t.Errorf("in its volume %s/%s is called %q", x.Namespace, x.Name, x.Spec.SnapshotName)
		}
	}
	_, err = w.group(t, name, accepted, a, other)
	wantCode(t, err, codes.AlreadyExists, idOf(b))
	if one, err := w.group(t, "of one volume", nil, other); err != nil || len(one.GetSnapshots()) != 1 {
		t.Errorf("a group of one volume, which is of one moment: %+v, %v", one, err)
	}

	c := w.controller(t)
	id := g.GetGroupSnapshotId()
	get := func(ids ...string) error {
		r, err := c.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: ids})
		if err == nil && !slices.Equal(idsOf(r.GetGroupSnapshot()), idsOf(g)) {
			t.Errorf("it is %+v", r)
		}
		return err
	}
	wantOK(t, get(idsOf(g)...))
	wantCode(t, get(idsOf(g)[0]), codes.InvalidArgument, "snapshot_ids")
	_, err = c.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: idsOf(g)[0]})
	wantCode(t, err, codes.InvalidArgument, "VolumeGroupSnapshot")
	_, err = c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: a})
	wantCode(t, err, codes.FailedPrecondition, "snapshot")
	remove := func(ids ...string) error {
		_, err := c.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: ids})
		return err
	}
	wantCode(t, remove(idsOf(g)[0]), codes.InvalidArgument, "snapshot_ids")
	wantOK(t, remove(idsOf(g)...))
	wantOK(t, remove(idsOf(g)...))
	wantCode(t, get(idsOf(g)...), codes.NotFound)
	if all := w.ofGroup(t); len(all) != 1 {
		t.Errorf("%d objects are left, want that of the other group", len(all))
	}
}

// memberOf makes an object of a group, as a call that was interrupted leaves it.
func (w *world) memberOf(t *testing.T, group string, volume string, volumes []string, labels map[string]string) {
	t.Helper()
	ids := []string{}
	for _, v := range volumes {
		ids = append(ids, idOf(v))
	}
	slices.Sort(ids)
	x := &v1alpha1.GeoVolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "left-" + idOf(volume),
		Labels:      map[string]string{groupLabel: volumeUUID("group " + group), v1alpha1.VolumeLabel: idOf(volume)},
		Annotations: map[string]string{v1alpha1.Group + "/csi-group-volumes": strings.Join(ids, ",")}}}
	for k, v := range labels {
		x.Labels[k] = v
	}
	if err := w.client.Create(t.Context(), x); err != nil {
		t.Fatal(err)
	}
}

// TestGroupIsAllOrNothing: what an interrupted call left is no part of a group; a snapshot that
// cannot be taken leaves none of the others; and those that lie far apart are taken again.
func TestGroupIsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	a, b := w.create(t, "pvc-1", nil), w.create(t, "pvc-2", nil)
	w.memberOf(t, "half", a, []string{a, b}, nil)
	g, err := w.group(t, "half", accepted, a, b)
	wantOK(t, err)
	for _, x := range w.ofGroup(t) {
		if strings.HasPrefix(x.Name, "left-") {
			t.Errorf("%s, of a call that was interrupted, is in the group %+v", x.Name, g)
		}
	}
	_, err = w.controller(t).DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{
		GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: idsOf(g)})
	wantOK(t, err)

	w.memberOf(t, "full", a, []string{a, b}, nil)
	w.memberOf(t, "full", b, []string{a, b}, map[string]string{"refused": v1alpha1.ReasonExhausted})
	_, err = w.group(t, "full", accepted, a, b)
	wantCode(t, err, codes.ResourceExhausted)
	if all := w.ofGroup(t); len(all) > 0 {
		t.Errorf("of a group that failed %d objects are left", len(all))
	}

	w.memberOf(t, "apart", a, []string{a, b}, map[string]string{"taken": time.Now().Add(-time.Hour).Format("20060102T150405Z")})
	w.memberOf(t, "apart", b, []string{a, b}, nil)
	_, err = w.group(t, "apart", accepted, a, b)
	wantCode(t, err, codes.Aborted, "apart at most")
	if all := w.ofGroup(t); len(all) > 0 {
		t.Errorf("of a group whose snapshots lie far apart %d objects are left", len(all))
	}
	_, err = w.group(t, "apart", accepted, a, b)
	wantOK(t, err)
}
