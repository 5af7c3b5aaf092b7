// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation/snapshots"
)

// fill plays the home of a volume that is made of a snapshot.
func (f *fed) fill(uuid string, filled snapshots.Filled) {
	f.t.Helper()
	f.serve(uuid, 0)
	all, err := f.reg.ListObserved(f.t.Context(), uuid)
	f.ok(err)
	all[0].Snapshots = &snapshots.Report{Filled: &filled}
	f.ok(f.reg.PutObserved(f.t.Context(), all[0]))
}

func of(source v1alpha1.VolumeSource) func(*v1alpha1.GeoVolumeSpec) {
	return func(s *v1alpha1.GeoVolumeSpec) { s.Source, s.ReclaimPolicy = &source, v1alpha1.Delete }
}

// TestVolumeOfASnapshot: a volume is made of the snapshot of a GeoVolumeSnapshot, and is ready when
// its home has said that it has all. Meanwhile the other volume is not deleted.
func TestVolumeOfASnapshot(t *testing.T) {
	f, c, id := snapped(t)
	w := c.volume("ns", "w", of(v1alpha1.VolumeSource{Snapshot: "s"}))
	c.ready(w, metav1.ConditionFalse, v1alpha1.ReasonNotFound, "there is no GeoVolumeSnapshot s in this namespace")
	f.keep(id)
	c.create(gvs("ns", "s", "v"))
	settleAll(c)
	c.get(w)
	c.ready(w, metav1.ConditionFalse, v1alpha1.ReasonNotFound, "s is not taken yet")
	f.keep(id, "s")
	settleAll(c)
	c.get(w)
	made := c.uuid(w)
	src := f.record(made).Source
	if src == nil || src.Volume != id || src.Snapshot != "s" || src.Snap != 1 || !src.Time.Equal(f.taken(0)) || src.Bytes != 1<<20 ||
		src.Inodes != 3 || src.Done {
		t.Fatalf("the record has the source %+v", src)
	}
	f.fill(made, snapshots.Filled{Bytes: 1 << 19, Inodes: 1, Message: "no home answers"})
	settleAll(c)
	c.get(w)
	c.ready(w, metav1.ConditionFalse, v1alpha1.ReasonFilling, "512Ki of 1Mi, 1 of 3 files", "tries again: no home answers")

	g := gv("ns", "v", nil)
	c.get(g)
	g.Spec.ReclaimPolicy = v1alpha1.Delete
	f.ok(c.api.Update(t.Context(), g))
	settleAll(c)
	c.delete(g)
	settleAll(c)
	if f.record(id).Deleted || f.record(id).Closing {
		t.Fatal("the volume of which another is being made is deleted")
	}
	f.fill(made, snapshots.Filled{Done: true})
	settleAll(c)
	c.get(w)
	if !f.record(made).Source.Done {
		t.Error("the record does not say that it has all")
	}
	if r := conditionOf(w.Status.Conditions, v1alpha1.ConditionReady); r.Reason == v1alpha1.ReasonFilling {
		t.Errorf("it says %s", r.Message)
	}
	settleAll(c)
	if v := f.record(id); !v.Deleted {
		t.Error("the other volume is not deleted when that has all")
	}
}

// TestVolumeOfAVolume: a snapshot is taken for a clone, and dropped when that has all, or is
// deleted.
func TestVolumeOfAVolume(t *testing.T) {
	f, c, id := snapped(t)
	f.keep(id)
	w := c.volume("ns", "w", of(v1alpha1.VolumeSource{Volume: "v"}))
	made := c.uuid(w)
	name := "clone-" + made
	c.ready(w, metav1.ConditionFalse, v1alpha1.ReasonCreating, "takes a snapshot of it")
	if got := f.wishes(id); got != name {
		t.Fatalf("asked for is %q", got)
	}
	f.keep(id, name)
	settleAll(c)
	c.get(w)
	if src := f.record(made).Source; src == nil || src.Snapshot != name || src.Snap != 1 {
		t.Fatalf("the record has the source %+v", src)
	}
	f.fill(made, snapshots.Filled{Done: true})
	settleAll(c)
	if got := f.wishes(id); got != "-"+name {
		t.Fatalf("asked for is %q", got)
	}
	f.keep(id, name)
	settleAll(c)
	if got := f.wishes(id); got != "" {
		t.Fatalf("asked for is %q", got)
	}

	x := c.volume("ns", "x", of(v1alpha1.VolumeSource{Volume: "v"}))
	if got := f.wishes(id); got != "clone-"+c.uuid(x) {
		t.Fatalf("asked for is %q", got)
	}
	c.delete(x) // before there is a volume
	settleAll(c)
	if got := f.wishes(id); c.has(x) || got != "-clone-"+c.uuid(x) {
		t.Errorf("it is there: %v, and asked for is %q", c.has(x), got)
	}
}

// TestSourcesThatDoNotFit: a volume that is too small, or is to be made of what belongs to others,
// is not made.
func TestSourcesThatDoNotFit(t *testing.T) {
	f, c, id := snapped(t)
	f.keep(id, "one")
	small := c.volume("ns", "small", func(s *v1alpha1.GeoVolumeSpec) {
		of(v1alpha1.VolumeSource{Volume: "v"})(s)
		q := resource.MustParse("1Ki")
		s.Size = &q
	})
	f.keep(id, "one", "clone-"+c.uuid(small))
	settleAll(c)
	c.get(small)
	c.ready(small, metav1.ConditionFalse, v1alpha1.ReasonInvalid, "spec.size is 1Ki, and the snapshot has 1Mi")
	none := c.volume("ns", "none", of(v1alpha1.VolumeSource{Volume: "missing"}))
	c.ready(none, metav1.ConditionFalse, v1alpha1.ReasonNotFound, "there is no GeoVolume missing")
	elsewhere := c.volume("other", "w", of(v1alpha1.VolumeSource{Volume: "v"}))
	c.ready(elsewhere, metav1.ConditionFalse, v1alpha1.ReasonNotFound, "there is no GeoVolume v in this namespace")
	if strings.Contains(f.wishes(id), c.uuid(elsewhere)) {
		t.Error("another namespace's volume is asked for a snapshot")
	}
}
