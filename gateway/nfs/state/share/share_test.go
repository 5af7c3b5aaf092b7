// SPDX-License-Identifier: Apache-2.0

package share

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/volume"
)

// TestShares: no volume takes all slots of a session while others are used, whatever is asked for.
func TestShares(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, volumes := range []int{1, 2, 3, 6} {
		s := New(64)
		held := make([]int, volumes)
		enter := func(v int) (*Stay, bool) {
			st, _ := s.Enter(volume.ID{byte(v)}, now, Asks{func() {}, func() {}})
			return st, st != nil
		}
		for v := range volumes { // all are used
			st, ok := enter(v)
			if !ok {
				t.Fatal("the first request of a volume is refused")
			}
			st.Leave(now)
		}
		for range 64 { // and all wait
			for v := range volumes {
				if s.used < 64 {
					if _, ok := enter(v); ok {
						held[v]++
					}
				}
			}
		}
		switch free := 64 - s.used; {
		case volumes == 1 && free != 64/spareOf:
			t.Errorf("the only volume holds %d", held[0])
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
	s := New(16)
	asked := 0
	var stays []*Stay
	for i := range 15 {
		st, _ := s.Enter(volume.ID{1}, now.Add(time.Duration(i)*patience), Asks{GiveUp: func() { asked++ }})
		if st == nil {
			t.Fatal("the only volume is refused")
		}
		stays = append(stays, st)
	}
	now = now.Add(15 * patience)
	if asked != 0 {
		t.Errorf("%d are asked although nobody else needs a slot", asked)
	}
	young := Asks{GiveUp: func() { t.Error("who just came is asked to give up") }}
	if st, _ := s.Enter(volume.ID{2}, now, young); st == nil || asked != 14 {
		t.Errorf("another volume may enter: %v; %d that wait are asked to give up, want all but the youngest", st != nil, asked)
	}
	if st, full := s.Enter(volume.ID{1}, now, Asks{}); st != nil || full.Left != nil {
		t.Error("the volume that holds nearly all gets more, or is to wait for it")
	}
	for _, st := range stays {
		st.Leave(now)
	}
	if st, _ := s.Enter(volume.ID{1}, now, Asks{}); st == nil || s.used != 2 {
		t.Errorf("after all have left it may enter: %v; %d are counted", st != nil, s.used)
	}
	if s.Enter(volume.ID{3}, now.Add(2*sharedFor), Asks{}); len(s.volumes) != 3 {
		t.Errorf("volumes with requests are forgotten: %d", len(s.volumes))
	}
}

// TestOnlyVolumeLeavesSpareSlots: while requests of the only volume end, those above its share wait
// for that and lose nothing. When none ended for long they are refused at once, so that the next
// volume finds a slot.
func TestOnlyVolumeLeavesSpareSlots(t *testing.T) {
	now, quiet := time.Unix(1e9, 0), Asks{func() {}, func() {}}
	for _, slots := range []int{1, 2, 16, 64} {
		s := New(slots)
		var stays []*Stay
		for range slots - spare(slots) {
			st, _ := s.Enter(volume.ID{1}, now, quiet)
			if st == nil {
				t.Fatalf("of %d slots it may use but %d", slots, len(stays))
			}
			stays = append(stays, st)
		}
		if slots == 1 {
			continue
		}
		late := now.Add(patience / 2)
		st, full := s.Enter(volume.ID{1}, late, quiet)
		if st != nil || full.Left == nil || !full.Until.Equal(now.Add(patience)) {
			t.Fatalf("of %d slots it gets the spare one: %v, %+v", slots, st != nil, full)
		}
		stays[0].Leave(late)
		<-full.Left // hangs if it is not told
		if st, _ = s.Enter(volume.ID{1}, late, quiet); st == nil {
			t.Fatal("a slot that is free again is not given to who waits")
		}
		if _, full = s.Enter(volume.ID{1}, late.Add(patience), quiet); full.Left != nil {
			t.Error("a volume of which nothing ends is given spare slots")
		}
		if st, _ = s.Enter(volume.ID{2}, late.Add(2*sharedFor), quiet); st == nil {
			t.Error("another volume finds no slot")
		}
	}
}
