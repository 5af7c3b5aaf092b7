// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// losses is how often the home is lost in each way.
const losses = 10

// scene is a volume that two sites acknowledge, and a machine at b that works on it.
type scene struct {
	t     *testing.T
	ctx   context.Context
	bed   *bed.Bed
	tool  string
	guest *stage.Guest
	moves uint64 // planned moves so far
}

func newScene(t *testing.T) *scene {
	t.Helper()
	b := bed.Test(t, bed.Config{Promise: "2s"})
	ctx, cancel := context.WithTimeout(context.Background(), 14*time.Minute)
	t.Cleanup(cancel)
	s := &scene{t: t, ctx: ctx, bed: b}
	var err error
	if s.tool, err = b.Tool(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.Create(ctx, "a", bed.Manifest("v", 2, "a")); err != nil {
		t.Fatal(err)
	}
	if s.guest, err = b.Site("b").Guest(ctx, "wb"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Site("b").Mount(ctx, s.guest, "v"); err != nil {
		t.Fatal(err)
	}
	return s
}

// healthy waits until the volume has a home at a or c, whose loss leaves b's machine alone, and two members, and returns its state.
func (s *scene) healthy() bed.Status {
	s.t.Helper()
	for {
		st, err := s.bed.Await(s.ctx, "b", "v", func(st bed.Status) bool { return st.State == "Ready" && len(st.Members) == 2 && joined(st) == 3 })
		if err != nil {
			s.t.Fatal(err)
		}
		if st.HomeSite != "b" {
			return st
		}
		// Its own gateway is home: a planned move, which must not be felt either.
		if out, err := s.bed.Weir(s.ctx, "b", "failover", "v", "--to", "a"); err != nil {
			s.t.Fatalf("planned move: %v: %s", err, out)
		}
		s.moves++
	}
}

// joined is how many replicas have everything or are about to.
func joined(st bed.Status) (n int) {
	for _, r := range st.Replicas {
		if r.State == "Home" || r.State == "Member" || r.State == "Follower" {
			n++
		}
	}
	return n
}

// newEpoch waits until an epoch after the given one is served.
func (s *scene) newEpoch(after uint64) bed.Status {
	s.t.Helper()
	st, err := s.bed.Await(s.ctx, "b", "v", func(st bed.Status) bool { return st.Epoch > after && (st.State == "Ready" || st.State == "Degraded") })
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// lose kills the home's gateway and starts it again, at once or once the epoch has moved.
func (s *scene) lose(held bool) {
	s.t.Helper()
	before := s.healthy()
	home := s.bed.Site(before.HomeSite)
	home.Gateway().Kill()
	if held {
		after := s.newEpoch(before.Epoch)
		if after.HomeSite == before.HomeSite {
			s.t.Fatalf("home is %s in epoch %d although its gateway is dead", after.HomeSite, after.Epoch)
		}
	}
	if err := home.StartGateway(); err != nil {
		s.t.Fatal(err)
	}
	s.newEpoch(before.Epoch)
	time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond) // some load in between; nothing depends on how long
}

func (s *scene) verify(file, record string) {
	s.t.Helper()
	out, err := s.guest.Output(s.ctx, s.tool+" verify "+file+" "+record)
	if err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	s.t.Log(strings.TrimSpace(out))
}

func TestHomeIsKilledUnderLoad(t *testing.T) {
	s := newScene(t)
	if out, err := s.guest.Output(s.ctx, "mkdir /mnt/v/names"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := bed.Begin(s.ctx, t, s.guest, "lines", s.tool+" write /mnt/v/lines /x/lines")
	names := bed.Begin(s.ctx, t, s.guest, "names", s.tool+" names /mnt/v/names /x/names")
	first, moved := s.healthy().Epoch, s.moves
	for i := range 2 * losses {
		s.lose(i%2 == 0)
	}
	t.Log("fsync'ed lines: " + strings.TrimSpace(lines.Finish(s.ctx)))
	t.Log("names: " + strings.TrimSpace(names.Finish(s.ctx)))
	s.verify("/mnt/v/lines", "/x/lines")
	// Epochs grow by what was done to the volume, and by nothing else.
	last := s.healthy().Epoch
	want := first + 2*losses + s.moves - moved
	t.Logf("epoch %d after %d: %d losses, %d planned moves", last, first, 2*losses, s.moves-moved)
	if last != want {
		t.Errorf("epoch is %d, want %d", last, want)
	}
}

func TestHomeIsCutOffUnderLoad(t *testing.T) {
	s := newScene(t)
	lines := bed.Begin(s.ctx, t, s.guest, "lines", s.tool+" write /mnt/v/lines /x/lines")
	for range 3 {
		before := s.healthy()
		if err := s.bed.Stage.Cut(s.ctx, before.HomeSite); err != nil {
			t.Fatal(err)
		}
		s.newEpoch(before.Epoch)
		if err := s.bed.Stage.Heal(s.ctx, before.HomeSite); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(strings.TrimSpace(lines.Finish(s.ctx)))
	s.verify("/mnt/v/lines", "/x/lines")
}

func TestHomeIsStoppedUnderLoad(t *testing.T) {
	s := newScene(t)
	lines := bed.Begin(s.ctx, t, s.guest, "lines", s.tool+" write /mnt/v/lines /x/lines")
	for range 3 {
		before := s.healthy()
		p := s.bed.Site(before.HomeSite).Gateway()
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second) // three times the promise
		s.newEpoch(before.Epoch)
		if err := p.Cont(); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(strings.TrimSpace(lines.Finish(s.ctx)))
	s.verify("/mnt/v/lines", "/x/lines")
}

func TestUnstableDataSurvivesTheLossOfTheHome(t *testing.T) {
	s := newScene(t)
	before := s.healthy()
	job, err := s.guest.Start(s.ctx, s.tool+" unstable /mnt/v/unstable /x/go")
	if err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(job.Stdout(), "written") {
		if s.ctx.Err() != nil {
			t.Fatal("the guest does not write")
		}
		time.Sleep(20 * time.Millisecond)
	}
	home := s.bed.Site(before.HomeSite)
	home.Gateway().Kill()
	s.newEpoch(before.Epoch)
	if err := os.WriteFile(filepath.Join(s.guest.Shared(), "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := job.Wait(s.ctx)
	if err != nil || r.Code != 0 {
		t.Fatalf("%v, exit code %d: %s%s", err, r.Code, r.Stdout, r.Stderr)
	}
	if err := home.StartGateway(); err != nil {
		t.Fatal(err)
	}
}

func TestOwnGatewayIsKilledUnderLoad(t *testing.T) {
	s := newScene(t)
	lines := bed.Begin(s.ctx, t, s.guest, "lines", s.tool+" write /mnt/v/lines /x/lines")
	locked := bed.Begin(s.ctx, t, s.guest, "lock", s.tool+" lock /mnt/v/locked /x/locked")
	for range 3 {
		s.healthy()
		s.bed.Site("b").Gateway().Kill()
		if err := s.bed.Site("b").StartGateway(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second) // the client notices and reclaims under load
	}
	t.Log(strings.TrimSpace(lines.Finish(s.ctx)))
	t.Log(strings.TrimSpace(locked.Finish(s.ctx)))
	s.verify("/mnt/v/lines", "/x/lines")
}
