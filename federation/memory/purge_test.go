// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
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
