// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// How the random tests of crashes run. WEIR_SOAK=1 goes on with fresh seeds.
var (
	oneSeed = flag.Uint64("seed", 0, "run the random tests with this seed only; 0: with the usual ones")
	soak    = flag.Duration("soak", 10*time.Minute, "how long each random test goes on with fresh seeds, with WEIR_SOAK=1")
)

// forSeeds runs f with the first n seeds, some at a time, or as the flags say. A failure names the
// seed.
func forSeeds(t *testing.T, n uint64, f func(t *testing.T, seed uint64)) {
	run := func(t *testing.T, seed uint64) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			defer func() {
				if t.Failed() {
					test, _, _ := strings.Cut(t.Name(), "/")
					t.Logf("again: go test ./engine -run '^%s$' -seed %d", test, seed)
				}
			}()
			f(t, seed)
		})
	}
	switch {
	case *oneSeed != 0:
		run(t, *oneSeed)
	case os.Getenv("WEIR_SOAK") != "":
		first := uint64(time.Now().UnixNano())
		for end, i := time.Now().Add(*soak), uint64(0); time.Now().Before(end) && !t.Failed(); i += n {
			t.Run("round", func(t *testing.T) {
				for k := range n {
					run(t, first+i+k)
				}
			})
		}
	default:
		for seed := range n {
			run(t, seed+1)
		}
	}
}

// point is a moment at which the power may go.
type point struct {
	disk         *crashfs.Disk
	what         string
	acked, begun int // records that must, and that may be there
	random       *rand.Rand
	depth        int // of recoveries that a crash ended
}

// script is a random workload on a joint, with the model's answers.
type script struct {
	*testing.T
	seed   uint64
	random *rand.Rand
	j      *joint
	model  *memvol.Volume
	steps  []jointStep
	points []point
	acked  atomic.Int64
	// pictures[i] is the model after i records, and done[i] the change that made record i+1.
	pictures map[int]string
	done     []jointStep
	unsure   map[volume.Handle]int // the newest record of unstable data, by file
	secrets  secrets
	count    *atomic.Int64
	excuse   []error // outcomes of a change that may do nothing
}

// excused reports whether a change may have failed for what the script does to the gateway.
func (s *script) excused(err error) bool {
	return slices.ContainsFunc(s.excuse, func(e error) bool { return errors.Is(err, e) })
}

// jointStep is a step of a script: a change, or what the gateway does by itself.
type jointStep struct {
	step
	what string
}

func (s *script) randomStep(i int) jointStep {
	r := s.random
	js := jointStep{step: randomStep(r, i), what: "change"}
	// Small, so that many fit.
	js.off, js.size, js.data = js.off%9000, js.size%9000, js.data[:min(len(js.data), r.IntN(3000))]
	if r.IntN(3) == 0 {
		js.name, js.dir = "f", "" // files are written more than once
	}
	switch n := r.IntN(100); {
	case n < 52:
	case n < 62:
		js.what = "unstable"
	case n < 67:
		js.what = "commit"
	case n < 70:
		js.what = "removexattr"
	case n < 75:
		js.what = "roll"
	case n < 80:
		js.what = "upload"
	case n < 85:
		js.what = "evict"
	case n < 91:
		js.what = "persist"
	case n < 93:
		js.what = "watermark"
	case n < 95:
		js.what = "reopen"
	case n < 97:
		js.what = "kill"
	default:
		js.what = "crash"
	}
	return js
}

// do makes a step that is a change on any volume.
func (js jointStep) do(ctx context.Context, v unlocked) error {
	if js.what == "change" {
		return js.step.do(ctx, v)
	}
	file, err := find(v, js.dir+"/"+js.name)
	if err != nil {
		return err
	}
	switch r := (volume.Request{ID: js.id}); js.what {
	case "unstable":
		_, err = v.Write(ctx, r, file, js.off, js.data, false)
	case "commit":
		_, err = v.Commit(ctx, r, file)
	case "removexattr":
		_, err = v.RemoveXattr(ctx, r, file, "user."+js.name2)
	}
	return err
}

// watch notes all moments at which the power may go.
func (s *script) watch() {
	s.j.disk.Watch(func(step crashfs.Step) {
		name := fmt.Sprintf("%s-%d", s.j.disk.Gateway(), len(s.points))
		r := rand.New(rand.NewPCG(s.seed, uint64(step.Number)))
		s.points = append(s.points, point{
			disk: step.Clone(name, r), what: fmt.Sprintf("step %d, %s %s", step.Number, step.Op, step.Name),
			acked: int(s.acked.Load()), begun: int(s.j.shown.Load()) + 1, random: r,
		})
	})
}

// start opens the gateway, which leads, and returns how many records were left.
func (s *script) start() (int, error) {
	if err := s.j.open(); err != nil {
		return 0, err
	}
	n, _, err := s.j.records()
	if err != nil {
		return 0, err
	}
	s.j.shown.Store(int64(n))
	if err := s.j.settle(); err != nil {
		return 0, err
	}
	return n, s.j.lead()
}

// life runs the gateway until it ends, for the steps from i on, and returns the next.
func (s *script) life(i int) int {
	s.watch()
	left, err := s.start()
	if err != nil {
		s.Fatalf("start before step %d: %v", i, err)
	}
	if err := s.back(left); err != nil {
		s.Fatalf("look at what is left: %v", err)
	}
	s.acked.Store(s.j.shown.Load())
	clear(s.unsure)
	if s.random.IntN(2) == 0 {
		s.j.disk.CrashAt(1 + s.random.IntN(120))
	}
	for ; i < len(s.steps); i++ {
		js := s.steps[i]
		switch js.what {
		case "reopen", "kill", "crash":
			s.over(js.what)
			return i + 1
		}
		if err := s.one(i, js); err != nil {
			if !s.j.died() {
				s.Fatalf("step %d, %s %d: %v", i, js.what, js.kind, err)
			}
			s.over("crash")
			return i // the step is repeated, as its outcome is unknown
		}
	}
	s.over("reopen")
	return i
}

// own returns what a gateway does by itself, or nil.
func (s *script) own(what string) func() error {
	switch j := s.j; what {
	case "roll":
		return j.log.Roll
	case "upload":
		return j.upload
	case "evict":
		return func() error { return j.evict(s.random) }
	case "persist":
		return j.engine.Flush
	case "watermark":
		return j.log.SyncWatermark
	}
	return nil
}

// newScript returns a script of n steps on an empty disk.
func newScript(t *testing.T, seed uint64, n int, limit int64) *script {
	s := &script{T: t, seed: seed, random: rand.New(rand.NewPCG(seed, 21)), count: new(atomic.Int64), model: newModel(),
		pictures: map[int]string{}, unsure: map[volume.Handle]int{}, secrets: secrets{}, done: make([]jointStep, 1)}
	s.j = newJoint(fmt.Sprint("gw-", t.Name()), seed, limit)
	s.pictures[1] = picture(s, s.model)
	for i := range n {
		s.steps = append(s.steps, s.randomStep(i))
	}
	return s
}

// one makes a step. An error is a crash, or a mistake.
func (s *script) one(i int, js jointStep) error {
	ctx := context.Background()
	j := s.j
	if own := s.own(js.what); own != nil {
		return own()
	}
	before := int(j.shown.Load())
	got := js.do(ctx, j.engine)
	after := int(j.shown.Load())
	if !j.died() && after == before && s.excused(got) {
		return nil // it did nothing
	}
	want := js.do(ctx, s.model)
	if p := picture(s, s.model); p != s.pictures[before] || after > before {
		s.pictures[before+1] = p
		s.done = append(s.done[:before], js)
	}
	if got == nil {
		file, _ := find(s.model, js.dir+"/"+js.name)
		switch {
		case js.what == "unstable" && after > before:
			s.unsure[file] = after
		case js.what == "commit":
			s.acked.Store(max(s.acked.Load(), int64(s.unsure[file])))
		case after > before:
			s.acked.Store(int64(after))
		}
	}
	switch {
	case j.died():
		return errors.Join(crashfs.ErrCrashed, got)
	case !sameOutcome(got, want):
		return fmt.Errorf("%v, reference: %v", got, want)
	case after > before+1:
		return fmt.Errorf("%d records were made", after-before)
	}
	return nil
}

// over ends the process in a way, and checks what each crash during its life would have left.
func (s *script) over(how string) {
	j := s.j
	if !j.disk.Crashed() {
		dir, err := j.pool.Volume(testID.String())
		if err == nil {
			err = s.secrets.look(j.disk, dir)
		}
		if err != nil && !j.disk.Crashed() {
			s.Fatal(err)
		}
	}
	switch how {
	case "reopen":
		if err := j.close(); err != nil && !j.disk.Crashed() {
			s.Fatalf("close: %v", err)
		} else if err == nil {
			s.acked.Store(j.shown.Load())
		}
	case "kill":
		j.disk.Kill()
		j.end()
	default:
		if !j.disk.Crashed() {
			j.disk.Crash()
		}
		j.end()
	}
	j.disk.Watch(nil)
	for _, p := range s.points {
		s.check(p)
	}
	s.points = nil
}

// back sets the model to what n records make. An error is the disk's.
func (s *script) back(n int) error {
	if n > 0 && (n < int(s.acked.Load()) || s.pictures[n] == "") {
		s.Fatalf("%d records are left, %d were acknowledged, %d were begun", n, s.acked.Load(), len(s.pictures)-1)
	}
	n = max(n, 1) // the root's, which Lead made
	s.model = newModel()
	s.done = s.done[:max(0, min(len(s.done), n))]
	for _, js := range s.done[1:] {
		_ = js.do(context.Background(), s.model) // its outcome is that of before
	}
	for k := range s.pictures {
		if k > n {
			delete(s.pictures, k)
		}
	}
	if p := picture(s, s.model); p != s.pictures[n] {
		s.Fatalf("the reference has\n%s\nafter %d records:\n%s", p, n, s.pictures[n])
	}
	p, err := tryPicture(s.j.engine)
	if err == nil && p != s.pictures[n] {
		s.Fatalf("the volume has\n%s\nafter %d records:\n%s", p, n, s.pictures[n])
	}
	return err
}

// check lets the power go at a point, and compares what is left with the model.
func (s *script) check(p point) {
	s.count.Add(1)
	if p.random.IntN(8) == 0 {
		p.disk.Kill()
	} else {
		p.disk.Crash()
	}
	var again *point
	if p.depth < 2 && p.random.IntN(4) == 0 {
		at := p.random.IntN(25)
		p.disk.Watch(func(step crashfs.Step) {
			if at--; at == 0 {
				copied := p
				copied.what = fmt.Sprintf("%s; then %s %s", p.what, step.Op, step.Name)
				copied.disk = step.Clone(fmt.Sprintf("%s-%d", p.disk.Gateway(), p.depth), p.random)
				copied.depth++
				again = &copied
			}
		})
	}
	j := &joint{disk: p.disk, store: s.j.store, segment: s.j.segment}
	fail := func(format string, args ...any) {
		s.Helper()
		s.Fatalf("%s; acknowledged %d, begun %d: %s", p.what, p.acked, p.begun, fmt.Sprintf(format, args...))
	}
	if err := j.open(); err != nil {
		fail("open: %v", err)
	}
	n, keys, err := j.records()
	switch {
	case err != nil:
		fail("read the log: %v", err)
	case n < p.acked || n > p.begun:
		fail("%d records are left", n)
	}
	if err := j.settle(); err != nil {
		fail("recover: %v", err)
	}
	if err := j.compare(keys); err != nil {
		fail("after %d records: %v", n, err)
	}
	if n > 0 {
		if got, want := picture(s, j.engine), s.pictures[n]; got != want {
			fail("after %d records:\n%.3000s\nreference:\n%.3000s", n, got, want)
		}
	}
	if p.random.IntN(4) == 0 {
		p.disk.Watch(nil)
		if err := j.lead(); err != nil {
			fail("lead: %v", err)
		}
		_, err := j.engine.Create(context.Background(), asRoot, volume.Root, "new", volume.CreateArgs{Type: volume.Regular})
		if err != nil {
			fail("create a file: %v", err)
		}
	}
	if err := j.close(); err != nil {
		fail("close: %v", err)
	}
	p.disk.Watch(nil)
	if again != nil {
		s.check(*again)
	}
}

// TestJointCrashAtEveryStep runs random workloads on engine, log and metadata, which are on one
// disk, and looks at what a loss of power at each step of that disk would leave, also while that is
// recovered. What was acknowledged must be there. The volume must be what a prefix of the changes
// makes. The metadata must be, key by key, what the log alone makes (protocol-2, protocol-8).
func TestJointCrashAtEveryStep(t *testing.T) {
	if raced {
		t.Skip("a test of disks that fail runs without the race detector")
	}
	const seeds = 60
	var count atomic.Int64
	t.Run("all", func(t *testing.T) {
		forSeeds(t, seeds, func(t *testing.T, seed uint64) {
			s := newScript(t, seed, 40, 1<<30)
			s.count = &count
			for i := 0; i < len(s.steps); {
				i = s.life(i)
			}
		})
	})
	t.Logf("%d crash points", count.Load())
	if *oneSeed == 0 && count.Load() < 10_000 {
		t.Errorf("only %d crash points", count.Load())
	}
}
