// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/test/e2e/bed"
)

// The short form has each kind of fault once. The long form, with WEIR_SOAK=1, has 200 faults and
// takes at least an hour.
var (
	number = flag.Int("faults", 0, "how many faults; 0: each kind once, or 200 in the long form, with WEIR_SOAK=1")
	seed   = flag.Uint64("seed", 0, "of the random choices; 0: another one each time")
)

const (
	long  = 200
	hour  = time.Hour
	guard = 4 * time.Minute // until the volume is whole again: a guard against hanging
)

// manifest is a volume whose members may trail far, so that a full pool does not stop writers
// before it is full.
var manifest = strings.Replace(bed.Manifest("v", 2, "a"), "maxLag: {time: 8s}", "maxLag: {time: 1h, bytes: 100Gi}", 1)

// run is the test at work.
type run struct {
	*bed.Scene
	rand    *rand.Rand
	writers map[string]*writers // by site; those that work now
	all     []*writers          // also those whose machine was lost
	machine int                 // machines so far
	done    []happened
}

// happened is a fault that was.
type happened struct {
	kind       string
	what       string
	begin, end time.Time // end: the volume was whole again
}

// TestFaults draws faults and checks that nothing is lost.
func TestFaults(t *testing.T) {
	n, least := *number, time.Duration(0)
	if n == 0 && os.Getenv("WEIR_SOAK") != "" {
		n, least = long, hour
	}
	if n == 0 {
		n = len(kinds)
	}
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("seed %d", s)
	r := &run{rand: rand.New(rand.NewPCG(s, 1)), writers: map[string]*writers{}}
	lasts := time.Duration(n)*guard + least
	r.Scene = bed.NewScene(t, bed.Config{Promise: "2s", PoolSize: map[string]string{"a": poolSize, "b": poolSize, "c": poolSize},
		Cache: "32Mi", // what verify reads would fill a larger one, and a leak could hide behind it
		Lasts: lasts}, manifest)
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	r.Ctx = ctx
	for _, site := range writing {
		r.write(site)
	}
	r.whole()
	time.Sleep(5 * time.Second) // what a gateway has when it works
	before := r.sizes()
	began := time.Now()
	var drawn []int
	for i := 0; i < n || time.Since(began) < least; i++ {
		if len(drawn) == 0 { // each kind is as frequent as the others
			drawn = r.rand.Perm(len(kinds))
		}
		r.fault(kinds[drawn[0]])
		drawn = drawn[1:]
	}
	for _, w := range r.writers {
		w.finish(r)
	}
	r.whole()
	r.verify()
	r.figures()
	r.flat(before)
}

// fault makes one fault, undoes it, and waits until the volume is whole again.
func (r *run) fault(k kind) {
	r.T.Helper()
	h := happened{kind: k.name, begin: time.Now()}
	undo, what := k.begin(r)
	h.what = what
	time.Sleep(time.Duration(1000+r.rand.IntN(5000)) * time.Millisecond)
	undo()
	r.whole()
	for site, w := range r.writers {
		if out := w.failed(); out != "" {
			r.T.Fatalf("after %s of %s: a program at %s failed: %s", h.kind, h.what, site, out)
		}
	}
	h.end = time.Now()
	r.done = append(r.done, h)
	r.T.Logf("%3d %-14s %-8s whole again %5.1f s after it began", len(r.done), h.kind, h.what, h.end.Sub(h.begin).Seconds())
	time.Sleep(time.Duration(r.rand.IntN(2000)) * time.Millisecond)
}

// steady is longer than a promise: a status that holds so long is not what was said before a fault.
const steady = 3 * time.Second

// whole waits until the volume has all its copies and two members, and keeps them.
func (r *run) whole() {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.Ctx, guard)
	defer cancel()
	var since, last time.Time // since then every answer was good
	_, err := r.Bed.Await(ctx, "b", "v", func(s bed.Status) bool {
		n := 0
		for _, c := range s.Replicas {
			if slices.Contains([]string{"Home", "Member", "Follower"}, c.State) {
				n++
			}
		}
		now := time.Now()
		if good := s.State == "Ready" && len(s.Members) == 2 && n == 3; !good {
			since = time.Time{}
			return false
		}
		if since.IsZero() || now.Sub(last) > steady {
			since = now
		}
		last = now
		return now.Sub(since) > steady
	})
	if err != nil {
		r.T.Fatalf("the volume is not whole again: %v", err)
	}
	r.must(r.Bed.AwaitSites(ctx)) // else planned moves would be refused
}
