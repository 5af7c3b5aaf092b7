// SPDX-License-Identifier: Apache-2.0

package federationtest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/weir-storage/weir/federation"
)

func siteRegister(f *fixture) {
	a := Site("ams", "ams-1")
	f.ok(f.r.Register(f.ctx, a))
	f.ok(f.r.Register(f.ctx, Site("utr", "utr-1")))
	got, err := f.r.Sites(f.ctx)
	f.ok(err)
	if len(got) != 2 || !reflect.DeepEqual(got[0].Site, a) || got[1].Site.Name != "utr" || got[0].Alive["ams-1"] {
		f.Fatalf("sites are %+v", got)
	}

	second := Site("ams", "ams-2")
	second.Store, second.WrapKey, second.Region = federation.SiteStore{}, nil, "europe"
	f.ok(f.r.Register(f.ctx, second))
	again := Site("ams", "ams-1")
	again.Region = "europe"
	again.Gateways[0].Incarnation = "inc9"
	f.ok(f.r.Register(f.ctx, again))
	got, err = f.r.Sites(f.ctx)
	f.ok(err)
	want := a
	want.Region = "europe"
	want.Gateways = []federation.Gateway{again.Gateways[0], second.Gateways[0]}
	if !reflect.DeepEqual(got[0].Site, want) {
		f.Fatalf("merged to %+v, want %+v", got[0].Site, want)
	}

	other := Site("ams", "ams-1")
	other.Organization = "tue"
	f.is(f.r.Register(f.ctx, other), federation.ErrNameTaken)
	f.is(f.r.Register(f.ctx, Site("ein", "ams-1")), federation.ErrNameTaken)
	for _, spoil := range []func(*federation.Site){
		func(s *federation.Site) { s.Name = "A" },
		func(s *federation.Site) { s.Organization = "" },
		func(s *federation.Site) { s.Gateways[0].Name = "x/y" },
		func(s *federation.Site) { s.Gateways[0].Addr = "10.0.0.1" },
		func(s *federation.Site) { s.Gateways = append(s.Gateways, s.Gateways[0]) },
	} {
		bad := Site("bad", "bad-1")
		spoil(&bad)
		f.is(f.r.Register(f.ctx, bad), federation.ErrInvalid)
	}

	two := Site("ams", "ams-1")
	two.Gateways = append(two.Gateways, Site("ams", "ams-old").Gateways...)
	f.ok(f.r.Register(f.ctx, two))
	f.ok(f.r.RemoveGateway(f.ctx, "ams", "ams-old"))
	f.ok(f.r.RemoveGateway(f.ctx, "ams", "ams-old"))
	f.ok(f.r.RemoveGateway(f.ctx, "nowhere", "ams-1"))
	sites, err := f.r.Sites(f.ctx)
	f.ok(err)
	for _, s := range sites {
		if s.Site.Name == "ams" && slices.ContainsFunc(s.Site.Gateways, func(g federation.Gateway) bool { return g.Name == "ams-old" }) {
			f.Errorf("a gateway that was removed is there: %v", s.Site.Gateways)
		}
	}
	f.ok(f.r.Register(f.ctx, Site("aac", "ams-old"))) // its name is free
	f.ok(f.r.RemoveSite(f.ctx, "aac"))

	f.ok(f.r.RemoveSite(f.ctx, "ams"))
	f.ok(f.r.RemoveSite(f.ctx, "ams"))
	f.ok(f.r.Register(f.ctx, Site("ein", "ams-1")))
}

// siteRace: gateways of one site that register at once are all there afterwards.
func siteRace(f *fixture) {
	const racers = 5
	var wg sync.WaitGroup
	errs := make([]error, racers)
	for i := range racers {
		r := f.open()
		wg.Go(func() { errs[i] = r.Register(f.ctx, Site("ams", fmt.Sprintf("ams-%d", i))) })
	}
	wg.Wait()
	for _, err := range errs {
		f.ok(err)
	}
	got, err := f.r.Sites(f.ctx)
	f.ok(err)
	if len(got) != 1 || len(got[0].Site.Gateways) != racers {
		f.Fatalf("sites are %+v, want %d gateways", got, racers)
	}
}

func heartbeat(f *fixture) {
	f.ok(f.r.Register(f.ctx, Site("ams", "ams-1")))
	alive := func() bool {
		f.Helper()
		s, err := f.r.Sites(f.ctx)
		f.ok(err)
		return s[0].Alive["ams-1"]
	}
	a := federation.Alive{Gateway: "ams-1", Site: "ams", Incarnation: "inc0"}
	_, err := f.r.Heartbeat(f.ctx, a, TTL/2)
	f.is(err, federation.ErrInvalid)
	h, err := f.r.Heartbeat(f.ctx, a, TTL)
	f.ok(err)
	if !alive() {
		f.Fatal("not alive after its first heartbeat")
	}
	f.ok(h.Stop(f.ctx))
	if alive() {
		f.Fatal("alive after its heartbeat was stopped")
	}

	old := a
	old.Incarnation = "lost"
	dying := f.open()
	_, err = dying.Heartbeat(f.ctx, old, TTL)
	f.ok(err)
	if alive() {
		f.Fatal("alive by the heartbeat of an incarnation that is not registered")
	}
	_, err = dying.Heartbeat(f.ctx, a, TTL)
	f.ok(err)
	if !alive() {
		f.Fatal("not alive after a second heartbeat replaced the first")
	}
	events := f.watch(f.r)
	events.until(func(e federation.Event) bool {
		return e.Kind == federation.KindAlive && e.Alive != nil && *e.Alive == a
	})
	f.h.Abandon(f.T, dying, "ams-1")
	events.until(func(e federation.Event) bool { return e.Kind == federation.KindAlive && e.Name == "ams-1" && e.Deleted })
	if alive() {
		f.Fatal("alive after its heartbeat expired")
	}
}

// stream collects a watch's events.
type stream struct {
	f    *fixture
	ch   chan federation.Event
	done chan error
}

func (f *fixture) watch(r federation.Registry) *stream {
	s := &stream{f: f, ch: make(chan federation.Event, 1000), done: make(chan error, 1)}
	go func() {
		s.done <- r.Watch(f.ctx, func(e federation.Event) error { s.ch <- e; return nil })
	}()
	return s
}

// until returns the events up to the one that is wanted.
func (s *stream) until(want func(federation.Event) bool) []federation.Event {
	s.f.Helper()
	var seen []federation.Event
	for {
		select {
		case e := <-s.ch:
			seen = append(seen, e)
			if want(e) {
				return seen
			}
		case err := <-s.done:
			s.f.Fatalf("watch ended with %v after %+v", err, seen)
		case <-s.f.ctx.Done():
			s.f.Fatalf("the wanted event did not come; seen: %+v", seen)
		}
	}
}

func synced(e federation.Event) bool { return e.Kind == federation.KindSynced }

func watch(f *fixture) {
	c := Control("v1", 1, 1)
	rev, err := f.r.SwapControl(f.ctx, "v1", 0, c)
	f.ok(err)
	vrev, err := f.r.CreateVolume(f.ctx, Volume("v1", "home"), federation.Keyring{})
	f.ok(err)
	f.ok(f.r.Register(f.ctx, Site("ams", "ams-1")))
	s := f.watch(f.open())
	first := s.until(synced)
	if len(first) != 4 || first[0].Control == nil || !first[0].Control.Same(c) || first[0].Revision != rev ||
		first[1].Site == nil || first[1].Name != "ams" || first[2].Volume == nil || first[2].Name != "v1" {
		f.Fatalf("first events are %+v, want control, site, volume, synced", first)
	}
	head, err := f.r.Head(f.ctx)
	f.ok(err)
	if first[3].Cluster != head.Cluster || first[3].Revision > head.Revision {
		f.Fatalf("synced at %+v, the registry is at %+v", first[3], head)
	}

	rev2, err := f.r.SwapControl(f.ctx, "v1", rev, Control("v1", 2, 1))
	f.ok(err)
	f.ok(f.r.PutAdmission(f.ctx, federation.Admission{Volume: "v1", Site: "ams", Client: "10.0.0.1", Access: federation.ReadOnly}))
	_, err = f.r.PutKeyring(f.ctx, 0, federation.Keyring{Volume: "v1", Wrapped: map[string][]byte{"ams": {1}}})
	f.ok(err)
	f.ok(f.r.PutObserved(f.ctx, federation.Observed{Volume: "v1", Gateway: "ams-1"}))
	f.ok(f.r.DeleteAdmission(f.ctx, "v1", "ams", "10.0.0.1"))
	v := Volume("v1", "home")
	v.Deleted = true
	vrev, err = f.r.UpdateVolume(f.ctx, vrev, v)
	f.ok(err)
	f.ok(f.r.PurgeVolume(f.ctx, vrev, federation.Purge{Volume: "v1", At: time.Unix(1e9, 0).UTC()}))
	got := s.until(func(e federation.Event) bool { return e.Kind == federation.KindObserved && e.Deleted })
	type told struct {
		kind    federation.Kind
		name    string
		deleted bool
	}
	var have []told
	last := rev
	for _, e := range got {
		have = append(have, told{e.Kind, e.Name, e.Deleted})
		together := e.Revision == last && e.Deleted // with the purge
		if e.Revision <= last && !together || e.Err != nil || e.Cluster != head.Cluster {
			f.Fatalf("event %+v after revision %d", e, last)
		}
		last = e.Revision
	}
	want := []told{
		{federation.KindControl, "v1", false},
		{federation.KindAdmission, "ams/v1/10.0.0.1", false},
		{federation.KindKeyring, "v1", false},
		{federation.KindObserved, "v1/ams-1", false},
		{federation.KindAdmission, "ams/v1/10.0.0.1", true},
		{federation.KindVolume, "v1", false},
		{federation.KindPurged, "v1", false}, // and with it, at once:
		{federation.KindVolume, "v1", true},
		{federation.KindControl, "v1", true},
		{federation.KindKeyring, "v1", true},
		{federation.KindObserved, "v1/ams-1", true},
	}
	if !reflect.DeepEqual(have, want) {
		f.Fatalf("told %+v,\nwant %+v", have, want)
	}
	if got[0].Revision != rev2 || got[0].Control.Epoch != 2 {
		f.Fatalf("first change is %+v", got[0])
	}
}

var errEnough = errors.New("enough")

func watchEnds(f *fixture) {
	f.is(f.r.Watch(f.ctx, func(federation.Event) error { return errEnough }), errEnough)
	n := 0
	go func() { _ = f.open().Register(f.ctx, Site("ams", "ams-1")) }()
	f.is(f.r.Watch(f.ctx, func(e federation.Event) error {
		if n++; e.Kind == federation.KindSite {
			return errEnough
		}
		return nil
	}), errEnough)
}
