// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/memory"
)

// told is a watcher that delivers these events.
type told []federation.Event

func (w told) Watch(_ context.Context, fn func(federation.Event) error) error {
	for _, e := range w {
		if err := fn(e); err != nil {
			return err
		}
	}
	return errors.New("the watch ends")
}

func (told) Head(context.Context) (federation.Head, error) { return federation.Head{}, nil }

func volumeEvent(uuid, name string, rev federation.Revision, sites ...string) federation.Event {
	return federation.Event{Kind: federation.KindVolume, Name: uuid, Revision: rev,
		Volume: &federation.Volume{UUID: uuid, Name: name, OwnerSite: "utr", OwnerCluster: "uid-utr", Spec: federation.VolumeSpec{Size: 10},
			Sites: sites}}
}

var synced = federation.Event{Kind: federation.KindSynced}

// What vanished while no watch ran is noticed by the next.
func TestAMirrorIsFilledAgain(t *testing.T) {
	m := New(plan.Self{Site: "ams", Cluster: "uid-ams"})
	_ = m.Watch(t.Context(), told{volumeEvent("a", "ns.a", 1, "ams"), volumeEvent("b", "ns.b", 2, "ams", "utr"), synced})
	if load, n := m.Promised("ams"); load != 20 || n != 2 || m.Named("ns.a") == nil {
		t.Fatalf("%v are promised to %d", load, n)
	}
	about := map[string]bool{}
	m.OnNews(func(n News) { about[n.Volume] = n.Mine })
	_ = m.Watch(t.Context(), told{volumeEvent("b", "ns.b", 2, "utr"), synced, volumeEvent("c", "ns.c", 9)})
	if load, n := m.Promised("ams"); load != 0 || n != 0 || m.Named("ns.a") != nil || m.Volume("a") != nil {
		t.Errorf("%v are promised to %d", load, n)
	}
	if mine, ok := about["a"]; !ok || !mine {
		t.Errorf("told of %v", about)
	}
	if mine, ok := about["c"]; !ok || mine {
		t.Errorf("told of %v", about)
	}
}

// A record that cannot be read is unknown, and what was known before stays.
func TestARecordOfANewerRelease(t *testing.T) {
	m := New(plan.Self{Site: "ams", Cluster: "uid-ams"})
	_ = m.Watch(t.Context(), told{volumeEvent("a", "ns.a", 1, "ams"), synced,
		{Kind: federation.KindVolume, Name: "a", Revision: 2, Err: federation.ErrVersion}})
	if e := m.Volume("a"); e == nil || e.Record == nil || !errors.Is(e.Problem, federation.ErrVersion) {
		t.Errorf("got %+v", e)
	}
	if load, n := m.Promised("ams"); load != 10 || n != 1 {
		t.Errorf("%v are promised to %d", load, n)
	}
}

// Two volumes do not get the same room, though neither is in the registry yet.
func TestReservations(t *testing.T) {
	m := New(plan.Self{Site: "ams", Cluster: "uid-ams"})
	_ = m.Watch(t.Context(), told{{Kind: federation.KindSite, Name: "ams", Site: &federation.Site{Name: "ams", Capacity: 100}}, synced})
	m.Reserve("a", []string{"ams"}, 60)
	if got := m.Candidates("b", "", time.Time{})[0].Promised; got != 60 {
		t.Errorf("%v are promised to others", got)
	}
	if got := m.Candidates("a", "", time.Time{})[0].Promised; got != 0 {
		t.Errorf("%v are promised besides one's own", got)
	}
	v := *volumeEvent("a", "ns.a", 5, "ams").Volume
	m.Note(v, 5)
	if got := m.Candidates("b", "", time.Time{})[0].Promised; got != 10 {
		t.Errorf("%v are promised when it is made", got)
	}
	m.Reserve("c", []string{"ams"}, 60)
	m.Release("c")
	if got := m.Candidates("b", "", time.Time{})[0].Promised; got != 10 {
		t.Errorf("%v are promised after a release", got)
	}
}

// Gateways report all the time; only what is shown differently has anything reconciled.
func TestReportsThatSayTheSame(t *testing.T) {
	m := New(plan.Self{Site: "ams", Cluster: "uid-ams"})
	home := federation.Member{Gateway: "ams-1", Site: "ams", Incarnation: "1"}
	report := func(lag float64) federation.Event {
		return federation.Event{Kind: federation.KindObserved, Name: "a/ams-1",
			Observed: &federation.Observed{Volume: "a", Gateway: "ams-1", At: time.Unix(int64(lag*1000), 0),
				Replicas: []federation.ObservedReplica{{Gateway: "utr-1", Site: "utr", State: federation.ReplicaFollower,
					LagSeconds: lag}}}}
	}
	alive := func(g string) federation.Event {
		return federation.Event{Kind: federation.KindAlive, Name: g, Alive: &federation.Alive{Gateway: g, Incarnation: "1"}}
	}
	_ = m.Watch(t.Context(), told{volumeEvent("a", "ns.a", 1, "ams", "utr"), alive("ams-1"), alive("utr-1"),
		{Kind: federation.KindControl, Name: "a", Control: &federation.Control{Volume: "a", Epoch: 1, Home: home,
			Members: []federation.Member{home}}}, synced})
	n := 0
	m.OnNews(func(News) { n++ })
	for _, lag := range []float64{0.1, 0.5, 0.9, 5, 5.5, 0.2} {
		_ = m.Watch(t.Context(), told{report(lag)})
	}
	if n != 3 {
		t.Errorf("%d of 6 reports are worth looking at, want those of <1s, 5s, <1s", n)
	}

	// A volume that is written to has used a little more each time.
	n = 0
	for i := range 100 {
		e := report(0.2)
		e.Observed.Used = 10<<30 + 50<<20 + federation.Bytes(i)*4096
		_ = m.Watch(t.Context(), told{e})
	}
	if n != 1 {
		t.Errorf("%d of 100 reports are worth looking at, want the first", n)
	}
}

// BenchmarkMirror measures what 10 000 volumes with three copies and a claim each cost in memory,
// and how long a restart takes to know them.
func BenchmarkMirror10000(b *testing.B) {
	reg := memory.New()
	ctx := b.Context()
	for i := range 10_000 {
		id := fmt.Sprintf("0a6b4c1e-7a0b-5a42-9a2e-%012d", i)
		m := federation.Member{Gateway: "ams-1", Site: "ams", Incarnation: "1"}
		v := *volumeEvent(id, fmt.Sprintf("ns.v%d", i), 0, "ams", "utr", "gro").Volume
		if _, err := reg.CreateVolume(ctx, v, federation.Keyring{}); err != nil {
			b.Fatal(err)
		}
		if _, err := reg.SwapControl(ctx, id, 0, federation.Control{Volume: id, Epoch: 1, Home: m,
			Members: []federation.Member{m}}); err != nil {
			b.Fatal(err)
		}
		o := federation.Observed{Volume: id, Gateway: "ams-1", Home: "ams-1", Epoch: 1, Replicas: make([]federation.ObservedReplica, 3)}
		if err := reg.PutObserved(ctx, o); err != nil {
			b.Fatal(err)
		}
		if err := reg.PutClaim(ctx, federation.Claim{Volume: id, Site: "ams", Namespace: "ns", Name: fmt.Sprint("v", i),
			Kind: federation.ClaimGeoVolume, Access: federation.ReadWrite}); err != nil {
			b.Fatal(err)
		}
	}
	enough := errors.New("enough")
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		m := New(plan.Self{Site: "ams", Cluster: "uid-ams"})
		err := m.Watch(ctx, filled{reg, enough})
		if !errors.Is(err, enough) {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/(1<<20), "MiB-kept")
		runtime.KeepAlive(m)
	}
}

// filled ends a watch when all events were delivered.
type filled struct {
	federation.Watcher
	end error
}

func (f filled) Watch(ctx context.Context, fn func(federation.Event) error) error {
	return f.Watcher.Watch(ctx, func(e federation.Event) error {
		if err := fn(e); err != nil {
			return err
		}
		if e.Kind == federation.KindSynced {
			return f.end
		}
		return nil
	})
}
