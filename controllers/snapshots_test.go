// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
)

// keep plays the home: it has the snapshots of has, takes and drops what the record says, and
// reports that. Each has the time of its place in has.
func (f *fed) keep(uuid string, has ...string) {
	f.t.Helper()
	f.serve(uuid, 0)
	v := f.record(uuid)
	r := &snapshots.Report{}
	for i, n := range has {
		w, _ := snapshots.Find(v.Snapshots, n)
		if w.Drop {
			continue
		}
		r.All = append(r.All, snapshots.Snapshot{Name: n, UID: w.UID, State: snapshots.StateTaken, Time: f.taken(i), Bytes: 1 << 20,
			Inodes: 3, Snap: uint32(i + 1)})
	}
	for _, w := range v.Snapshots {
		if w.Drop {
			r.All = append(r.All, snapshots.Snapshot{Name: w.Name, UID: w.UID, State: snapshots.StateDropped})
		} else if !slices.Contains(has, w.Name) {
			r.All = append(r.All, snapshots.Snapshot{Name: w.Name, UID: w.UID, State: snapshots.StatePending, Message: "no room"})
		}
	}
	all, err := f.reg.ListObserved(f.t.Context(), uuid)
	f.ok(err)
	if v.Rollback != nil {
		r.Rolled = &snapshots.Rolled{ID: v.Rollback.ID, State: f.rolled, Message: f.rolledWhy}
	}
	all[0].Snapshots = r
	f.ok(f.reg.PutObserved(f.t.Context(), all[0]))
}

func (f *fed) taken(i int) time.Time {
	return time.Date(2026, 5, 1, 11, i, 0, 123456789, time.UTC)
}

// wishes are the names that a volume's record asks for, and with "-" those that are to be dropped.
func (f *fed) wishes(uuid string) string {
	f.t.Helper()
	var out []string
	for _, w := range f.record(uuid).Snapshots {
		if w.Drop {
			w.Name = "-" + w.Name
		}
		out = append(out, w.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func gvs(namespace, name, of string, change ...func(*v1alpha1.GeoVolumeSnapshotSpec)) *v1alpha1.GeoVolumeSnapshot {
	s := &v1alpha1.GeoVolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.GeoVolumeSnapshotSpec{Source: v1alpha1.SnapshotSource{Kind: "GeoVolume", Name: of},
			DeletionPolicy: v1alpha1.Delete}}
	for _, f := range change {
		f(&s.Spec)
	}
	return s
}

// snapped makes a cluster with a volume that its home serves.
func snapped(t *testing.T) (*fed, *cluster, string) {
	f := newFed(t)
	f.site("ams", "uva")
	f.site("utr", "uva")
	c := f.cluster("ams")
	g := c.volume("ns", "v", nil)
	f.serve(c.uuid(g), 0)
	settleAll(c)
	return f, c, c.uuid(g)
}

// TestSnapshotObject: a GeoVolumeSnapshot is ready when the home has taken it, and goes when the
// home has dropped it and the record does not ask for it any more.
func TestSnapshotObject(t *testing.T) {
	f, c, id := snapped(t)
	s := gvs("ns", "s", "v")
	c.create(s)
	settleAll(c)
	c.get(s)
	c.ready(s, metav1.ConditionFalse, v1alpha1.ReasonCreating, "has not told yet which snapshots there are")
	f.keep(id)
	settleAll(c)
	if got := f.wishes(id); got != "s" || f.record(id).Generation != 1 {
		t.Fatalf("asked for is %q, in generation %d", got, f.record(id).Generation)
	}
	f.keep(id)
	settleAll(c)
	c.get(s)
	c.ready(s, metav1.ConditionFalse, v1alpha1.ReasonCreating, "tries again: no room")
	f.keep(id, "s", "hourly-2026-05-01T11-00Z")
	settleAll(c)
	c.get(s)
	c.ready(s, metav1.ConditionTrue, v1alpha1.ReasonReady, ".snapshots/s")
	if st := s.Status; st.Time == nil || !st.Time.Time.Equal(f.taken(0).Truncate(time.Second)) || st.Size.String() != "1Mi" ||
		st.Files != 3 || st.Volume != id || st.Snapshot != "s" {
		t.Errorf("status is %+v", st)
	}
	g := gv("ns", "v", nil)
	c.get(g)
	content := contentOf(id)
	c.get(content)
	if g.Status.Snapshots == nil || *g.Status.Snapshots != 2 || content.Status.Snapshots.Newest[1].Name != "s" {
		t.Errorf("the volume shows %v, and %+v", g.Status.Snapshots, content.Status.Snapshots)
	}

	c.delete(s)
	settleAll(c)
	c.get(s)
	c.ready(s, metav1.ConditionFalse, v1alpha1.ReasonDeleting, "home drops the snapshot")
	if got := f.wishes(id); got != "-s" {
		t.Fatalf("asked for is %q", got)
	}
	f.keep(id, "s", "hourly-2026-05-01T11-00Z")
	settleAll(c)
	if c.has(s) || f.wishes(id) != "" {
		t.Errorf("the object is there: %v, and asked for is %q", c.has(s), f.wishes(id))
	}
}

// TestSnapshotSources: a snapshot is of a GeoVolume or a PersistentVolumeClaim of its namespace,
// under its own name or another.
func TestSnapshotSources(t *testing.T) {
	f, c, id := snapped(t)
	pvc := "0b7c7a52-0000-4000-8000-000000000001"
	content := contentOf(pvc)
	content.Spec = v1alpha1.GeoVolumeContentSpec{FederationName: "pvc-1", Owner: "ams", Size: resource.MustParse("1Gi"),
		ReclaimPolicy: v1alpha1.Delete, Claims: []v1alpha1.ClaimReference{{Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "v",
			Access: v1alpha1.ReadWrite}}}
	c.create(content)
	settleAll(c)
	f.keep(id)
	f.keep(pvc)
	ofClaim := func(s *v1alpha1.GeoVolumeSnapshotSpec) { s.Source.Kind = "PersistentVolumeClaim" }
	a, b := gvs("ns", "a", "v"), gvs("ns", "b", "v", ofClaim, func(s *v1alpha1.GeoVolumeSnapshotSpec) { s.SnapshotName = "Before" })
	other, none := gvs("other", "c", "v"), gvs("ns", "d", "w")
	for _, s := range []*v1alpha1.GeoVolumeSnapshot{a, b, other, none} {
		c.create(s)
	}
	settleAll(c)
	if f.wishes(id) != "a" || f.wishes(pvc) != "Before" {
		t.Errorf("asked for are %q and %q", f.wishes(id), f.wishes(pvc))
	}
	for _, s := range []*v1alpha1.GeoVolumeSnapshot{other, none} {
		c.get(s)
		c.ready(s, metav1.ConditionFalse, v1alpha1.ReasonNotFound, "no volume of Weir belongs to GeoVolume "+s.Spec.Source.Name)
		c.delete(s)
	}
	settleAll(c)
	if c.has(other) || c.has(none) {
		t.Error("objects that asked for nothing do not go")
	}
}

// TestSnapshotNames: of two objects that give one name, the first gets the snapshot; and a snapshot
// that is there for somebody else is neither taken for this one's nor dropped with it.
func TestSnapshotNames(t *testing.T) {
	f, c, id := snapped(t)
	first, second := gvs("ns", "a", "v"), gvs("ns", "b", "v", func(s *v1alpha1.GeoVolumeSnapshotSpec) { s.SnapshotName = "a" })
	third := gvs("ns", "there", "v")
	f.keep(id, "there")
	for _, s := range []*v1alpha1.GeoVolumeSnapshot{first, second, third} {
		c.create(s)
		settleAll(c)
	}
	c.get(second)
	c.ready(second, metav1.ConditionFalse, v1alpha1.ReasonConflict, "another GeoVolumeSnapshot has asked for a snapshot a")
	c.get(third)
	c.ready(third, metav1.ConditionFalse, v1alpha1.ReasonConflict, "the volume has a snapshot there already")
	c.delete(second)
	c.delete(third)
	settleAll(c)
	if c.has(second) || c.has(third) || f.wishes(id) != "a" {
		t.Errorf("asked for is %q", f.wishes(id))
	}
}

func TestSnapshotIsRetained(t *testing.T) {
	f, c, id := snapped(t)
	s := gvs("ns", "s", "v", func(s *v1alpha1.GeoVolumeSnapshotSpec) { s.DeletionPolicy = v1alpha1.Retain })
	f.keep(id)
	c.create(s)
	settleAll(c)
	f.keep(id, "s")
	settleAll(c)
	c.delete(s)
	settleAll(c)
	if c.has(s) || f.wishes(id) != "" {
		t.Errorf("asked for is %q", f.wishes(id))
	}
}

// TestSnapshotAfterRestore: a registry that has lost the wish gets it again for the snapshot that
// is there. One that is gone is not taken again.
func TestSnapshotAfterRestore(t *testing.T) {
	f, c, id := snapped(t)
	f.keep(id)
	all := []*v1alpha1.GeoVolumeSnapshot{gvs("ns", "a", "v"), gvs("ns", "b", "v"), gvs("ns", "c", "v")}
	for _, s := range all {
		c.create(s)
	}
	settleAll(c)
	f.keep(id, "a", "b", "c")
	settleAll(c)
	v, rev, err := f.reg.GetVolume(t.Context(), id)
	f.ok(err)
	v.Snapshots = nil
	_, err = f.reg.UpdateVolume(t.Context(), rev, v)
	f.ok(err)
	f.keep(id, "a", "x", "c") // b is gone
	settleAll(c)
	f.keep(id, "a", "x", "c")
	settleAll(c)
	if got := f.wishes(id); got != "a c" {
		t.Errorf("asked for is %q", got)
	}
	for i, s := range all {
		c.get(s)
		if i == 1 {
			c.ready(s, metav1.ConditionFalse, v1alpha1.ReasonNotFound, "was dropped, and not by deleting this object")
		} else {
			c.ready(s, metav1.ConditionTrue, v1alpha1.ReasonReady)
		}
	}
	f.keep(id, "c", "x", "a") // others of these names
	settleAll(c)
	c.get(all[0])
	c.ready(all[0], metav1.ConditionFalse, v1alpha1.ReasonConflict, "not the one that was taken for this object")
}

// TestSnapshotIsDroppedForGood: an object that is deleted before its snapshot was reported stays
// until the home says that it cannot be taken any more. What another home said does not count.
func TestSnapshotIsDroppedForGood(t *testing.T) {
	f, c, id := snapped(t)
	s := gvs("ns", "s", "v")
	f.keep(id)
	c.create(s)
	settleAll(c)
	c.delete(s)
	settleAll(c)
	if got := f.wishes(id); got != "-s" {
		t.Fatalf("asked for is %q", got)
	}
	f.ok(f.reg.PutObserved(t.Context(), federation.Observed{Volume: id, Gateway: "utr-1", Snapshots: &snapshots.Report{
		All: []snapshots.Snapshot{{Name: "s", UID: string(s.UID), State: snapshots.StateDropped}}}}))
	settleAll(c)
	if !c.has(s) {
		t.Fatal("the object went by what another gateway says")
	}
	f.keep(id)
	settleAll(c)
	if c.has(s) || f.wishes(id) != "" {
		t.Errorf("asked for is %q", f.wishes(id))
	}
}

// TestManySnapshots: a record asks for so many snapshots, and no more.
func TestManySnapshots(t *testing.T) {
	f, c, id := snapped(t)
	f.keep(id)
	v, rev, err := f.reg.GetVolume(t.Context(), id)
	f.ok(err)
	for i := range snapshots.MaxWishes {
		v.Snapshots = append(v.Snapshots, snapshots.Wish{Name: fmt.Sprint("s", i), UID: "u"})
	}
	_, err = f.reg.UpdateVolume(t.Context(), rev, v)
	f.ok(err)
	s := gvs("ns", "more", "v")
	c.create(s)
	settleAll(c)
	c.get(s)
	c.ready(s, metav1.ConditionFalse, v1alpha1.ReasonExhausted, "128 snapshots of this volume are asked for")
}

// TestSnapshotOfAnotherCluster: only the owner's cluster asks for snapshots.
func TestSnapshotOfAnotherCluster(t *testing.T) {
	f, ams, id := snapped(t)
	g := gv("ns", "v", nil)
	ams.get(g)
	edit(ams, g, func(g *v1alpha1.GeoVolume) { granted("utr", "lab")(&g.Spec) })
	utr := f.cluster("utr")
	settleAll(ams, utr)
	utr.create(imported("lab", "v", "ns.v"))
	settleAll(ams, utr)
	f.keep(id)
	s := gvs("lab", "s", "v")
	utr.create(s)
	settleAll(ams, utr)
	utr.get(s)
	utr.ready(s, metav1.ConditionFalse, v1alpha1.ReasonNotOwner, "make the GeoVolumeSnapshot in the cluster there")
	utr.delete(s)
	settleAll(ams, utr)
	if utr.has(s) || f.wishes(id) != "" {
		t.Errorf("asked for is %q", f.wishes(id))
	}
}

// TestSnapshotRollsBack: an object has the volume rolled back to its snapshot once for each value
// of spec.rollback. One that was there from the beginning does nothing.
func TestSnapshotRollsBack(t *testing.T) {
	f, c, id := snapped(t)
	s := gvs("ns", "s", "v", func(s *v1alpha1.GeoVolumeSnapshotSpec) { s.Rollback = "v/old" })
	c.create(s)
	settleAll(c)
	f.keep(id)
	settleAll(c)
	f.keep(id, "s")
	settleAll(c)
	is := func(state snapshots.State, says string) *v1alpha1.SnapshotRollback {
		t.Helper()
		c.get(s)
		c.ready(s, metav1.ConditionTrue, v1alpha1.ReasonReady)
		r := s.Status.Rollback
		if r == nil || r.State != string(state) || r.Value != s.Spec.Rollback || !strings.Contains(r.Message, says) {
			t.Fatalf("the rollback is %+v, want %s, %q", r, state, says)
		}
		return r
	}
	is(snapshots.StateRefused, "write another value")
	if f.record(id).Rollback != nil {
		t.Fatal("what was there from the beginning is done")
	}
	write := func(value string) {
		t.Helper()
		edit(c, s, func(s *v1alpha1.GeoVolumeSnapshot) { s.Spec.Rollback = value })
		settleAll(c)
	}
	write("v/1")
	asked := f.record(id).Rollback
	if asked == nil || asked.To != "s" || f.record(id).Generation != 1 {
		t.Fatalf("asked for is %+v, in generation %d", asked, f.record(id).Generation)
	}
	f.rolled, f.rolledWhy = snapshots.StatePending, "no room"
	f.keep(id, "s")
	settleAll(c)
	is(snapshots.StatePending, "tries again: no room")
	f.rolled, f.rolledWhy = snapshots.StateDone, ""
	f.keep(id, "s")
	settleAll(c)
	if r := is(snapshots.StateDone, ""); r.Before != asked.Before() || f.record(id).Rollback != nil {
		t.Errorf("the status says %+v, and the record asks for %+v", r, f.record(id).Rollback)
	}
	f.keep(id, "s")
	settleAll(c)
	if got := f.record(id).Rollback; got != nil {
		t.Fatalf("it is asked for again: %+v", got)
	}
	write("v/2")
	if got := f.record(id).Rollback; got == nil || got.ID == asked.ID {
		t.Fatalf("asked for is %+v, before %+v", got, asked)
	}
	f.rolled, f.rolledWhy = snapshots.StateRefused, "too late"
	f.keep(id, "s")
	settleAll(c)
	is(snapshots.StateRefused, "too late")
	write("")
	if c.get(s); s.Status.Rollback != nil || f.record(id).Rollback != nil {
		t.Errorf("without a value the status says %+v", s.Status.Rollback)
	}
}
