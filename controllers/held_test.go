// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation/snapshots"
)

// told makes the home say something of the only wish of a volume's record, which it returns.
func (f *fed) told(uuid string, s snapshots.Snapshot) snapshots.Wish {
	f.t.Helper()
	f.serve(uuid, 0)
	v := f.record(uuid)
	if len(v.Snapshots) != 1 {
		f.t.Fatalf("asked for are %+v", v.Snapshots)
	}
	w := v.Snapshots[0]
	s.Name, s.UID = w.Name, w.UID
	all, err := f.reg.ListObserved(f.t.Context(), uuid)
	f.ok(err)
	all[0].Snapshots = &snapshots.Report{All: []snapshots.Snapshot{s}}
	f.ok(f.reg.PutObserved(f.t.Context(), all[0]))
	return w
}

// upgrade gives the gateway of a site the format level of those that can hold changes.
func (f *fed) upgrade(name string) {
	f.t.Helper()
	sites, err := f.reg.Sites(f.t.Context())
	f.ok(err)
	for _, x := range sites {
		if s := x.Site; s.Name == name {
			s.Cluster, s.Gateways[0].Format = "", snapshots.HoldLevel // as a gateway registers
			f.ok(f.reg.Register(f.t.Context(), s))
		}
	}
}

// TestHeldSnapshot: what is to be taken while changes are held is asked for when all gateways can
// read that, is taken by the token that its object names, and says so if it is missed.
func TestHeldSnapshot(t *testing.T) {
	f, c, id := snapped(t)
	f.keep(id)
	s := gvs("ns", "s", "v", func(s *v1alpha1.GeoVolumeSnapshotSpec) { s.Hold = true })
	s.UID = "0b7c7a52-0000-4000-8000-00000000000a"
	c.create(s)
	f.upgrade("ams")
	settleAll(c)
	c.get(s)
	c.ready(s, metav1.ConditionFalse, v1alpha1.ReasonOldGateway, "gateway utr-1 of site utr")
	if got := f.wishes(id); got != "" {
		t.Fatalf("asked for is %q, which gateway utr-1 can not read", got)
	}
	f.upgrade("utr")
	f.advance(time.Hour)
	settleAll(c)
	want := snapshots.Wish{Name: "s-" + string(s.UID), UID: string(s.UID), Hold: true}
	if w := f.told(id, snapshots.Snapshot{State: snapshots.StateHeld, Token: "t1"}); w != want {
		t.Fatalf("asked for is %+v, want %+v", w, want)
	}
	settleAll(c)
	c.get(s)
	c.ready(s, metav1.ConditionFalse, v1alpha1.ReasonCreating, "holds changes")
	if s.Status.Hold != "t1" {
		t.Errorf("status has the token %q", s.Status.Hold)
	}
	edit(c, s, func(s *v1alpha1.GeoVolumeSnapshot) { s.Spec.Take = "t1" })
	settleAll(c)
	want.Take = "t1"
	if w := f.told(id, snapshots.Snapshot{State: snapshots.StateMissed}); w != want {
		t.Fatalf("asked for is %+v, want %+v", w, want)
	}
	settleAll(c)
	c.get(s)
	c.ready(s, metav1.ConditionFalse, v1alpha1.ReasonMissed, "has not taken")
	f.told(id, snapshots.Snapshot{State: snapshots.StateTaken, Time: f.taken(0), Snap: 1})
	settleAll(c)
	c.get(s)
	c.ready(s, metav1.ConditionTrue, v1alpha1.ReasonReady, ".snapshots/s-")
}
