// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/federationtest"
	"github.com/weir-storage/weir/federation/memory"
)

// planned returns the plan of a registry that went back.
func planned(t *testing.T, r federation.Registry) (w federation.Rewind, plan []federation.Correction, missing []string) {
	t.Helper()
	w, err := r.ReadRewind(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plan, missing, err = w.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return w, plan, missing
}

// reconcile does what is planned.
func reconcile(t *testing.T, r federation.Registry, id string) []federation.Correction {
	t.Helper()
	w, plan, _ := planned(t, r)
	if err := r.Reconcile(t.Context(), w, plan, federation.Reconciliation{ID: id, By: "test"}); err != nil {
		t.Fatal(err)
	}
	return plan
}

func (g *gateway) trusts(want bool) {
	g.t.Helper()
	if err := g.Trusted(); (err == nil) != want {
		g.t.Fatalf("%s: does it trust the registry: %v, want %v", g.name, err, want)
	}
}

// TestTheOneThatWasLeftOut: what a gateway alone knew, which was away when the others were
// reconciled, comes back with it.
func TestTheOneThatWasLeftOut(t *testing.T) {
	s := memory.NewServer(1)
	a, b := newGateway(t, s, "a"), newGateway(t, s, "b")
	person := s.Client(nil)
	create(t, person, "v1", "one")
	change(t, a, "v1", 1, "a")
	a.sees("v1", 1)
	a.end()
	b.sees("v1", 1)
	backup := s.Backup()
	create(t, person, "v2", "two") // b alone sees it
	change(t, b, "v2", 1, "b")
	b.sees("v2", 1)
	for range 20 {
		if err := person.PutObserved(t.Context(), federation.Observed{Volume: "v1", Gateway: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	b.tend()
	b.end()
	a.state.Revision = b.state.Revision // it saw the registry since, but not v2
	s.Restore(backup)
	a.start()
	a.tend()
	a.trusts(false)
	reconcile(t, person, "1")
	a.start()
	a.tend()
	a.trusts(true)
	b.start()
	for range 2 {
		b.tend()
		a.tend()
	}
	b.trusts(false)
	a.trusts(false)
	plan := reconcile(t, person, "2")
	var keys []string
	for _, c := range plan {
		keys = append(keys, c.Key)
	}
	if want := []string{"control/v2", "keyring/v2", "name/two", "volume/v2"}; !slices.Equal(keys, want) {
		t.Errorf("the plan is for %v, want %v", keys, want)
	}
	for _, g := range []*gateway{a, b} {
		g.tend()
		g.trusts(true)
		if _, _, err := g.FindVolume(t.Context(), "two"); err != nil {
			t.Errorf("%s: %v", g.name, err)
		}
	}
}

// TestOneHomeIsKept: of two homes in an epoch a person keeps the one that the gateways know. The
// logs that followed the other are void, and nobody takes its record for the newest.
func TestOneHomeIsKept(t *testing.T) {
	s, a, b, c := rewound(t)
	c.start()
	change(t, c, "v1", 2, "c")
	c.sees("v1", 2)
	for range 3 {
		for _, g := range []*gateway{a, b, c} {
			g.tend()
		}
	}
	for _, g := range []*gateway{a, b, c} {
		want := map[bool]string{true: "c", false: "b"}[g == c]
		if ctl, _, err := g.GetControl(t.Context(), "v1"); err != nil || ctl.Home.Gateway != want {
			t.Errorf("%s: before a person decides its home is %s, %v, want %s", g.name, ctl.Home.Gateway, err, want)
		}
	}
	plan := reconcile(t, s.Client(nil), "1")
	if i := slices.IndexFunc(plan, func(c federation.Correction) bool { return c.Conflict != "" }); i < 0 || plan[i].Key != "control/v1" {
		t.Fatalf("no conflict in %+v", plan)
	}
	for _, g := range []*gateway{a, b, c} {
		g.tend()
		g.trusts(true)
		ctl, _, err := g.GetControl(t.Context(), "v1")
		if err != nil || ctl.Home.Gateway != "b" || len(ctl.Void) != 1 || ctl.Void[0].Gateway != "c" {
			t.Errorf("%s: the record is %+v, %v", g.name, ctl, err)
		}
		g.sees("v1", 2)
	}
	change := func(g *gateway, f func(*federation.Control)) error {
		ctl, rev, err := g.GetControl(t.Context(), "v1")
		if err != nil {
			t.Fatal(err)
		}
		f(&ctl)
		_, err = g.SwapControl(t.Context(), "v1", rev, ctl)
		return err
	}
	if err := change(b, func(c *federation.Control) { c.Void = nil }); !errors.Is(err, federation.ErrInvalid) {
		t.Errorf("a home forgets which logs are void: %v", err)
	}
	if err := change(b, func(c *federation.Control) {
		c.Epoch = 3
		c.Begin(federation.EpochStart{Epoch: 3})
	}); err != nil {
		t.Error(err)
	}
}

// TestReconciliationSeenLater: who slept through a reconciliation counts it as seen. It does not
// end the refusal of a registry that goes back again.
func TestReconciliationSeenLater(t *testing.T) {
	s, a, b, c := rewound(t)
	a.tend()
	b.tend()
	backup := s.Backup()
	reconcile(t, s.Client(nil), "1")
	a.tend()
	b.tend()
	c.start() // it noticed nothing
	c.tend()
	c.trusts(true)
	if got := c.guard.State().Reconciled; got != "1" {
		t.Errorf("the last reconciliation that it knows is %q", got)
	}
	change(t, a, "v1", 3, "a")
	c.sees("v1", 3)
	c.tend()
	// The backup has the notices of before. They are not of now.
	s.Restore(backup)
	if _, _, missing := planned(t, s.Client(nil)); !slices.Contains(missing, "c") {
		t.Errorf("who did not speak yet: %v", missing)
	}
	c.tend()
	c.trusts(false)
	if _, _, missing := planned(t, s.Client(nil)); !slices.Equal(missing, []string{"a", "b"}) {
		t.Errorf("notices of the backup count: only %v are missing", missing)
	}
	for range 2 {
		for _, g := range []*gateway{a, b, c} {
			g.tend()
			g.trusts(false)
		}
	}
	if _, _, missing := planned(t, s.Client(nil)); len(missing) != 0 {
		t.Errorf("all have spoken, and %v are missing", missing)
	}
}

// TestLostArchive: a gateway whose archive is gone while it refuses the registry says so. It does
// not take nothing for what it knew, and it remembers how far volumes were.
func TestLostArchive(t *testing.T) {
	s, a, b, c := rewound(t)
	c.start()
	a.end()
	a.archive = memory.NewArchive()
	a.start()
	a.tend()
	a.trusts(false)
	if _, _, err := a.FindVolume(t.Context(), "one"); err != nil {
		t.Errorf("it knows nothing of a volume that the registry has: %v", err)
	}
	c.tend()
	if _, _, missing := planned(t, s.Client(nil)); !slices.Equal(missing, []string{"a", "b"}) {
		t.Errorf("who has not said all: %v", missing)
	}
	reconcile(t, s.Client(nil), "1") // without what b knows
	a.tend()
	a.trusts(false) // v1 was at a later change
	b.tend()
	b.trusts(false)
	a.tend() // takes over from b what is newer
	a.sees("v1", 2)
	c.tend()
	b.tend()
	reconcile(t, s.Client(nil), "2")
	for _, g := range []*gateway{a, b, c} {
		g.tend()
		g.trusts(true)
		g.sees("v1", 2)
	}
	if _, ok, err := a.archive.Get("volume/v2"); !ok || err != nil {
		t.Errorf("the archive is not filled again: %v", err)
	}
}

// TestNewerThanTheArchive: what the registry itself has newer than the archive of a gateway that
// slept is believed, though it went back for others.
func TestNewerThanTheArchive(t *testing.T) {
	s, a, _, c := rewound(t)
	change(t, s.Client(nil), "v1", 3, "c") // nobody noticed yet
	a.tend()
	guard, err := federation.NewGuard(func() (federation.GuardState, error) { return c.state, nil },
		func(s federation.GuardState) error { c.state = s; return nil }, c.archive)
	if err != nil {
		t.Fatal(err)
	}
	_ = guard.Refuse("of a test, before it listed anything")
	c.start()
	for _, g := range []*gateway{c, a} {
		g.tend()
		g.sees("v1", 3)
	}
	ctl, rev, err := c.GetControl(t.Context(), "v1")
	if err != nil || rev == 0 || ctl.Home.Gateway != "c" {
		t.Errorf("%+v, %v", ctl, err)
	}
}

// TestNameOfARemovedGateway: a gateway that was forgotten while the registry was refused can be
// forgotten once more after a reconciliation brought its name back.
func TestNameOfARemovedGateway(t *testing.T) {
	s, a, b, _ := rewound(t)
	person := s.Client(nil)
	a.tend()
	b.tend()
	if err := person.RemoveGateway(t.Context(), "site-c", "c"); err != nil {
		t.Fatal(err)
	}
	a.tend()
	b.tend()
	reconcile(t, person, "1")
	if err := person.RemoveGateway(t.Context(), "site-c", "c"); err != nil {
		t.Fatal(err)
	}
	if err := person.Register(t.Context(), federationtest.Site("site-d", "c")); err != nil {
		t.Errorf("its name is not free: %v", err)
	}
}

// TestNameThatWasGivenUp: of a gateway that missed a reconciliation, a name counts only with its
// volume. One that the registry has may have given the name up.
func TestNameThatWasGivenUp(t *testing.T) {
	name := federation.Testimony{Gateway: "a", Key: "name/one", Value: []byte("v1"), Revision: 5}
	for _, there := range []bool{true, false} {
		w := federation.Rewind{Notices: []federation.Notice{{Gateway: "a", Complete: true}}, Revisions: []federation.Revision{9},
			Testimonies: []federation.Testimony{name}, Last: federation.Reconciliation{ID: "1"}}
		if there {
			w.Records = []federation.Record{{Key: "volume/v1", Revision: 3}}
		}
		plan, _, err := w.Plan()
		if err != nil || (len(plan) == 0) != there {
			t.Errorf("the volume is there: %v, and the plan is %+v, %v", there, plan, err)
		}
	}
}
