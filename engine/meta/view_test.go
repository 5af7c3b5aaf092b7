// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/segment"
)

func openStore(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open(Options{FS: fs, Dir: "meta", DataKey: [32]byte{1}, Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// randomOps returns operations on few keys, and applies them to model.
func randomOps(rng *mathrand.Rand, model map[string]string) []segment.Op {
	key := func() []byte { return fmt.Appendf(nil, "k%02d", rng.IntN(40)) }
	var ops []segment.Op
	for range 1 + rng.IntN(4) {
		switch k := key(); rng.IntN(5) {
		case 0:
			end := key()
			ops = append(ops, segment.Op{Kind: segment.DeleteRange, Key: k, End: end})
			for name := range model {
				if name >= string(k) && name < string(end) {
					delete(model, name)
				}
			}
		case 1:
			ops = append(ops, segment.Op{Kind: segment.Delete, Key: k})
			delete(model, string(k))
		default:
			v := fmt.Appendf(nil, "%x", rng.Uint32())
			ops = append(ops, segment.Op{Kind: segment.Set, Key: k, Value: v})
			model[string(k)] = string(v)
		}
	}
	return ops
}

func checkView(t *testing.T, v *View, model map[string]string) {
	t.Helper()
	got := make(map[string]string)
	last := ""
	for p, err := range v.Range([]byte("k"), []byte("l")) {
		if err != nil {
			t.Fatal(err)
		}
		if string(p.Key) <= last {
			t.Fatalf("key %q comes after %q", p.Key, last)
		}
		last = string(p.Key)
		got[last] = string(p.Value)
	}
	if !maps.Equal(got, model) {
		t.Fatalf("view has %v\nwant %v", got, model)
	}
	for i := range 40 {
		k := fmt.Sprintf("k%02d", i)
		value, ok, _, err := v.Get([]byte(k))
		want, wantOK := model[k]
		if err != nil || ok != wantOK || string(value) != want {
			t.Fatalf("%s is %q (%t), %v; want %q (%t)", k, value, ok, err, want, wantOK)
		}
	}
	stopped := 0
	for _, err := range v.Range([]byte("k1"), []byte("k3")) {
		if err != nil {
			t.Fatal(err)
		}
		stopped++
		break
	}
	if len(slices.Collect(maps.Keys(model))) == 40 && stopped == 0 {
		t.Fatal("a range of a full view is empty")
	}
}

// TestOverlayModel runs random records through an overlay and a store, as a home does, and compares
// what is visible with a map after each step. Views that were taken earlier must not change.
func TestOverlayModel(t *testing.T) {
	for seed := range uint64(20) {
		rng := mathrand.New(mathrand.NewPCG(seed, 1))
		s := openStore(t, vfs.NewMem())
		over := NewOverlay()
		model := make(map[string]string)
		type record struct {
			ops []segment.Op
			pos segment.Position
		}
		var pending []record
		type old struct {
			view  *View
			model map[string]string
		}
		var olds []old
		for i := range uint64(300) {
			r := record{randomOps(rng, model), segment.Position{Seq: 1, Off: i + 1}}
			over.Apply(r.ops, r.pos)
			pending = append(pending, r)
			checkView(t, s.Live(over), model)
			if rng.IntN(10) == 0 {
				olds = append(olds, old{s.Snapshot(over.Copy()), maps.Clone(model)})
			}
			if n := rng.IntN(len(pending) + 1); rng.IntN(3) == 0 && n > 0 {
				var ops [][]segment.Op
				for _, p := range pending[:n] {
					ops = append(ops, p.ops)
				}
				applied := pending[n-1].pos
				// Between these two calls, everything is in both.
				if err := s.Apply(ops, State{Position: applied}); err != nil {
					t.Fatal(err)
				}
				checkView(t, s.Live(over), model)
				for _, p := range pending[:n] {
					over.Drop(p.ops, applied)
				}
				pending = pending[n:]
				checkView(t, s.Live(over), model)
				if len(pending) == 0 && !over.Empty() {
					t.Fatal("the overlay keeps something though nothing is pending")
				}
			}
			if len(olds) > 3 {
				checkView(t, olds[0].view, olds[0].model)
				if err := olds[0].view.Close(); err != nil {
					t.Fatal(err)
				}
				olds = olds[1:]
			}
		}
		for _, o := range olds {
			checkView(t, o.view, o.model)
			if err := o.view.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCrashLeavesPrefix applies records, flushes now and then, and crashes. The store must then
// have the state after the record that the applied position names, and never an earlier one than
// the last flush.
func TestCrashLeavesPrefix(t *testing.T) {
	rng := mathrand.New(mathrand.NewPCG(7, 7))
	fs := vfs.NewCrashableMem()
	s := openStore(t, fs)
	model := make(map[string]string)
	states := []map[string]string{maps.Clone(model)}
	flushed := uint64(0)
	for i := range uint64(120) {
		ops := randomOps(rng, model)
		states = append(states, maps.Clone(model))
		if err := s.Apply([][]segment.Op{ops}, State{Position: segment.Position{Seq: 1, Off: i + 1}, Epoch: i}); err != nil {
			t.Fatal(err)
		}
		if rng.IntN(20) == 0 {
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
			flushed = i + 1
		}
		crashed := openStore(t, fs.CrashClone(vfs.CrashCloneCfg{
			UnsyncedDataPercent: 50, RNG: mathrand.New(mathrand.NewPCG(i, 3)),
		}))
		at := crashed.State().Position.Off
		if at < flushed || at > i+1 || at > 0 && crashed.State().Epoch != at-1 {
			t.Fatalf("after record %d and a crash the state is %+v, flushed up to %d", i+1, crashed.State(), flushed)
		}
		checkView(t, crashed.Live(nil), states[at])
		if err := crashed.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenOfDamagedState(t *testing.T) {
	fs := vfs.NewMem()
	s := openStore(t, fs)
	k, v := State{Epoch: 3}.Encode()
	v[3] ^= 1
	if err := errors.Join(s.db.Set(k, v, pebble.NoSync), s.Close()); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Options{FS: fs, Dir: "meta", DataKey: [32]byte{1}, Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, ErrCorrupt) {
		t.Fatalf("opened with a damaged applied position: %v", err)
	}
}
