// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
)

// whole returns n segments of this length, of which all is live but the frames' plain parts.
func whole(n int, length uint64) (out []Object) {
	for i := range n {
		live := Live{Bytes: length * 99 / 100, Blocks: length/65_000 + 1}
		out = append(out, Object{Len: length, Live: live, Segments: 1, Last: uint64(i + 1)})
	}
	return out
}

// TestChoose checks the edges of the rule.
func TestChoose(t *testing.T) {
	dead := Object{Len: 64 << 20, Last: 99}
	half := Object{Len: 60 << 20, Live: Live{30 << 20, 500}, Segments: 1, Last: 3}
	full := whole(1, 2<<20)[0]
	full.Segments, full.Last = MaxSegments, 500
	upTo := func(n int) (out []int) {
		for i := range n {
			out = append(out, i)
		}
		return out
	}
	old := whole(64, 1<<20)
	slices.Reverse(old)
	oldest := upTo(64)
	slices.Reverse(oldest)
	for name, c := range map[string]struct {
		objects []Object
		want    Plan
	}{
		"nothing":                         {},
		"dead ones":                       {[]Object{dead, whole(1, 60<<20)[0], dead}, Plan{Dead: []int{0, 2}}},
		"dead within what is allowed":     {[]Object{half}, Plan{}},
		"more than is allowed":            {[]Object{half, half, half, half}, Plan{Packs: [][]int{{0, 1}}}},
		"nearly as many small ones":       {whole(63, 1<<20), Plan{}},
		"small ones":                      {whole(64, 1<<20), Plan{Packs: [][]int{upTo(64)}}},
		"small ones, the newest first":    {old, Plan{Packs: [][]int{oldest}}},
		"a pack that is full of segments": {append(whole(63, 1<<20), full), Plan{}},
		"none of them is small":           {whole(100, 4<<20), Plan{}},
	} {
		if got := Choose(c.objects, DefaultRule()); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestChooseKeepsItsLimits plans for random objects. The same objects in another order give the
// same plan.
func TestChooseKeepsItsLimits(t *testing.T) {
	for _, n := range seeds() {
		rng := rand.New(rand.NewPCG(n, 55))
		var objects []Object
		for i := range rng.IntN(300) {
			o := Object{Len: 1 + rng.Uint64N(64<<20), Segments: 1 + rng.IntN(MaxSegments/8), Last: uint64(i + 1)}
			o.Live.Bytes = rng.Uint64N(o.Len)
			o.Live.Blocks = o.Live.Bytes/uint64(100+rng.IntN(60_000)) + uint64(rng.IntN(2))
			objects = append(objects, o)
		}
		plan := Choose(objects, DefaultRule())
		seen := map[int]bool{}
		for _, i := range plan.Dead {
			seen[i] = true
		}
		for _, p := range plan.Packs {
			var size, blocks uint64
			segments := 0
			for k, i := range p {
				if seen[i] || objects[i].Live.Blocks == 0 {
					t.Fatalf("seed %d: object %d twice, or dead", n, i)
				}
				if k > 0 && objects[p[k-1]].Last > objects[i].Last {
					t.Fatalf("seed %d: not in order of age", n)
				}
				seen[i] = true
				size, blocks, segments = size+objects[i].need(), blocks+objects[i].Live.Blocks, segments+objects[i].Segments
			}
			if len(p) > 1 && (size > MaxSize || blocks > MaxBlocks/2) || segments > MaxSegments {
				t.Fatalf("seed %d: a pack of %d bytes, %d blocks, %d segments", n, size, blocks, segments)
			}
		}
		other := rng.Perm(len(objects))
		shuffled := make([]Object, len(objects))
		for i, o := range objects {
			shuffled[other[i]] = o
		}
		want := slices.Clone(plan.Packs)
		for i, p := range want {
			want[i] = slices.Clone(p)
			for k := range p {
				want[i][k] = other[p[k]]
			}
		}
		if got := Choose(shuffled, DefaultRule()); !reflect.DeepEqual(got.Packs, want) || len(got.Dead) != len(plan.Dead) {
			t.Fatalf("seed %d: in another order: another plan", n)
		}
	}
}

// TestBuildTakesLittleMemory builds from a segment of 20 MiB, and from a pack.
func TestBuildTakesLittleMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	w := write(t, rng, 1, 10_000, func() int { return 1000 })
	contents, built := build(t, w.source(w.keep(all)))
	again := Source{Pack: true, Hash: built.Hash, Len: built.Len, Kept: built.Index.Kept(), Read: from(contents)}
	for what, s := range map[string]Source{"a segment": w.source(w.keep(odd)), "a pack": again} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Build(testVolume, []Source{s}, nil, io.Discard); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
			t.Errorf("from %s of %d bytes: allocated %d bytes", what, s.Len, took)
		}
	}
}
