// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/volume"
)

// TestShares: no volume takes all slots of a session while others are used, whatever is asked for.
func TestShares(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, volumes := range []int{1, 2, 3, 6} {
		s := &Session{slots: make([]slot, 64)}
		held := make([]int, volumes)
		enter := func(v int) (*Stay, bool) { return s.Enter(volume.ID{byte(v)}, now, 64, func() {}) }
		for v := range volumes { // all are used
			st, ok := enter(v)
			if !ok {
				t.Fatal("the first request of a volume is refused")
			}
			st.Leave()
		}
		for range 64 { // and all wait
			for v := range volumes {
				if s.shares.used < 64 {
					if _, ok := enter(v); ok {
						held[v]++
					}
				}
			}
		}
		switch free := 64 - s.shares.used; {
		case volumes == 1 && free != 0:
			t.Errorf("the only volume may hold but %d", held[0])
		case volumes > 1 && free < 1:
			t.Errorf("%d volumes hold all slots: %v", volumes, held)
		case held[0] < 48/volumes:
			t.Errorf("of %d volumes each holds too few: %v", volumes, held)
		}
	}
}

// TestWaitingGivesUp: what waits for long gives its slot up when others need it, and not before.
func TestWaitingGivesUp(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := &Session{slots: make([]slot, 16)}
	asked := 0
	var stays []*Stay
	for i := range 15 {
		st, ok := s.Enter(volume.ID{1}, now.Add(time.Duration(i)*patience), 16, func() { asked++ })
		if !ok {
			t.Fatal("the only volume is refused")
		}
		stays = append(stays, st)
	}
	now = now.Add(15 * patience)
	if asked != 0 {
		t.Errorf("%d are asked although nobody else needs a slot", asked)
	}
	if _, ok := s.Enter(volume.ID{2}, now, 16, func() { t.Error("who just came is asked to give up") }); !ok || asked != 14 {
		t.Errorf("another volume may enter: %v; %d that wait are asked to give up, want all but the youngest", ok, asked)
	}
	if _, ok := s.Enter(volume.ID{1}, now, 16, nil); ok {
		t.Error("the volume that holds nearly all gets more")
	}
	for _, st := range stays {
		st.Leave()
	}
	if _, ok := s.Enter(volume.ID{1}, now, 16, nil); !ok || s.shares.used != 2 {
		t.Errorf("after all have left it may enter: %v; %d are counted", ok, s.shares.used)
	}
	if s.Enter(volume.ID{3}, now.Add(2*sharedFor), 16, nil); len(s.shares.volumes) != 3 {
		t.Errorf("volumes with requests are forgotten: %d", len(s.shares.volumes))
	}
}
