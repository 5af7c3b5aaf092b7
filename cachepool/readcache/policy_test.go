// SPDX-License-Identifier: Apache-2.0

package readcache

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// fakeLog has segments of a file's size on the pool.
type fakeLog struct {
	b    *bed
	name string
	mu   sync.Mutex
	have []uint64
}

func (l *fakeLog) Evictable() (out []File, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.have {
		out = append(out, File{seg(s), testFile})
	}
	return out, true
}

func (l *fakeLog) Evict(seq uint64, before func()) int64 {
	before()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range l.have {
		if s == seq {
			l.have = append(l.have[:i], l.have[i+1:]...)
			l.b.pool.Room().Release(testFile)
			return testFile
		}
	}
	return 0
}

func (l *fakeLog) ReadSegmentFile(seq uint64, p []byte, off int64) (int, error) {
	return copy(p, sealed(l.name, seg(seq), int(off-100)/testBlock)), nil
}

// The log's own files go as what is in the small queue, and what is read of them often stays.
func TestSegments(t *testing.T) {
	b := newBed(t, testLimit)
	v := b.volume("a", Share{})
	l := &fakeLog{b: b, name: "a"}
	for s := range uint64(20) {
		l.have = append(l.have, s)
		if err := b.pool.Room().Reserve(testFile); err != nil {
			t.Fatal(err)
		}
	}
	v.Attach(l)
	v.Used(seg(0), at(3))
	v.Used(seg(0), at(3))
	v.Used(seg(0), at(4))
	if used := b.cache.Status().Volumes["a"].Segments; used != 20*testFile {
		t.Errorf("%d bytes of segments can go", used)
	}
	b.cache.MakeRoom("a", testFile/2)
	if len(l.have) != 19 || l.have[0] != 1 {
		t.Errorf("these segments are left: %v", l.have)
	}
	if !v.Has(seg(0), at(3)) || v.Has(seg(0), at(4)) || has(t, v, seg(0), 3, 4) != 1 {
		t.Error("what was read twice is to stay, and what was read once is not")
	}
	// A volume that gets a limit gives its segments up.
	v.SetShare(Share{Limit: 5 * testFile})
	until(t, "the limit is kept", func() bool { return b.kept("a") <= 5*testFile })
	if !v.Has(seg(0), at(3)) {
		t.Error("what was read often went before what was never read")
	}
	v.Detach()
	if used := b.cache.Status().Volumes["a"].Segments; used != 0 {
		t.Errorf("%d bytes are of nobody", used)
	}
}

// reader reads blocks as an application does, and returns the share that was there.
func reader(v *Volume, reads int, next func() (Segment, int)) float64 {
	hits, p := 0, make([]byte, testBlock)
	for range reads {
		s, n := next()
		if _, ok := v.Get(s, at(n).Off, p); ok {
			hits++
		} else {
			put(v, s, n, n+1)
		}
	}
	return float64(hits) / float64(reads)
}

// zipf reads from a set of blocks, some of them often.
func zipf(blocks uint64, r *rand.Rand) func() (Segment, int) {
	z := rand.NewZipf(r, 1.1, 1, blocks-1)
	return func() (Segment, int) {
		n := z.Uint64() * 7919 % blocks
		return seg(n / 60), int(n % 60)
	}
}

// scan reads everything once.
func scan() func() (Segment, int) {
	n := uint64(0)
	return func() (Segment, int) {
		n++
		return seg(n / 60), int(n % 60)
	}
}

// While one application reads ten times the pool once, another one keeps what it reads often.
func TestScan(t *testing.T) {
	rates := func(share Share) (before, during float64) {
		b := newBed(t, testLimit)
		v, w := b.volume("a", share), b.volume("b", Share{})
		r := rand.New(rand.NewPCG(3, 4))
		next, all := zipf(700, r), scan() // 700 KiB of 1 MiB
		reader(v, 20000, next)
		before = reader(v, 5000, next)
		for range 100 { // 10 MiB in all
			reader(w, 100, all)
			during += reader(v, 50, next) / 100
		}
		b.room()
		return before, during
	}
	before, during := rates(Share{})
	t.Logf("without a reserve: hit rate %.3f, and %.3f beside a scan", before, during)
	if during < before-0.15 {
		t.Errorf("a scan takes the hit rate from %.3f to %.3f", before, during)
	}
	before, during = rates(Share{Reserve: 900 << 10})
	t.Logf("with a reserve: hit rate %.3f, and %.3f beside a scan", before, during)
	if during < before-0.05 {
		t.Errorf("beside a reserve a scan takes the hit rate from %.3f to %.3f", before, during)
	}
}

// What is read more than once is kept longer than by a queue alone.
func TestByUse(t *testing.T) {
	b := newBed(t, testLimit)
	v := b.volume("a", Share{})
	r := rand.New(rand.NewPCG(5, 6))
	next := zipf(10_000, r) // ten times the pool
	reader(v, 30_000, next)
	got := reader(v, 30_000, next)
	fifo := map[uint64]bool{}
	var order []uint64
	hits := 0
	for i := range 60_000 {
		s, n := next()
		k := s.Seq*60 + uint64(n)
		if fifo[k] {
			if i >= 30_000 {
				hits++
			}
			continue
		}
		fifo[k] = true
		if order = append(order, k); len(order) > 1000 {
			delete(fifo, order[0])
			order = order[1:]
		}
	}
	t.Logf("hit rate %.3f; first in, first out: %.3f", got, float64(hits)/30_000)
	if got < float64(hits)/30_000 {
		t.Errorf("hit rate %.3f, and first in, first out has %.3f", got, float64(hits)/30_000)
	}
}
