// SPDX-License-Identifier: Apache-2.0

package rebuild

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/store/dir"
	"github.com/weir-storage/weir/store/memory"
	"github.com/weir-storage/weir/volume"
)

// rebuilt rebuilds, and compares all pairs with those that the log made up to there.
func (g *target) rebuilt(want []meta.Pair, end log.Position) Report {
	g.Helper()
	r, err := Make(g.Context(), g.Config)
	if err != nil {
		g.Fatal(err)
	}
	if got := pairsIn(g.T, g.Dir.Path()+"/meta"); !same(got, want) || r.End != end {
		g.Fatalf("%d pairs up to %s, want %d up to %s", len(got), r.End, len(want), end)
	}
	l, err := log.Open(r.log)
	if err != nil {
		g.Fatal(err)
	}
	if rec := l.Recovered(); rec.Doubt != nil || rec.End != end || rec.Committed != end || l.AbsentBytes() != 0 {
		g.Fatalf("the log is %+v, %d bytes are absent", rec, l.AbsentBytes())
	}
	if err := l.Close(); err != nil {
		g.Fatal(err)
	}
	return r
}

// history makes a volume with several epochs and three checkpoints.
func history(t *testing.T, seed uint64) (h *home, end log.Position, want []meta.Pair) {
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h = newHome(t, seed, s)
	for range 3 {
		h.changes(60)
		h.again()
		h.changes(60)
		h.checkpoint()
		h.changes(30)
	}
	h.ok(h.log.Roll())
	end = h.upload()
	return h, end, h.upTo(end)
}

// TestRebuiltEqualsKeyByKey throws all but the store away, and damages that in ways by which
// nothing is lost.
func TestRebuiltEqualsKeyByKey(t *testing.T) {
	for seed := range uint64(4) {
		h, end, want := history(t, seed)
		last := h.made[2]
		r := newTarget(t, h.store).rebuilt(want, end)
		if r.Checkpoint != last.At || uint64(r.Read) != end.Seq-last.At.Seq || len(r.Lost)+len(r.Passed)+len(r.Left) > 0 {
			t.Fatalf("seed %d: %+v", seed, r)
		}
		t.Logf("%d pairs, %d segments, of which %d were applied", len(want), r.Segments, r.Read)

		for what, names := range map[string][]string{
			"a chunk of the newest checkpoint": last.Names()[:1], "its manifest": last.Names()[len(last.Chunks):],
		} {
			s := clone(t, h.store)
			for _, n := range names {
				if slices.Contains(h.made[1].Names(), n) { // a chunk that both have
					continue
				}
				h.ok(s.Delete(t.Context(), n))
			}
			r := newTarget(t, s).rebuilt(want, end)
			if r.Checkpoint == last.At && !strings.Contains(what, "chunk") {
				t.Fatalf("seed %d without %s: %+v", seed, what, r)
			}
			damaged := clone(t, h.store)
			for _, n := range last.Names() {
				if !slices.Contains(h.made[1].Names(), n) {
					replace(t, damaged, n, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
				}
			}
			if r := newTarget(t, damaged).rebuilt(want, end); r.Checkpoint != h.made[1].At || len(r.Passed) == 0 {
				t.Fatalf("seed %d with a damaged checkpoint: %+v", seed, r)
			}
		}
		none := clone(t, h.store)
		for _, m := range h.made {
			for _, n := range m.Names() {
				h.ok(none.Delete(t.Context(), n))
			}
		}
		if r := newTarget(t, none).rebuilt(want, end); r.Checkpoint.Seq != 0 || uint64(r.Read) != end.Seq {
			t.Fatalf("seed %d without checkpoints: %+v", seed, r)
		}
	}
}

// TestABranchThatWasLeftOut: of two segments of one sequence, the epochs after them decide.
func TestABranchThatWasLeftOut(t *testing.T) {
	h := newHome(t, 1, memory.New())
	h.changes(100)
	h.checkpoint()
	h.changes(40)
	fork := h.log.End()
	h.changes(80) // what a forced takeover leaves out
	h.ok(h.log.Roll())
	h.changes(20)
	h.checkpoint()
	h.changes(20)
	h.ok(h.log.Roll())
	longer := h.upload()

	// Another home has the log up to the fork, and goes on in a later epoch.
	b := newHome(t, 2, h.store)
	b.close()
	b.path, b.epoch, b.made = t.TempDir(), 0, nil
	pool := copyLog(b, h, fork)
	b.epoch = h.epoch + 1
	b.ok(pool.Close())
	b.open()
	b.changes(30)
	b.ok(b.log.Roll())
	end := b.upload()
	if longer.Seq <= end.Seq {
		t.Fatalf("the branch that was left out ends at %s, the other at %s", longer, end)
	}
	r := newTarget(t, b.store).rebuilt(b.upTo(end), end)
	if r.Checkpoint != h.made[0].At || len(r.Left) < 2 {
		t.Fatalf("%+v", r)
	}
	// It also does when the other branch has no checkpoint before it.
	s := clone(t, b.store)
	for _, n := range h.made[0].Names() {
		if !slices.Contains(h.made[1].Names(), n) {
			h.ok(s.Delete(t.Context(), n))
		}
	}
	if r := newTarget(t, s).rebuilt(b.upTo(end), end); r.Checkpoint.Seq != 0 {
		t.Fatalf("%+v", r)
	}
}

// TestWhatIsLostIsNamed takes segments away.
func TestWhatIsLostIsNamed(t *testing.T) {
	h := newHome(t, 3, memory.New())
	write := func(name string, n int) {
		t.Helper()
		a, err := h.engine.Lookup(t.Context(), asRoot, volume.Root, name)
		if errors.Is(err, volume.ErrNotExist) {
			var c volume.Created
			c, err = h.engine.Create(t.Context(), asRoot, volume.Root, name, volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
			a = c.Attr
		}
		h.ok(err)
		p := make([]byte, n)
		for i := range p {
			p[i] = name[i%len(name)]
		}
		_, err = h.engine.Write(t.Context(), asRoot, a.Handle, 0, p, true)
		h.ok(err)
	}
	write("first", 1000)
	h.ok(h.log.Roll())
	write("second", 1000)
	h.ok(h.log.Roll())
	write("third", 1000)
	m := h.checkpoint()
	write("fourth", 1000)
	h.ok(h.log.Roll())
	write("fifth", 1000)
	write("second", 500) // its other half stays where it is
	h.ok(h.log.Roll())
	end := h.upload()
	names := map[uint64]string{}
	for _, s := range h.log.Segments() {
		names[s.Seq] = s.Name
	}

	// A segment before the checkpoint: the state is whole, and files are not.
	s := clone(t, h.store)
	gone := names[2]
	h.ok(s.Delete(t.Context(), gone))
	g := newTarget(t, s)
	_, err := Make(t.Context(), g.Config)
	var loss *LossError
	if !errors.As(err, &loss) || !strings.Contains(err.Error(), gone) || !strings.Contains(err.Error(), "/second") ||
		strings.Contains(err.Error(), "/first") || strings.Contains(err.Error(), "/fifth") {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(g.Dir.Path() + "/*"); len(files) > 0 {
		t.Fatalf("%q are left", files)
	}
	g.AcceptLoss = true
	r, err := Make(t.Context(), g.Config)
	if err != nil || r.End != end || len(r.Lost) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	c, err := r.Open(s)
	h.ok(err)
	into := t.TempDir()
	if _, err := Extract(t.Context(), c, into, false); !errors.Is(err, volume.ErrIO) || !strings.Contains(err.Error(), "/second") {
		t.Fatal(err)
	}
	into = t.TempDir()
	w, err := Extract(t.Context(), c, into, true)
	if err != nil || !slices.Equal(w.Lost, []string{"/second"}) || w.Files != 4 {
		t.Fatalf("%+v, %v", w, err)
	}
	h.ok(c.Close())

	// A segment after it: what comes later cannot be applied.
	for what, damage := range map[string]func(s *memory.Store, name string){
		"missing": func(s *memory.Store, name string) { h.ok(s.Delete(t.Context(), name)) },
		"damaged": func(s *memory.Store, name string) {
			replace(t, s, name, func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
		},
		"no start": func(s *memory.Store, name string) { replace(t, s, name, func(b []byte) []byte { b[3] ^= 1; return b }) },
		"short":    func(s *memory.Store, name string) { replace(t, s, name, func(b []byte) []byte { return b[:len(b)-1] }) },
	} {
		s := clone(t, h.store)
		gone := names[m.At.Seq+1]
		damage(s, gone)
		g := newTarget(t, s)
		_, err := Make(t.Context(), g.Config)
		if !errors.As(err, &loss) || !strings.Contains(err.Error(), gone) || !strings.Contains(err.Error(), "/fifth") ||
			!strings.Contains(err.Error(), "/second") || strings.Contains(err.Error(), "/first") {
			t.Fatalf("%s: %v", what, err)
		}
		g.AcceptLoss = true
		r, err := Make(t.Context(), g.Config)
		h.ok(err)
		// Whoever begins with a checkpoint knows its place before the next record.
		derived := func(p meta.Pair) bool {
			return slices.Contains([]meta.Table{meta.Segments, meta.Checkpoints}, meta.Table(p.Key[0]))
		}
		got, want := slices.DeleteFunc(pairsIn(t, g.Dir.Path()+"/meta"), derived), slices.DeleteFunc(h.upTo(m.At), derived)
		if r.End != m.At || !same(got, want) {
			t.Fatalf("%s: %d pairs up to %s, want %d up to %s", what, len(got), r.End, len(want), m.At)
		}
	}
	// Nothing is told of the last one: nobody knows that it was there.
	s = clone(t, h.store)
	h.ok(s.Delete(t.Context(), names[end.Seq]))
	if r, err := Make(t.Context(), newTarget(t, s).Config); err != nil || r.End.Seq != end.Seq-1 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// TestNothingIsMade: of what is not there, over what is there, and without a key.
func TestNothingIsMade(t *testing.T) {
	h := newHome(t, 4, memory.New())
	h.changes(50)
	h.ok(h.log.Roll())
	h.upload()
	refused := func(what string, change func(*Config), want string) {
		t.Helper()
		g := newTarget(t, h.store)
		change(&g.Config)
		if _, err := Make(t.Context(), g.Config); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	refused("of another volume", func(c *Config) { c.Volume[3]++ }, "has nothing of volume")
	refused("in an empty store", func(c *Config) { c.Store = memory.New() }, "has nothing of volume")
	g := newTarget(t, h.store)
	if _, err := Make(t.Context(), g.Config); err != nil {
		t.Fatal(err)
	}
	refused("over a copy", func(c *Config) { c.Dir = g.Dir }, "there is a copy already")
}
