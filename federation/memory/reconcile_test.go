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

// whys returns what a plan says of its records.
func whys(plan []federation.Correction) (out []string) {
	for _, c := range plan {
		out = append(out, c.Key+" "+c.Why)
	}
	return out
}

// swapTo has a volume's home begin an epoch.
func swapTo(g *gateway, volume string, epoch uint64) error {
	ctl, rev, err := g.GetControl(g.t.Context(), volume)
	if err != nil {
		return err
	}
	ctl.Epoch = epoch
	ctl.Begin(federation.EpochStart{Epoch: epoch})
	_, err = g.SwapControl(g.t.Context(), volume, rev, ctl)
	return err
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

// TestOneBranchIsKept: somebody swapped at the registry that went back. A person keeps one of the
// branches, whichever. Until then nobody takes another one for the newest.
func TestOneBranchIsKept(t *testing.T) {
	for name, x := range map[string]struct {
		epochs []uint64 // which gateway c takes at the restored registry
		keep   string
	}{
		"the gateways' epoch, and theirs stays": {[]uint64{2}, "b"},
		"the gateways' epoch, and its stays":    {[]uint64{2}, "c"},
		"far ahead, and theirs stays":           {[]uint64{2, 3, 4}, "b"},
		"far ahead, and its stays":              {[]uint64{3, 5}, "c@5"},
		"within the old epoch":                  {[]uint64{1}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			s, a, b, c := rewound(t)
			c.start()
			last := x.epochs[len(x.epochs)-1]
			for _, e := range x.epochs {
				home := map[bool]string{true: "a", false: "c"}[e == 1] // an old home that goes on
				change(t, c, "v1", e, home)
				c.sees("v1", e)
			}
			for range 3 {
				for _, g := range []*gateway{c, a, b} {
					g.tend()
				}
			}
			for _, g := range []*gateway{a, b, c} {
				want := map[bool]uint64{true: last, false: 2}[g == c]
				if ctl, _, err := g.GetControl(t.Context(), "v1"); err != nil || ctl.Epoch != want {
					t.Errorf("%s: before a person decides it is in epoch %d, %v, want %d", g.name, ctl.Epoch, err, want)
				}
			}
			if err := swapTo(b, "v1", 9); !errors.Is(err, federation.ErrRewound) {
				t.Errorf("a home begins an epoch while another branch is known: %v", err)
			}
			person := s.Client(nil)
			w, plan, missing := planned(t, person)
			i := slices.IndexFunc(plan, federation.Correction.Undecided)
			if i < 0 || plan[i].Key != "control/v1" || len(plan[i].Branches) != 2 || len(missing) != 0 {
				t.Fatalf("no branches in %v, missing %v", whys(plan), missing)
			}
			decision := federation.Reconciliation{ID: "1", By: "test"}
			if err := person.Reconcile(t.Context(), w, plan, decision); !errors.Is(err, federation.ErrInvalid) {
				t.Fatalf("nobody decided: %v", err)
			}
			if err := plan[i].Keep("d", unsaid); !errors.Is(err, federation.ErrInvalid) {
				t.Errorf("a branch that is not there is kept: %v", err)
			}
			if err := plan[i].Keep(x.keep, unsaid); err != nil {
				t.Fatal(err)
			}
			if err := person.Reconcile(t.Context(), w, plan, decision); err != nil {
				t.Fatal(err)
			}
			for _, g := range []*gateway{a, b, c} {
				g.tend()
				g.trusts(true)
				ctl, _, err := g.GetControl(t.Context(), "v1")
				newest := ctl.History[len(ctl.History)-1]
				if err != nil || ctl.Home.Gateway != x.keep[:1] || ctl.Epoch != max(last, 2)+1 || !newest.Forced || len(ctl.Members) != 1 {
					t.Errorf("%s: the record is %+v, %v", g.name, ctl, err)
				}
				g.sees("v1", ctl.Epoch)
			}
			if err := swapTo(a, "v1", 12); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTheBranchThatSlept: a gateway that knows a branch alone, and slept while the rest was
// reconciled, brings it to a person when it wakes. What was decided once is not asked again.
func TestTheBranchThatSlept(t *testing.T) {
	s, a, b, c := rewound(t)
	c.start()
	change(t, c, "v1", 2, "c")
	change(t, c, "v1", 3, "c")
	c.sees("v1", 3)
	c.end()
	s.Restore(memory.NewServer(99).Backup())
	a.tend()
	b.tend()
	reconcile(t, s.Client(nil), "1") // without c
	a.tend()
	b.tend()
	a.trusts(true)
	c.start()
	for range 2 {
		for _, g := range []*gateway{c, a, b} {
			g.tend()
			g.trusts(false)
		}
	}
	person := s.Client(nil)
	w, plan, _ := planned(t, person)
	i := slices.IndexFunc(plan, federation.Correction.Undecided)
	if i < 0 {
		t.Fatalf("no branches in %v", whys(plan))
	}
	if err := plan[i].Keep("b", unsaid); err != nil {
		t.Fatal(err)
	}
	if err := person.Reconcile(t.Context(), w, plan, federation.Reconciliation{ID: "2"}); err != nil {
		t.Fatal(err)
	}
	a.tend()
	b.tend()
	a.trusts(true)
	c.start() // it still knows its own branch
	c.tend()
	c.trusts(true)
	for _, g := range []*gateway{a, b, c} {
		g.sees("v1", 4)
	}
}

// TestTrail: a record descends from those that it came from, as far as its trail reaches.
func TestTrail(t *testing.T) {
	s := memory.NewServer(1)
	person := s.Client(nil)
	var all []federation.Control
	for i := range 300 {
		change(t, person, "v", uint64(i/10+1), "a")
		c, _, err := person.GetControl(t.Context(), "v")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	newest := all[len(all)-1]
	if newest.Change != 300 || len(newest.Trail) != 256 {
		t.Fatalf("change %d with %d ancestors", newest.Change, len(newest.Trail))
	}
	for _, c := range all {
		if !newest.DescendsFrom(c) || c.Change < 300 && c.DescendsFrom(newest) {
			t.Fatalf("change %d and the newest are taken for each other's", c.Change)
		}
	}
	other := all[250].Clone()
	other.Members = append(other.Members, federation.Member{Gateway: "b", Site: "site-b", Incarnation: "i"})
	if newest.DescendsFrom(other) || other.DescendsFrom(newest) {
		t.Error("a record of the same epoch and change that says something else is no other branch")
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

// TestNewerThanTheArchive: what the registry itself, or another gateway, has newer than the archive
// of a gateway that slept is believed, though the registry went back for others. Where the two
// branched since, it takes neither.
func TestNewerThanTheArchive(t *testing.T) {
	for _, branched := range []bool{false, true} {
		s, a, _, c := rewound(t)
		if branched {
			change(t, s.Client(nil), "v1", 3, "c") // nobody noticed yet
		}
		a.tend()
		guard, err := federation.NewGuard(func() (federation.GuardState, error) { return c.state, nil },
			func(s federation.GuardState) error { c.state = s; return nil }, c.archive)
		if err != nil {
			t.Fatal(err)
		}
		_ = guard.Refuse("of a test, before it listed anything")
		c.start()
		for _, g := range []*gateway{c, a, c} {
			g.tend()
		}
		a.sees("v1", 2)
		want := map[bool]uint64{false: 2, true: 1}[branched]
		if ctl, _, err := c.GetControl(t.Context(), "v1"); err != nil || ctl.Epoch != want {
			t.Errorf("branched %v: it is in epoch %d, %v, want %d", branched, ctl.Epoch, err, want)
		}
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

// TestBranchIsNoticed: the registry went back, and its revision and changes have grown past what
// was known before a gateway looks again. That the record is another is seen from its trail alone.
func TestBranchIsNoticed(t *testing.T) {
	for _, list := range []bool{true, false} {
		s := memory.NewServer(1)
		a := newGateway(t, s, "a")
		person := s.Client(nil)
		create(t, person, "v1", "one")
		change(t, a, "v1", 1, "a")
		backup := s.Backup()
		change(t, a, "v1", 2, "a")
		a.sees("v1", 2)
		a.end()
		s.Restore(backup)
		for e := uint64(2); e < 9; e++ {
			change(t, person, "v1", e, "c")
		}
		if list {
			a.start()
		} else {
			a.Client = s.Client(a.guard)
		}
		if ctl, _, err := a.GetControl(t.Context(), "v1"); err != nil || ctl.Home.Gateway != "a" {
			t.Errorf("list %v: the record is %+v, %v", list, ctl, err)
		}
		a.trusts(false)
	}
}

// TestBranchOlderThanTheTrail: many swaps within an epoch push a fork out of the trail. The epochs
// show it.
func TestBranchOlderThanTheTrail(t *testing.T) {
	s := memory.NewServer(1)
	a := newGateway(t, s, "a")
	person := s.Client(nil)
	create(t, person, "v", "one")
	change(t, a, "v", 1, "a")
	change(t, a, "v", 2, "b")
	main, _, _ := a.GetControl(t.Context(), "v")
	// The branch: c takes epoch 3 over at a backup of this moment.
	fork := main.Clone()
	fork.Epoch, fork.Home = 3, federation.Member{Gateway: "c", Site: "site-c", Incarnation: "i"}
	fork.Members = []federation.Member{fork.Home}
	fork.Begin(federation.EpochStart{Epoch: 3, Start: federation.Position{Seq: 7, Off: 1}})
	fork.Succeed(&main)
	// The gateways' record: a takes epoch 3, and a member comes and goes.
	tip := main.Clone()
	tip.Epoch, tip.Home = 3, federation.Member{Gateway: "a", Site: "site-a", Incarnation: "i"}
	tip.Members = []federation.Member{tip.Home}
	tip.Begin(federation.EpochStart{Epoch: 3, Start: federation.Position{Seq: 9, Off: 9}})
	tip.Succeed(&main)
	for range 260 {
		next := tip.Clone()
		next.Succeed(&tip)
		tip = next
	}
	if tips := federation.Branches([]federation.Control{tip, fork}); len(tips) != 2 {
		t.Errorf("home c's epoch 3 (%v) is taken for an ancestor of home a's epoch 3 (%v): nobody is asked", fork.History, tip.History)
	}
}

// unsaid is nobody's word, where nobody checks it.
func unsaid(string, string, uint64, uint64) (string, error) { return "", nil }
