// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// mustWriteOver writes a checkpoint of the pairs now, as a change of base, which has those of was.
func mustWriteOver(t testing.TB, base *Manifest, was, now []Pair, to Objects) (*Manifest, Stats) {
	t.Helper()
	m, stats, err := WriteOver(t.Context(), testHead, &testKey, base, each(was), each(now), to)
	if err != nil {
		t.Fatal(err)
	}
	return m, stats
}

// randomChange changes, adds and removes some pairs, all over or of one place.
func randomChange(rng *rand.Rand, all map[string]string) {
	keys := slices.Sorted(maps.Keys(all))
	from, n := 0, len(keys)
	if rng.IntN(2) == 0 && n > 10 {
		from = rng.IntN(n - n/10)
		n /= 10
	}
	for range rng.IntN(n/20 + 3) {
		k := fmt.Sprintf("%c%06x", 'a'+rng.IntN(5), rng.IntN(1<<24))
		if n > 0 && rng.IntN(3) > 0 {
			k = keys[from+rng.IntN(n)]
		}
		switch rng.IntN(4) {
		case 0:
			delete(all, k)
		case 1:
			all[k] = ""
		default:
			all[k] = fmt.Sprintf("%0*d", rng.IntN(400), rng.Int())
		}
	}
	if rng.IntN(12) == 0 { // all that begins with a letter goes
		for k := range all {
			if k[0] == byte('a'+rng.IntN(5)) {
				delete(all, k)
			}
		}
	}
}

// TestWriteOver: of a random history each checkpoint is read as what it was made of, whole and in
// ranges, and whoever reads what base had from the store makes the same as who has it.
func TestWriteOver(t *testing.T) {
	layered, anew, put := 0, 0, 0
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 77))
		now := map[string]string{}
		for range 20_000 {
			now[fmt.Sprintf("%c%06x", 'a'+rng.IntN(5), rng.IntN(1<<24))] = fmt.Sprintf("%0*d", rng.IntN(300), rng.Int())
		}
		store, other := newMemory(), newMemory()
		m, _ := mustWrite(t, testHead, sorted(now), store)
		mustWrite(t, testHead, sorted(now), other)
		for step := range 20 {
			was, base := sorted(now), m
			randomChange(rng, now)
			var stats Stats
			m, stats = mustWriteOver(t, base, was, sorted(now), store)
			if len(m.Changes) > 0 {
				layered++
			}
			if stats.Uploaded > len(m.Changes) {
				anew++
			}
			if rng.IntN(4) == 0 && len(other.objects) > 0 { // the other store lost something of what base has
				names := base.Names()
				n := names[rng.IntN(len(names)-1)]
				if other.objects[n] != nil {
					put++
				}
				delete(other.objects, n)
			}
			from := both{other, store}
			opened, err := Open(t.Context(), testHead.Volume, base.Hash(), testKeys, store)
			if err != nil {
				t.Fatal(err)
			}
			again, _, err := WriteOver(t.Context(), testHead, &testKey, opened, opened.ReadPairs(t.Context(), store),
				each(sorted(now)), from)
			if err != nil || !reflect.DeepEqual(again.Hash(), m.Hash()) {
				t.Fatalf("seed %d, step %d: another copy makes %x, %v, not %x", seed, step, again.Hash(), err, m.Hash())
			}
			for _, s := range []*memory{store, other} {
				read, pairs, err := readAll(t.Context(), m.Hash(), s)
				if err != nil || !samePairs(pairs, sorted(now)) || !reflect.DeepEqual(read, m) || int(m.Pairs) != len(now) {
					t.Fatalf("seed %d, step %d: %d pairs of %d are read, %d are said, %v", seed, step, len(pairs), len(now), m.Pairs, err)
				}
			}
			lo, hi := fmt.Sprintf("%c%06x", 'a'+rng.IntN(5), rng.IntN(1<<24)), fmt.Sprintf("%c%06x", 'a'+rng.IntN(5), rng.IntN(1<<24))
			want := slices.DeleteFunc(sorted(now), func(p Pair) bool { return string(p.Key) < lo || string(p.Key) >= hi })
			var got []Pair
			for p, err := range m.ReadRange(t.Context(), []byte(lo), []byte(hi), store) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, p)
			}
			if !samePairs(got, want) {
				t.Fatalf("seed %d, step %d: in a range %d pairs, want %d", seed, step, len(got), len(want))
			}
			if len(now) == 0 {
				break
			}
		}
	}
	if t.Logf("%d with changes, %d cut something anew, %d lost", layered, anew, put); layered == 0 || anew == 0 || put == 0 {
		t.Error("not all happened")
	}
}

// both reads what one does not have from the other.
type both struct {
	*memory
	other *memory
}

func (b both) Get(ctx context.Context, name string) ([]byte, error) {
	if p, err := b.memory.Get(ctx, name); err == nil {
		return p, nil
	}
	return b.other.Get(ctx, name)
}

// TestWriteOverAnother: a checkpoint of another volume or under another data key is no base.
func TestWriteOverAnother(t *testing.T) {
	was := map[string]string{"a": "1"}
	m, _ := mustWrite(t, testHead, sorted(was), newMemory())
	for name, change := range map[string]func(*Head){"volume": func(h *Head) { h.Volume[0]++ }, "key": func(h *Head) { h.Key++ }} {
		head := testHead
		change(&head)
		if _, _, err := WriteOver(t.Context(), head, &testKey, m, each(sorted(was)), each(sorted(was)), newMemory()); err == nil {
			t.Errorf("another %s: it is made", name)
		}
	}
}

// TestDamagedBase: what base had must be right, or nothing is made.
func TestDamagedBase(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	was := map[string]string{}
	for range 20_000 {
		was[fmt.Sprintf("%06x", rng.IntN(1<<24))] = fmt.Sprintf("%0*d", 100, rng.Int())
	}
	store := newMemory()
	m, _ := mustWrite(t, testHead, sorted(was), store)
	now := maps.Clone(was)
	now[slices.Sorted(maps.Keys(was))[7]] = "another"
	m2, _ := mustWriteOver(t, m, sorted(was), sorted(now), store)
	if len(m2.Changes) != 1 {
		t.Fatalf("%d chunks of changes", len(m2.Changes))
	}
	for _, n := range m2.Names()[:len(m2.Names())-1] {
		broken := newMemory()
		maps.Copy(broken.objects, store.objects)
		b := slices.Clone(broken.objects[n])
		b[len(b)-40] ^= 1
		broken.objects[n] = resum(b)
		_, _, err := WriteOver(t.Context(), testHead, &testKey, m2, m2.ReadPairs(t.Context(), broken), each(sorted(now)), broken)
		if e := (*ObjectError)(nil); !errors.As(err, &e) || e.Name != n || !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s is damaged: %v", n, err)
		}
	}
}
