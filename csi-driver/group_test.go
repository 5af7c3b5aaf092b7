// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

const (
	groupLabel   = v1alpha1.Group + "/csi-group"
	groupAttempt = v1alpha1.Group + "/csi-group-attempt"
)

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

	_, err := w.group(t, name, map[string]string{"consistency": "Group"}, a, b)
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
	x.Spec.Hold, x.Annotations[groupAttempt] = labels["hold"] != "", labels["attempt"]
	if tokens := labels["tokens"]; tokens != "" {
		x.Annotations[v1alpha1.Group+"/csi-group-tokens"] = tokens
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

// holds does what operator and home do while changes are to be held for a snapshot. It returns
// false when it is to be taken. One of a group is slow.
func (w *world) holds(ctx context.Context, x *v1alpha1.GeoVolumeSnapshot) bool {
	if !x.Spec.Hold {
		return false
	}
	w.held.Lock()
	defer w.held.Unlock()
	if w.held.never {
		return true
	}
	if x.Spec.Take == "" {
		if x.Status.Hold != "" {
			return true
		}
		if !strings.HasPrefix(x.Annotations[v1alpha1.Group+"/csi-group-volumes"], x.Labels[v1alpha1.VolumeLabel]) {
			time.Sleep(30 * time.Millisecond)
			var all v1alpha1.GeoVolumeSnapshotList
			_ = w.client.List(ctx, &all, client.MatchingLabels{groupLabel: x.Labels[groupLabel]})
			for i := range all.Items {
				w.held.early = w.held.early || all.Items[i].Spec.Take != ""
			}
		}
		w.held.last++
		x.Status.Hold, x.Status.Volume = cmp.Or(x.Labels["token"], fmt.Sprint("token-", w.held.last)), x.Labels[v1alpha1.VolumeLabel]
		return true
	}
	if w.held.missed > 0 {
		w.held.missed--
		w.held.gone = x.Status.Hold
	}
	if x.Spec.Take == x.Status.Hold && x.Status.Hold != w.held.gone {
		return false
	}
	meta.SetStatusCondition(&x.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonMissed, Message: "no", ObservedGeneration: x.Generation})
	return true
}

// TestGroupIsOfOneMoment: without consistency: PerVolume nothing is taken before the changes of all
// volumes are held. If one was not held any more, none stays, and the next call takes them anew.
func TestGroupIsOfOneMoment(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	a, b := w.create(t, "pvc-1", nil), w.create(t, "pvc-2", nil)
	g, err := w.group(t, "one moment", nil, a, b)
	wantOK(t, err)
	again, err := w.group(t, "one moment", nil, b, a)
	wantOK(t, err)
	if !slices.Equal(idsOf(g), idsOf(again)) || len(idsOf(g)) != 2 {
		t.Errorf("it is %+v, and again %+v", g, again)
	}
	_, err = w.group(t, "one moment", accepted, a, b)
	wantCode(t, err, codes.AlreadyExists, "consistency")

	w.held.Lock()
	w.held.missed = 1
	w.held.Unlock()
	_, err = w.group(t, "missed", nil, a, b)
	wantCode(t, err, codes.Aborted, v1alpha1.ReasonMissed)
	if n := len(w.ofGroup(t)); n != 2 {
		t.Errorf("%d objects are left, want those of the other group", n)
	}
	_, err = w.group(t, "missed", nil, a, b)
	wantOK(t, err)

	// No clock keeps such a group from being one.
	w.memberOf(t, "far apart", a, []string{a, b}, map[string]string{"hold": "yes",
		"taken": time.Now().Add(-time.Hour).Format("20060102T150405Z")})
	w.memberOf(t, "far apart", b, []string{a, b}, map[string]string{"hold": "yes"})
	_, err = w.group(t, "far apart", nil, a, b)
	wantOK(t, err)

	w.held.Lock()
	early := w.held.early
	w.held.Unlock()
	if early {
		t.Error("a snapshot was taken before the changes of all volumes were held")
	}
}

// TestGroupOfTwoCalls: objects that two calls made are no group, since one of them may have been
// taken for an earlier attempt.
func TestGroupOfTwoCalls(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	a, b := w.create(t, "pvc-1", nil), w.create(t, "pvc-2", nil)
	w.memberOf(t, "two calls", a, []string{a, b}, map[string]string{"attempt": "1"})
	w.memberOf(t, "two calls", b, []string{a, b}, map[string]string{"attempt": "2"})
	_, err := w.group(t, "two calls", accepted, a, b)
	wantOK(t, err)
	attempts := map[string]bool{}
	for _, x := range w.ofGroup(t) {
		if strings.HasPrefix(x.Name, "left-") {
			t.Errorf("%s is in the group", x.Name)
		}
		attempts[x.Annotations[groupAttempt]] = true
	}
	if len(attempts) != 1 {
		t.Errorf("the group is of the attempts %v", attempts)
	}
}

// TestGroupsOfOneVolume: while a group waits for changes to be held, another one that has one of
// its volumes is told to come again; it would hold what the first waits for.
func TestGroupsOfOneVolume(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	ids := []string{w.create(t, "pvc-1", nil), w.create(t, "pvc-2", nil), w.create(t, "pvc-3", nil)}
	driver := w.controller(t)
	group := func(ctx context.Context, name string, volumes ...string) error {
		_, err := driver.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{Name: name, SourceVolumeIds: volumes})
		return err
	}
	never := func(is bool) {
		w.held.Lock()
		defer w.held.Unlock()
		w.held.never = is
	}
	never(true)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- group(ctx, "first", ids[:2]...) }()
	for len(w.ofGroup(t)) < 2 {
		time.Sleep(time.Millisecond)
	}
	wantCode(t, group(t.Context(), "second", ids[1:]...), codes.Aborted, "another group")
	wantCode(t, group(t.Context(), "first", ids[:2]...), codes.Aborted, "under way")
	if n := len(w.ofGroup(t)); n != 2 {
		t.Errorf("there are %d objects", n)
	}
	cancel()
	if err := <-first; err == nil {
		t.Error("the first group is there, and nobody held anything")
	}
	never(false)
	wantOK(t, group(t.Context(), "second", ids[1:]...))
}

// TestGroupGoesOn: the call that settled by which holds a group is taken may die. The next one
// takes it by these, and by no others: a part may be taken already.
func TestGroupGoesOn(t *testing.T) {
	w := newWorld(t)
	w.operate(t)
	ids := []string{w.create(t, "pvc-1", nil), w.create(t, "pvc-2", nil)}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(idOf(a), idOf(b)) })
	left := func(name, second string) {
		w.memberOf(t, name, ids[0], ids, map[string]string{"hold": "yes", "tokens": "one,two", "token": "one"})
		w.memberOf(t, name, ids[1], ids, map[string]string{"hold": "yes", "token": second})
		for slices.ContainsFunc(w.ofGroup(t), func(x v1alpha1.GeoVolumeSnapshot) bool { return x.Status.Hold == "" }) {
			time.Sleep(time.Millisecond)
		}
	}
	left("goes on", "two")
	_, err := w.group(t, "goes on", nil, ids...)
	wantOK(t, err)
	for _, x := range w.ofGroup(t) {
		if !strings.HasPrefix(x.Name, "left-") || x.Spec.Take != x.Labels["token"] {
			t.Errorf("the group has %s, which was taken by %q", x.Name, x.Spec.Take)
		}
		if err := w.client.Delete(t.Context(), &x); err != nil {
			t.Fatal(err)
		}
	}
	for len(w.ofGroup(t)) > 0 {
		time.Sleep(time.Millisecond)
	}
	// A home that moved meanwhile holds changes anew.
	left("is over", "three")
	_, err = w.group(t, "is over", nil, ids...)
	wantCode(t, err, codes.Aborted, v1alpha1.ReasonMissed)
	if n := len(w.ofGroup(t)); n != 0 {
		t.Errorf("%d objects are left", n)
	}
}
