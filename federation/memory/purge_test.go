// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/federationtest"
	"github.com/weir-storage/weir/federation/memory"
)

// purge deletes a volume and purges it at once.
func purge(t *testing.T, r federation.Registry, uuid string) {
	t.Helper()
	v, rev, err := r.GetVolume(t.Context(), uuid)
	if err != nil {
		t.Fatal(err)
	}
	v.Deleted = true
	if rev, err = r.UpdateVolume(t.Context(), rev, v); err != nil {
		t.Fatal(err)
	}
	if err := r.PurgeVolume(t.Context(), rev, federation.Purge{Volume: uuid, Name: v.Name, At: time.Unix(1, 0)}); err != nil {
		t.Fatal(err)
	}
}

// TestPurgedVolumeStaysGone: a volume that was purged comes back with no registry that goes back,
// however often, and whoever slept meanwhile.
func TestPurgedVolumeStaysGone(t *testing.T) {
	s := memory.NewServer(1)
	a, b := newGateway(t, s, "a"), newGateway(t, s, "b")
	person := s.Client(nil)
	for _, v := range []string{"v1", "v2"} {
		create(t, person, v, "name-"+v)
		change(t, a, v, 1, "a")
		a.sees(v, 1)
		b.sees(v, 1)
	}
	gone := func(when string) {
		t.Helper()
		for _, r := range []federation.Registry{person, a, b} {
			_, _, ctl := r.GetControl(t.Context(), "v1")
			_, _, v := r.GetVolume(t.Context(), "v1")
			_, _, ring := r.GetKeyring(t.Context(), "v1")
			_, _, name := r.FindVolume(t.Context(), "name-v1")
			for _, err := range []error{ctl, v, ring, name} {
				if !errors.Is(err, federation.ErrNotFound) {
					t.Errorf("%s it is there again: %v", when, err)
				}
			}
		}
		if _, _, err := b.GetControl(t.Context(), "v2"); err != nil {
			t.Errorf("%s the other is gone: %v", when, err)
		}
	}
	backup := s.Backup()
	b.end() // it sleeps while v1 is purged
	purge(t, person, "v1")
	change(t, a, "v2", 2, "a")
	a.sees("v2", 2)
	for _, id := range []string{"1", "2", "3"} {
		s.Restore(backup)
		if id == "1" {
			b.start()
		}
		if id == "3" { // b knows its guard alone
			b.end()
			b.archive = memory.NewArchive()
			b.start()
		}
		for range 3 {
			a.tend()
			b.tend()
		}
		a.trusts(false)
		reconcile(t, person, id)
		for range 2 {
			a.tend()
			b.tend()
		}
		a.trusts(true)
		b.trusts(true)
		gone("after reconciliation " + id)
	}
	// Long ago: what is left of it is in a guard alone, and the registry goes back once more.
	if err := person.DeletePurge(t.Context(), "v1"); err != nil {
		t.Fatal(err)
	}
	if ch := b.guard.State().Changes["v1"]; ch != 0 {
		t.Errorf("a guard remembers a volume that is gone, at change %d", ch)
	}
}

// TestDeletedStaysGone: a registry that goes back twice to the same backup does not bring back what
// was deleted, although it was reconciled in between.
func TestDeletedStaysGone(t *testing.T) {
	s, a, b, c := rewound(t)
	c.start()
	for _, id := range []string{"1", "2"} {
		backup := s.Backup()
		for range 2 {
			for _, g := range []*gateway{a, b, c} {
				g.tend()
			}
		}
		reconcile(t, s.Client(nil), id)
		for _, g := range []*gateway{a, b, c} {
			g.tend()
			g.trusts(true)
			if all, err := g.ListAdmissions(t.Context(), "site-a"); err != nil || len(all) != 0 {
				t.Errorf("%s: after reconciliation %s admissions are %v, %v", g.name, id, all, err)
			}
		}
		s.Restore(backup)
	}
}

// TestNameOfAPurgedVolumeIsUsedAgain: the name of a purged volume was given to another. A plan
// names it once.
func TestNameOfAPurgedVolumeIsUsedAgain(t *testing.T) {
	s := memory.NewServer(1)
	a := newGateway(t, s, "a")
	person := s.Client(nil)
	create(t, person, "v1", "one")
	change(t, a, "v1", 1, "a")
	a.sees("v1", 1)
	backup := s.Backup()
	purge(t, person, "v1")
	create(t, person, "v2", "one")
	change(t, a, "v2", 1, "a")
	a.sees("v2", 1)
	s.Restore(backup)
	for range 3 {
		a.tend()
	}
	a.trusts(false)
	_, plan, _ := planned(t, person)
	seen := map[string]federation.Correction{}
	for _, c := range plan {
		if old, ok := seen[c.Key]; ok && old.Deleted != c.Deleted {
			t.Errorf("the plan both deletes and writes %s: etcd refuses such a transaction (duplicate key)", c.Key)
		}
		seen[c.Key] = c
	}
}

// TestPurgeIsNoRewind: a gateway whose watch is behind swaps the record of a volume that was
// purged. It does not take that for a registry that went back.
func TestPurgeIsNoRewind(t *testing.T) {
	s := memory.NewServer(1)
	a := newGateway(t, s, "a")
	person := s.Client(nil)
	create(t, person, "v1", "one")
	change(t, a, "v1", 1, "a")
	a.sees("v1", 1)
	ctl, rev, err := a.GetControl(t.Context(), "v1")
	if err != nil {
		t.Fatal(err)
	}
	a.end() // its watch is behind, or not there
	guard, err := federation.NewGuard(func() (federation.GuardState, error) { return a.state, nil },
		func(s federation.GuardState) error { a.state = s; return nil }, a.archive)
	if err != nil {
		t.Fatal(err)
	}
	cl := s.Client(guard)
	purge(t, person, "v1")
	ctl.Epoch++
	ctl.Begin(federation.EpochStart{Epoch: ctl.Epoch})
	_, err = cl.SwapControl(t.Context(), "v1", rev, ctl)
	if errors.Is(err, federation.ErrRewound) || cl.Trusted() != nil {
		t.Errorf("an ordinary purge is taken for a registry that went back: %v", cl.Trusted())
	}
	if err := cl.Tend(t.Context(), "a", time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := person.CreateVolume(t.Context(), federationtest.Volume("v9", "nine"), federation.Keyring{}); err != nil {
		t.Errorf("nobody can change anything any more: %v", err)
	}
}

// TestUUIDIsNotUsedAgain: nothing of a purged volume is made again.
func TestUUIDIsNotUsedAgain(t *testing.T) {
	s := memory.NewServer(1)
	person := s.Client(nil)
	create(t, person, "v1", "one")
	purge(t, person, "v1")
	ring := federation.Keyring{Volume: "v1", Generation: 1, Wrapped: map[string][]byte{"site-a": []byte("x")}}
	_, err := person.PutKeyring(t.Context(), 0, ring)
	_, err2 := person.CreateVolume(t.Context(), federationtest.Volume("v1", "one"), federation.Keyring{})
	if err == nil || err2 == nil {
		t.Errorf("keyring: %v, volume: %v: both want a conflict", err, err2)
	}
	c := federation.Control{Volume: "v1", Epoch: 1, Home: federation.Member{Gateway: "a", Site: "site-a", Incarnation: "i"}}
	c.Members = []federation.Member{c.Home}
	if _, err = person.SwapControl(t.Context(), "v1", 0, c); !errors.Is(err, federation.ErrConflict) {
		t.Errorf("its first control record: %v, want %v", err, federation.ErrConflict)
	}
}

// TestPurgeAtARestoredRegistry: a volume was in the trash when the backup was made, was taken out
// since, and is in use. A gateway that slept purges it before anybody noticed. The volume stays.
func TestPurgeAtARestoredRegistry(t *testing.T) {
	s := memory.NewServer(1)
	a, b, c := newGateway(t, s, "a"), newGateway(t, s, "b"), newGateway(t, s, "c")
	person := s.Client(nil)
	create(t, person, "v1", "one")
	change(t, a, "v1", 1, "a")
	mark(t, person, "v1", true)
	for _, g := range []*gateway{a, b, c} {
		g.wait("deleted", func() bool { e := g.seen["volume/v1"]; return e.Volume != nil && e.Volume.Deleted })
	}
	c.end()
	backup := s.Backup()
	mark(t, person, "v1", false) // undelete
	change(t, a, "v1", 2, "a")
	for _, g := range []*gateway{a, b} {
		g.sees("v1", 2)
		g.wait("undeleted", func() bool { e := g.seen["volume/v1"]; return e.Volume != nil && !e.Volume.Deleted })
	}
	for range 100 {
		_ = person.PutObserved(t.Context(), federation.Observed{Volume: "v1", Gateway: "b"})
	}
	for _, g := range []*gateway{a, b} {
		_, _ = g.Head(t.Context())
	}
	s.Restore(backup)
	c.start()
	v, rev, err := c.GetVolume(t.Context(), "v1")
	if err != nil || !v.Deleted || c.Trusted() != nil {
		t.Fatal(v, err, c.Trusted())
	}
	mark := federation.Purge{Volume: "v1", Name: "one", At: time.Unix(9e8, 0), Pending: []string{"a", "b", "c"}}
	if err := c.PurgeVolume(t.Context(), rev, mark); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, g := range []*gateway{a, b, c} {
			g.tend()
		}
	}
	if v, _, err := a.GetVolume(t.Context(), "v1"); err != nil || v.Deleted {
		t.Fatalf("a still serves it: %v %v", v, err)
	}
	w, plan, _ := planned(t, person)
	if err := person.Reconcile(t.Context(), w, plan, federation.Reconciliation{ID: "1"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, g := range []*gateway{a, b, c} {
			g.tend()
		}
	}
	a.trusts(true)
	if _, _, err := a.GetVolume(t.Context(), "v1"); err != nil {
		t.Errorf("a volume in use is gone after a reconciliation in which nobody was asked: %v", err)
	}
	for _, g := range []*gateway{a, b, c} {
		g.trusts(true)
		if all, err := g.ListPurges(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%s: purges are %v, %v", g.name, all, err)
		}
		if _, _, err := g.GetKeyring(t.Context(), "v1"); err != nil {
			t.Errorf("%s: %v", g.name, err)
		}
	}
}

// TestPurgeThatOneKnows: a gateway that missed a reconciliation knows a purge alone. It is done
// again, with its mark.
func TestPurgeThatOneKnows(t *testing.T) {
	s := memory.NewServer(1)
	a, b := newGateway(t, s, "a"), newGateway(t, s, "b")
	person := s.Client(nil)
	create(t, person, "v1", "one")
	create(t, person, "v2", "two")
	change(t, a, "v1", 1, "a")
	a.sees("v1", 1)
	b.sees("v1", 1)
	a.end()
	backup := s.Backup()
	purge(t, person, "v1")
	create(t, person, "v3", "three")
	change(t, b, "v3", 1, "b")
	b.sees("v3", 1)
	b.wait("purged", func() bool { return b.seen["purged/v1"].Purged != nil })
	b.tend()
	b.end()
	a.state.Revision = b.state.Revision + 50 // it saw the registry since
	s.Restore(backup)
	a.start()
	a.tend()
	a.trusts(false)
	reconcile(t, person, "1") // without b
	a.tend()
	a.trusts(true)
	for range 200 {
		_ = person.PutObserved(t.Context(), federation.Observed{Volume: "v2", Gateway: "b"})
	}
	b.start()
	for range 3 {
		b.tend()
		a.tend()
	}
	w, plan, _ := planned(t, person)
	if err := person.Reconcile(t.Context(), w, plan, federation.Reconciliation{ID: "2"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		a.tend()
		b.tend()
	}
	all, err := person.ListPurges(t.Context())
	if len(all) == 0 {
		t.Errorf("v1 was removed from the registry, but the mark of the purge was not written: %v", err)
	}
	if a.Trusted() != nil || b.Trusted() != nil {
		t.Errorf("after the reconciliation the registry is still refused")
	}
	for range 3 {
		a.tend()
		b.tend()
	}
}

// mark puts a volume into the trash, or takes it out.
func mark(t *testing.T, r federation.Registry, uuid string, deleted bool) federation.Revision {
	t.Helper()
	v, rev, err := r.GetVolume(t.Context(), uuid)
	if err != nil {
		t.Fatal(err)
	}
	v.Deleted, v.DeletedAt = deleted, time.Time{}
	if deleted {
		v.DeletedAt = time.Unix(1, 0).UTC()
	}
	if rev, err = r.UpdateVolume(t.Context(), rev, v); err != nil {
		t.Fatal(err)
	}
	return rev
}

// TestSameGatewayTwice: of two branches with the same home and epoch none is kept unasked.
func TestSameGatewayTwice(t *testing.T) {
	m := func(log string) federation.Member {
		return federation.Member{Gateway: "k", Site: "s", Incarnation: log, Log: log}
	}
	x := federation.Control{Volume: "v", Epoch: 5, Change: 9, Home: m("1"), Members: []federation.Member{m("1")},
		Trail: []federation.Ancestor{{Change: 3, Digest: "a"}}}
	y := federation.Control{Volume: "v", Epoch: 5, Change: 8, Home: m("2"), Members: []federation.Member{m("2")},
		Trail: []federation.Ancestor{{Change: 3, Digest: "a"}}}
	tips := federation.Branches([]federation.Control{x, y})
	c := federation.Correction{Key: "control/v", Branches: tips}
	if homes := c.Homes(); len(homes) != 2 || homes[0] == homes[1] || c.Keep(homes[1], unsaid) != nil {
		t.Errorf("the branches are called %v", homes)
	}
	c.Value = nil
	if err := c.Keep("k", unsaid); err == nil {
		t.Errorf("%d branches of one home in one epoch: the first is kept, unasked: %s", len(tips), c.Value)
	}
}
