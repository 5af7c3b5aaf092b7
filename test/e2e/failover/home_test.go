// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// losses is how often the home is lost in each way.
const losses = 10

func TestHomeIsKilledUnderLoad(t *testing.T) {
	s := newScene(t)
	s.guest.Do("mkdir /mnt/v/names")
	lines := s.lines()
	names := s.guest.Begin("names", s.Tool+" names /mnt/v/names /x/names")
	first, moved := s.healthy().Epoch, s.moves
	for i := range 2 * losses {
		s.lose(i%2 == 0)
	}
	names.Finish(s.Ctx)
	s.finishLines(lines)
	// Only what this test does to the volume begins epochs.
	last := s.healthy().Epoch
	want := first + 2*losses + s.moves - moved
	t.Logf("epoch %d after %d: %d losses, %d planned moves", last, first, 2*losses, s.moves-moved)
	if last != want {
		t.Errorf("epoch is %d, want %d", last, want)
	}
}

func TestHomeIsCutOffUnderLoad(t *testing.T) {
	s := newScene(t)
	lines := s.lines()
	for range 3 {
		before := s.healthy()
		if err := s.Bed.Stage.Cut(s.Ctx, before.HomeSite); err != nil {
			t.Fatal(err)
		}
		s.newEpoch(before.Epoch)
		if err := s.Bed.Stage.Heal(s.Ctx, before.HomeSite); err != nil {
			t.Fatal(err)
		}
	}
	s.finishLines(lines)
}

func TestUnstableDataSurvivesTheLossOfTheHome(t *testing.T) {
	s := newScene(t)
	before := s.healthy()
	job, err := s.guest.Start(s.Ctx, s.Tool+" unstable /mnt/v/unstable /x/go")
	if err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(job.Stdout(), "written") {
		if s.Ctx.Err() != nil {
			t.Fatal("the guest does not write")
		}
		time.Sleep(20 * time.Millisecond)
	}
	home := s.Bed.Site(before.HomeSite)
	home.Gateway().Kill()
	s.newEpoch(before.Epoch)
	if err := os.WriteFile(filepath.Join(s.guest.Shared(), "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := job.Wait(s.Ctx)
	if err != nil || r.Code != 0 {
		t.Fatalf("%v, exit code %d: %s%s", err, r.Code, r.Stdout, r.Stderr)
	}
	if err := home.StartGateway(); err != nil {
		t.Fatal(err)
	}
}
