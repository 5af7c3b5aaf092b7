// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"runtime"
	"testing"
)

// The benchmarks' bytes are those of keys and values. The store is in memory.

func benchmarkPairs(b *testing.B) []Pair {
	t := newTree(1)
	t.grow(50_000)
	pairs := sorted(t.all)
	n := 0
	for _, p := range pairs {
		n += len(p.Key) + len(p.Value)
	}
	b.SetBytes(int64(n))
	b.ReportAllocs()
	return pairs
}

// plainly iterates over pairs without copying them.
func plainly(pairs []Pair) func(func(Pair, error) bool) {
	return func(yield func(Pair, error) bool) {
		for _, p := range pairs {
			if !yield(p, nil) {
				return
			}
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	pairs := benchmarkPairs(b)
	for b.Loop() {
		if _, _, err := Write(b.Context(), testHead, &testKey, plainly(pairs), newMemory()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWriteAgain writes a checkpoint of which the store has all.
func BenchmarkWriteAgain(b *testing.B) {
	pairs := benchmarkPairs(b)
	store := newMemory()
	for b.Loop() {
		if _, _, err := Write(b.Context(), testHead, &testKey, plainly(pairs), store); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	pairs := benchmarkPairs(b)
	store := newMemory()
	m, _ := mustWrite(b, testHead, pairs, store)
	for b.Loop() {
		n := 0
		for _, err := range m.ReadPairs(b.Context(), store) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != len(pairs) {
			b.Fatal(n)
		}
	}
}

// TestMemory: what a Write and a read have in memory does not grow with the checkpoint.
func TestMemory(t *testing.T) {
	const limit = 32 << 20
	value := make([]byte, 300)
	many := func(yield func(Pair, error) bool) {
		key := make([]byte, 13)
		for i := range 500_000 { // 150 MB
			for j := range 4 {
				key[1+j] = byte(i >> (24 - 8*j))
				value[j*50] = byte(i >> (5 * j))
			}
			if !yield(Pair{key, value}, nil) {
				return
			}
		}
	}
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	before := stats.HeapAlloc
	var most uint64
	watch := func() {
		runtime.GC()
		runtime.ReadMemStats(&stats)
		most = max(most, stats.HeapAlloc-min(before, stats.HeapAlloc))
	}
	n := 0
	store := newMemory()
	m, _, err := Write(t.Context(), testHead, &testKey, func(yield func(Pair, error) bool) {
		for p, _ := range many { // it has no errors
			if n++; n%50_000 == 0 {
				watch()
			}
			if !yield(p, nil) {
				return
			}
		}
	}, store)
	if err != nil {
		t.Fatal(err)
	}
	size := uint64(0)
	for _, b := range store.objects {
		size += uint64(len(b))
	}
	t.Logf("write: at most %.1f MiB, of which the store had %.1f MiB; %d chunks", float64(most)/(1<<20), float64(size)/(1<<20),
		len(m.Chunks))
	if most > limit+size {
		t.Errorf("Write had %d bytes in memory, at most %d are allowed", most-size, limit)
	}
	most, n = 0, 0
	for _, err := range m.ReadPairs(t.Context(), store) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n%50_000 == 0 {
			watch()
		}
	}
	t.Logf("read: at most %.1f MiB, store included", float64(most)/(1<<20))
	if most > limit+size {
		t.Errorf("reading had %d bytes in memory, at most %d are allowed", most-size, limit)
	}
}
