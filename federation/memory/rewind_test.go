// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/federationtest"
	"github.com/weir-storage/weir/federation/memory"
)

// gateway is what of a gateway remembers the registry.
type gateway struct {
	t       *testing.T
	s       *memory.Server
	name    string
	archive *memory.Archive
	state   federation.GuardState
	guard   *federation.Guard

	*memory.Client
	end func()

	mu    sync.Mutex
	seen  map[string]federation.Event // by kind and name
	times int                         // that everything was listed
}

func newGateway(t *testing.T, s *memory.Server, name string) *gateway {
	g := &gateway{t: t, s: s, name: name, archive: memory.NewArchive(), end: func() {}}
	g.start()
	t.Cleanup(func() { g.end() })
	if err := g.Register(t.Context(), federationtest.Site("site-"+name, name)); err != nil {
		t.Fatal(err)
	}
	return g
}

// start runs the gateway's process, after the former one ended. What it keeps is on its disk.
func (g *gateway) start() {
	g.t.Helper()
	g.end()
	guard, err := federation.NewGuard(func() (federation.GuardState, error) { return g.state, nil },
		func(s federation.GuardState) error { g.state = s; return nil }, g.archive)
	if err != nil {
		g.t.Fatal(err)
	}
	g.guard, g.Client = guard, g.s.Client(guard)
	client := g.Client
	ctx, stop := context.WithCancel(context.Background())
	g.mu.Lock()
	g.seen, g.times = map[string]federation.Event{}, 0
	g.mu.Unlock()
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			g.mu.Lock()
			g.seen = map[string]federation.Event{}
			g.mu.Unlock()
			_ = client.Watch(ctx, func(e federation.Event) error {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.seen[string(e.Kind)+"/"+e.Name] = e
				if e.Kind == federation.KindSynced {
					g.times++
				}
				return nil
			})
		}
	})
	g.end = func() { stop(); done.Wait(); _ = client.Close() }
	g.wait("everything is listed", func() bool { return g.times > 0 })
}

// wait waits until the watch has brought something. f is called with g.mu held.
func (g *gateway) wait(what string, f func() bool) {
	g.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		ok := f()
		g.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) { // a hang guard
			g.t.Fatalf("%s: it does not come true: %s", g.name, what)
		}
	}
}

func (g *gateway) sees(volume string, epoch uint64) {
	g.t.Helper()
	g.wait(fmt.Sprintf("volume %s is in epoch %d", volume, epoch), func() bool {
		e := g.seen["control/"+volume]
		return e.Control != nil && e.Control.Epoch == epoch
	})
}

func (g *gateway) tend() {
	g.t.Helper()
	if err := g.Tend(g.t.Context(), g.name, time.Unix(1, 0)); err != nil {
		g.t.Fatalf("%s: %v", g.name, err)
	}
}

// change swaps a volume's control record to an epoch with one member.
func change(t *testing.T, r federation.Registry, volume string, epoch uint64, home string) {
	t.Helper()
	c := federation.Control{Volume: volume, Epoch: epoch, Home: federation.Member{Gateway: home, Site: "site-" + home, Incarnation: "i"}}
	c.Members = []federation.Member{c.Home}
	for e := uint64(1); e <= epoch; e++ {
		c.History = append(c.History, federation.EpochStart{Epoch: e})
	}
	_, rev, err := r.GetControl(t.Context(), volume)
	if err != nil && !errors.Is(err, federation.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := r.SwapControl(t.Context(), volume, rev, c); err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, r federation.Registry, uuid, name string) {
	t.Helper()
	ring := federation.Keyring{Volume: uuid, Generation: 1, Wrapped: map[string][]byte{"site-a": []byte(uuid)}}
	if _, err := r.CreateVolume(t.Context(), federationtest.Volume(uuid, name), ring); err != nil {
		t.Fatal(err)
	}
}

// rewound returns a registry that went back: since the backup, volume v1 moved from a to b, volume
// v2 was made, and a client's admission was taken back. Gateway c slept meanwhile.
func rewound(t *testing.T) (s *memory.Server, a, b, c *gateway) {
	s = memory.NewServer(1)
	a, b, c = newGateway(t, s, "a"), newGateway(t, s, "b"), newGateway(t, s, "c")
	person := s.Client(nil)
	create(t, person, "v1", "one")
	change(t, a, "v1", 1, "a")
	admission := federation.Admission{Volume: "v1", Site: "site-a", Client: "10.0.0.1", Access: federation.ReadWrite}
	if err := person.PutAdmission(t.Context(), admission); err != nil {
		t.Fatal(err)
	}
	c.sees("v1", 1)
	c.end()
	backup := s.Backup()
	change(t, b, "v1", 2, "b")
	create(t, person, "v2", "two")
	change(t, a, "v2", 1, "a")
	if err := person.DeleteAdmission(t.Context(), "v1", "site-a", "10.0.0.1"); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*gateway{a, b} {
		g.sees("v1", 2)
		g.sees("v2", 1)
		g.wait("the admission is gone", func() bool { return g.seen["admission/site-a/v1/10.0.0.1"].Deleted })
	}
	for range 100 { // the revision goes back further than what is written until it is reconciled
		if err := person.PutObserved(t.Context(), federation.Observed{Volume: "v1", Gateway: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range []*gateway{a, b} {
		if _, err := g.Head(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.Restore(backup)
	return s, a, b, c
}

// TestRewoundRegistryIsRefused: gateways go on with what they know, also after they start again,
// and nobody changes a volume's records.
func TestRewoundRegistryIsRefused(t *testing.T) {
	s, a, b, c := rewound(t)
	a.tend()
	a.start()
	b.tend()
	for _, g := range []*gateway{a, b} {
		if err := g.Trusted(); !errors.Is(err, federation.ErrRewound) {
			t.Fatalf("%s trusts the registry: %v", g.name, err)
		}
		if ctl, _, err := g.GetControl(t.Context(), "v1"); err != nil || ctl.Epoch != 2 {
			t.Errorf("%s: the control record is %+v, %v", g.name, ctl, err)
		}
		if _, _, err := g.FindVolume(t.Context(), "two"); err != nil {
			t.Errorf("%s: the volume that is newer than the backup: %v", g.name, err)
		}
		if all, err := g.ListAdmissions(t.Context(), "site-a"); err != nil || len(all) != 0 {
			t.Errorf("%s: admissions are %v, %v", g.name, all, err)
		}
		g.sees("v1", 2)
		g.sees("v2", 1)
	}
	// Sites and gateways are the registry's.
	moved := federationtest.Site("site-b", "b")
	moved.Gateways[0].Addr = "127.0.0.9:7001"
	if err := b.Register(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	a.wait("b has another address", func() bool {
		e := a.seen["site/site-b"]
		return e.Site != nil && e.Site.Gateways[0].Addr == "127.0.0.9:7001"
	})
	// Who has no memory is stopped by the notices, and who slept learns of them.
	person := s.Client(nil)
	ctl, rev, err := person.GetControl(t.Context(), "v1")
	if err != nil || ctl.Epoch != 1 {
		t.Fatalf("%+v, %v", ctl, err)
	}
	ctl.Epoch, ctl.History = 2, append(ctl.History, federation.EpochStart{Epoch: 2})
	_, swap := person.SwapControl(t.Context(), "v1", rev, ctl)
	_, made := person.CreateVolume(t.Context(), federationtest.Volume("v3", "three"), federation.Keyring{})
	for _, err := range []error{swap, made, person.DeleteAdmission(t.Context(), "v1", "site-a", "10.0.0.1")} {
		if !errors.Is(err, federation.ErrRewound) {
			t.Errorf("a change is answered with %v, want %v", err, federation.ErrRewound)
		}
	}
	c.start()
	c.sees("v1", 1) // nobody can know better
	c.tend()
	c.sees("v1", 2)
	if err := c.Trusted(); !errors.Is(err, federation.ErrRewound) {
		t.Errorf("who slept trusts the registry: %v", err)
	}
}

// TestHomeChangesItsRecordInItsTestimony: while the registry is refused, the home that the newest
// record names goes on changing it, once all gateways have testified, and nobody else does.
func TestHomeChangesItsRecordInItsTestimony(t *testing.T) {
	s, a, b, c := rewound(t)
	for _, g := range []*gateway{a, b, a} {
		g.tend()
	}
	swap := func(g *gateway, epoch uint64, home string) error {
		ctl, rev, err := g.GetControl(t.Context(), "v1")
		if err != nil {
			t.Fatal(err)
		}
		ctl.Epoch = epoch
		ctl.Home = federation.Member{Gateway: home, Site: "site-" + home, Incarnation: "i"}
		ctl.Members = []federation.Member{ctl.Home}
		ctl.Begin(federation.EpochStart{Epoch: epoch})
		_, err = g.SwapControl(t.Context(), "v1", rev, ctl)
		return err
	}
	if err := swap(b, 3, "b"); !errors.Is(err, federation.ErrRewound) {
		t.Fatalf("the home begins an epoch before all have testified: %v", err)
	}
	c.start()
	c.tend()
	for _, g := range []*gateway{a, c} {
		if err := swap(g, 3, g.name); !errors.Is(err, federation.ErrRewound) {
			t.Errorf("%s takes over: %v", g.name, err)
		}
	}
	if err := swap(b, 3, "a"); !errors.Is(err, federation.ErrRewound) {
		t.Errorf("the home gives its epoch to another: %v", err)
	}
	read, err := s.Client(nil).ReadRewind(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := swap(b, 3, "b"); err != nil {
		t.Fatal(err)
	}
	b.sees("v1", 3)
	b.start()
	b.sees("v1", 3)
	for _, g := range []*gateway{a, c} {
		g.tend()
		g.sees("v1", 3)
	}
	// A plan that does not know of it fails.
	person := s.Client(nil)
	plan, _, err := read.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if err := person.Reconcile(t.Context(), read, plan, federation.Reconciliation{ID: "1"}); !errors.Is(err, federation.ErrConflict) {
		t.Fatalf("a plan without the newest record: %v", err)
	}
	if read, err = person.ReadRewind(t.Context()); err != nil {
		t.Fatal(err)
	}
	if plan, _, err = read.Plan(); err != nil {
		t.Fatal(err)
	}
	if err := person.Reconcile(t.Context(), read, plan, federation.Reconciliation{ID: "1"}); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*gateway{a, b, c} {
		g.tend()
		g.sees("v1", 3)
		if err := g.Trusted(); err != nil {
			t.Errorf("%s: %v", g.name, err)
		}
	}
	if err := swap(c, 4, "c"); err != nil {
		t.Error(err)
	}
}

// TestReconcile: the newest records come back, and then everything changes again.
func TestReconcile(t *testing.T) {
	s, a, b, c := rewound(t)
	a.tend()
	b.tend()
	person := s.Client(nil)
	w, err := person.ReadRewind(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if missing := w.Missing(); !slices.Equal(missing, []string{"c"}) {
		t.Fatalf("gateways that have not said anything are %v", missing)
	}
	c.start()
	c.tend()
	before := map[*gateway]federation.Revision{}
	for _, g := range []*gateway{a, b, c} {
		before[g] = g.guard.Ask().Revision
	}
	if w, err = person.ReadRewind(t.Context()); err != nil {
		t.Fatal(err)
	}
	plan, missing, err := w.Plan()
	if err != nil || len(missing) != 0 {
		t.Fatalf("gateways that have not said anything are %v, %v", missing, err)
	}
	var keys []string
	for _, c := range plan {
		if c.Undecided() {
			t.Errorf("branches of %s: %s", c.Key, c.Why)
		}
		keys = append(keys, c.Key)
	}
	want := []string{"admission/site-a/v1/10.0.0.1", "control/v1", "control/v2", "keyring/v2", "name/two", "volume/v2"}
	if !slices.Equal(keys, want) {
		t.Fatalf("plan is for %v, want %v", keys, want)
	}
	if err := person.Reconcile(t.Context(), w, plan, federation.Reconciliation{ID: "1", By: "test"}); err != nil {
		t.Fatal(err)
	}
	a.end() // it accepts the registry when it starts again
	for _, g := range []*gateway{b, c} {
		g.tend()
		g.sees("v1", 2)
		g.sees("v2", 1)
	}
	a.start()
	a.tend()
	for _, g := range []*gateway{a, b, c} {
		if err := g.Trusted(); err != nil {
			t.Fatalf("%s: %v", g.name, err)
		}
		if _, rev, err := g.GetControl(t.Context(), "v1"); err != nil || rev <= before[g] {
			t.Errorf("%s: the registry's revision was %d and the record's is %d, %v", g.name, before[g], rev, err)
		}
		g.tend()
	}
	change(t, c, "v1", 3, "c")
	change(t, a, "v2", 2, "a")
	b.sees("v1", 3)
	b.start()
	b.sees("v2", 2)
	if w, err := person.ReadRewind(t.Context()); err != nil || len(w.Notices)+len(w.Testimonies) != 0 {
		t.Errorf("left behind: %+v, %v", w, err)
	}
	// And it may go back once more.
	backup := s.Backup()
	change(t, a, "v1", 4, "a")
	b.sees("v1", 4)
	s.Restore(backup)
	for range 2 {
		for _, g := range []*gateway{b, c, a} {
			g.tend()
			g.sees("v1", 4)
		}
	}
}

// TestReconcileWithoutTheNewest: a gateway that knows more than what was reconciled does not
// believe the registry.
func TestReconcileWithoutTheNewest(t *testing.T) {
	s, a, b, c := rewound(t)
	a.end()
	b.end()
	c.start()
	c.tend()
	if err := c.Trusted(); err != nil {
		t.Fatalf("nobody noticed anything: %v", err)
	}
	if err := s.Client(nil).Reconcile(t.Context(), federation.Rewind{}, nil, federation.Reconciliation{ID: "1", By: "test"}); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.tend()
	if err := a.Trusted(); !errors.Is(err, federation.ErrRewound) {
		t.Fatalf("it believes a registry that has less than its archive: %v", err)
	}
	c.tend()
	c.sees("v1", 2)
}

// TestOvertakenRegistryIsNoticed: a registry went back a little, and its revision has grown past
// what was seen before anybody looked. New records of then are not taken for deleted ones.
func TestOvertakenRegistryIsNoticed(t *testing.T) {
	for _, restart := range []bool{false, true} {
		s := memory.NewServer(1)
		a := newGateway(t, s, "a")
		person := s.Client(nil)
		create(t, person, "v1", "one")
		backup := s.Backup()
		create(t, person, "v2", "two")
		a.wait("v2 is there", func() bool { return a.seen["volume/v2"].Volume != nil })
		a.tend()
		if restart {
			a.end()
		}
		s.Restore(backup)
		for range 100 {
			if err := person.PutObserved(t.Context(), federation.Observed{Volume: "v1", Gateway: "b"}); err != nil {
				t.Fatal(err)
			}
		}
		if restart {
			a.start()
		}
		a.tend()
		if err := a.Trusted(); !errors.Is(err, federation.ErrRewound) {
			t.Errorf("restart %v: it is not noticed: %v", restart, err)
		}
		if _, _, err := a.GetVolume(t.Context(), "v2"); err != nil {
			t.Errorf("restart %v: %v", restart, err)
		}
		a.end()
	}
}

// TestAnOldArchiveDoesNotWin: a gateway that slept knows a record that was deleted since. The
// others know that, and an empty registry is brought forward without it.
func TestAnOldArchiveDoesNotWin(t *testing.T) {
	s, a, b, c := rewound(t)
	s.Restore(memory.NewServer(99).Backup())
	c.start()
	for range 2 {
		for _, g := range []*gateway{a, b, c} {
			g.tend()
		}
	}
	w, err := s.Client(nil).ReadRewind(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plan, _, err := w.Plan()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, x := range plan {
		there[x.Key] = !x.Deleted
	}
	if there["admission/site-a/v1/10.0.0.1"] || !there["volume/v1"] || !there["volume/v2"] {
		t.Errorf("the plan is %v", there)
	}
}
