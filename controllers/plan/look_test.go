// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

// world is a volume at ams (home), utr and gro, all alive and with the home's report.
type world struct {
	Seen
	dead, lost map[string]bool
}

func testWorld() *world {
	m := func(site string) federation.Member {
		return federation.Member{Gateway: site + "-1", Site: site, Incarnation: "1"}
	}
	w := &world{dead: map[string]bool{}, lost: map[string]bool{}}
	w.Volume = volumeOf(nil)
	w.Volume.Sites = []string{"ams", "utr", "gro"}
	w.Volume.Spec.Replication.Copies = 3
	w.Volume.Spec.Durability.MaxLag = federation.MaxLag{Time: federation.Duration(time.Minute), Bytes: 1 << 30}
	w.Control = &federation.Control{Volume: "u", Epoch: 4, Home: m("ams"), Members: []federation.Member{m("ams")}}
	w.Observed = &federation.Observed{Volume: "u", Gateway: "ams-1", Generation: 3, Epoch: 4, Home: "ams-1", Used: 5 << 20, At: testTime,
		Replicas: []federation.ObservedReplica{
			{Gateway: "ams-1", Site: "ams", State: federation.ReplicaHome},
			{Gateway: "utr-1", Site: "utr", State: federation.ReplicaMember, LagSeconds: 0.2},
			{Gateway: "gro-1", Site: "gro", State: federation.ReplicaFollower, LagSeconds: 12.9, LagBytes: 3<<20 + 1},
		}}
	w.Alive = func(g, incarnation string) bool { return !w.dead[g] && (incarnation == "" || incarnation == "1") }
	w.Gateways = func(site string) []string { return []string{site + "-1"} }
	w.Lost = func(site string) bool { return w.lost[site] }
	return w
}

// unheard is a copy that has not answered the present home.
var unheard = federation.ObservedReplica{Gateway: "gro-1", Site: "gro", State: federation.ReplicaLost, Unheard: true}

func TestLook(t *testing.T) {
	for _, tt := range []struct {
		name             string
		change           func(*world)
		ready            bool
		reason, says     string
		copies, lag      string
		working, stalled bool
	}{
		{name: "well", change: func(*world) {}, ready: true, reason: v1alpha1.ReasonReady, says: "home ams-1 at site ams", copies: "3/3",
			lag: "12s"},
		{name: "no home yet", change: func(w *world) { w.Control, w.Observed = nil, nil }, reason: v1alpha1.ReasonCreating,
			says: "gateway ams-1 at site ams begins to serve it", copies: "0/3", lag: "unknown", working: true},
		{name: "no gateway where it begins", change: func(w *world) { w.Control, w.Observed, w.dead["ams-1"] = nil, nil, true },
			reason: v1alpha1.ReasonCreating, says: "no gateway of site ams, where it begins, is alive", copies: "0/3", lag: "unknown",
			working: true},
		{name: "a copy is gone", change: func(w *world) { w.dead["gro-1"] = true }, ready: true, reason: v1alpha1.ReasonDegraded,
			says: "gro: gro-1 does not answer", copies: "2/3", lag: "12s", working: true},
		{name: "a copy is behind", change: func(w *world) { w.Observed.Replicas[2].LagSeconds = 61 }, ready: true,
			reason: v1alpha1.ReasonDegraded, says: "gro-1 is 1m and 3145729 behind, more than maxLag", copies: "2/3", lag: "1m",
			working: true},
		{name: "a copy is behind in bytes", change: func(w *world) { w.Observed.Replicas[1].LagBytes = 2 << 30 }, ready: true,
			reason: v1alpha1.ReasonDegraded, says: "utr-1", copies: "2/3", lag: "12s", working: true},
		{name: "a copy joins", change: func(w *world) { w.Observed.Replicas[1].State = federation.ReplicaJoining }, ready: true,
			reason: v1alpha1.ReasonDegraded, says: "utr-1 is Joining", copies: "2/3", lag: "12s", working: true},
		{name: "writes wait", change: func(w *world) { w.Observed.Message = "fewer members than wanted: writes wait" },
			reason: v1alpha1.ReasonWritesWait, says: "fewer members than wanted", copies: "3/3", lag: "12s", working: true},
		{name: "a blind copy leads", change: func(w *world) { w.Volume.Blind, w.Observed.Message = []string{"ams"}, "x" },
			reason: v1alpha1.ReasonMoving, says: "its copy at site ams is blind", copies: "3/3", lag: "12s", working: true},
		{name: "the home replays its log", change: func(w *world) {
			w.Observed.Message, w.Observed.Opening = "its log is replayed: 37%", "its log is replayed: 37%"
			w.Observed.Replay = federation.Progress{Copied: 37, Total: 100}
		}, reason: v1alpha1.ReasonOpening, says: "serves nothing until then: its log is replayed: 37%", copies: "3/3", lag: "12s",
			working: true},
		{name: "not in force yet", change: func(w *world) { w.Volume.Generation = 4 }, ready: true, reason: v1alpha1.ReasonUpdating,
			says: "generation 4", copies: "3/3", lag: "12s", working: true},
		{name: "a gateway that does not tell generations", change: func(w *world) { w.Observed.Generation = 0 }, ready: true,
			reason: v1alpha1.ReasonReady, copies: "3/3", lag: "12s"},
		{name: "the home is lost, a member takes over", change: func(w *world) {
			w.dead["ams-1"] = true
			w.Control.Members = append(w.Control.Members, federation.Member{Gateway: "utr-1", Site: "utr", Incarnation: "1"})
		}, reason: v1alpha1.ReasonMoving, says: "utr-1 takes over by itself", copies: "2/3", lag: "12s", working: true},
		{name: "the home is lost, nobody is sure to have all", change: func(w *world) { w.dead["ams-1"] = true },
			reason: v1alpha1.ReasonHomeLost,
			says: "after its last report at 2026-05-01T12:00:00Z may be only there, and utr-1 was then <1s (0) behind, and gro-1 " +
				"was then 12s",
			copies: "2/3", lag: "12s", stalled: true},
		{name: "the home is lost, and had not heard of a copy",
			change: func(w *world) {
				w.dead["ams-1"] = true
				w.Observed.Replicas[2] = unheard
			},
			reason: v1alpha1.ReasonHomeLost, says: "and how far gro-1 was then behind is not known", copies: "1/3", lag: "<1s",
			stalled: true},
		{name: "the home has not heard of a copy", change: func(w *world) {
			w.Observed.Replicas[2] = unheard
		}, ready: true, reason: v1alpha1.ReasonDegraded, says: "gro: gro-1 has not answered the present home", copies: "2/3", lag: "<1s",
			working: true},
		{name: "the home is there, on an empty pool",
			change: func(w *world) { w.Control.Home.Incarnation, w.Control.Members[0].Incarnation = "0", "0" },
			reason: v1alpha1.ReasonHomeLost, copies: "2/3", lag: "12s", stalled: true},
		{name: "the home never reported", change: func(w *world) { w.dead["ams-1"], w.Observed = true, nil },
			reason: v1alpha1.ReasonHomeLost, says: "it never reported", copies: "0/3", lag: "unknown", stalled: true},
		{name: "a site is lost and was never reported",
			change: func(w *world) { w.lost["gro"], w.Observed.Replicas = true, w.Observed.Replicas[:2] }, ready: true,
			reason: v1alpha1.ReasonDegraded, says: "gro: the site was declared lost", copies: "2/3", lag: "<1s", working: true},
		{name: "in the trash", change: func(w *world) { w.Volume.Deleted, w.Volume.DeletedAt = true, testTime },
			reason: v1alpha1.ReasonDeleted, copies: "3/3", lag: "12s"},
		{name: "one copy", change: func(w *world) { w.Volume.Sites, w.Volume.Spec.Replication.Copies = w.Volume.Sites[:1], 1 }, ready: true,
			reason: v1alpha1.ReasonReady, copies: "1/1", lag: "<1s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := testWorld()
			tt.change(w)
			v := Look(w.Seen)
			if v.Ready.True != tt.ready || v.Ready.Reason != tt.reason || !strings.Contains(v.Ready.Message, tt.says) ||
				v.Copies != tt.copies || v.Lag != tt.lag ||
				v.Working != tt.working || v.Stalled != tt.stalled {
				t.Errorf("got %+v, copies %s, lag %s, working %v, stalled %v", v.Ready, v.Copies, v.Lag, v.Working, v.Stalled)
			}
			if v.Protected.True != (v.Copies[0] == v.Copies[2]) {
				t.Errorf("Protected is %+v", v.Protected)
			}
		})
	}
}

func TestLookAtReplicas(t *testing.T) {
	w := testWorld()
	w.Volume.Sites = []string{"ams", "utr"} // gro is leaving, and still a member
	w.Control.Members = append(w.Control.Members, federation.Member{Gateway: "gro-1", Site: "gro", Incarnation: "1"})
	v := Look(w.Seen)
	var got []string
	for _, r := range v.Replicas {
		got = append(got, string(r.Site)+" "+r.State+" "+r.Lag)
	}
	if s := strings.Join(got, ", "); s != "ams Home , utr Member <1s, gro Follower 12s" || v.Replicas[2].LagBytes.String() != "4Mi" ||
		v.Replicas[1].LagBytes != nil {
		t.Errorf("got %s", s)
	}
	if v.Home != (v1alpha1.VolumeHome{Site: "ams", Gateway: "ams-1", Epoch: 4}) || v.Used != 5<<20 {
		t.Errorf("got %+v", v)
	}
}

// TestLookAtProgress: nothing is copied while the home is away.
func TestLookAtProgress(t *testing.T) {
	w := testWorld()
	w.Observed.Replicas[2].State = federation.ReplicaJoining
	w.Observed.Replicas[2].Progress = federation.Progress{Copied: 1, Total: 4, BytesPerSecond: 1, SecondsLeft: 3}
	if got := Look(w.Seen).Replicas[2].Progress; got == "" {
		t.Error("no progress")
	}
	w.dead["ams-1"] = true
	if got := Look(w.Seen).Replicas[2].Progress; got != "" {
		t.Errorf("the home is away: %s", got)
	}
}

// What is used is shown coarsely, and never as less.
func TestLookAtUsed(t *testing.T) {
	for _, tt := range []struct{ used, shown federation.Bytes }{
		{0, 0}, {1, 1 << 20}, {1 << 20, 1 << 20}, {255<<20 + 1, 256 << 20}, {256<<20 + 1, 258 << 20}, {300 << 30, 300 << 30},
		{300<<30 + 1, 302 << 30},
	} {
		w := testWorld()
		w.Observed.Used = tt.used
		if v := Look(w.Seen); v.Used != tt.shown {
			t.Errorf("%d bytes are shown as %v, want %v", tt.used, v.Used, tt.shown)
		}
	}
}

// Reconciling and Stalled are there only while they are true, and never both.
func TestSetReady(t *testing.T) {
	var list []metav1.Condition
	set := func(at time.Time, s State, working, stalled bool) (reconciling, isStalled bool) {
		SetReady(&list, 2, at, s, working, stalled)
		return meta.IsStatusConditionTrue(list, v1alpha1.ConditionReconciling), meta.IsStatusConditionTrue(list, v1alpha1.ConditionStalled)
	}
	if r, s := set(testTime, State{Reason: "A"}, true, false); !r || s {
		t.Error("not reconciling")
	}
	if r, s := set(testTime.Add(time.Hour), State{Reason: "B", Message: strings.Repeat("x", 40_000)}, true, true); r || !s {
		t.Error("not stalled, or also reconciling")
	}
	c := meta.FindStatusCondition(list, v1alpha1.ConditionReady)
	if !c.LastTransitionTime.Time.Equal(testTime) || len(c.Message) > 32_768 || c.ObservedGeneration != 2 {
		t.Errorf("Ready is of %v, %d bytes", c.LastTransitionTime, len(c.Message))
	}
	if r, s := set(testTime.Add(time.Hour), State{True: true, Reason: "C"}, false, false); r || s || len(list) != 1 {
		t.Errorf("conditions %v", list)
	}
	if c = meta.FindStatusCondition(list, v1alpha1.ConditionReady); !c.LastTransitionTime.Time.Equal(testTime.Add(time.Hour)) {
		t.Errorf("Ready is of %v", c.LastTransitionTime)
	}
}
