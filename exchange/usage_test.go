// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// Both sides say their counts at times of their own: what happened in between is no disagreement,
// and what cannot have happened is one.
func TestWhatDiffers(t *testing.T) {
	begin := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	type side struct {
		minute int
		c      paper.Counters
	}
	much := paper.Counters{Puts: 100, In: 100 << 20, Stored: 100 << 20, ByteHours: 1 << 30}
	later := paper.Counters{Puts: 200, In: 200 << 20, Stored: 200 << 20, ByteHours: 2 << 30}
	with := func(c paper.Counters, change func(*paper.Counters)) paper.Counters { change(&c); return c }
	for _, tt := range []struct {
		name        string
		guest, host side
		want        string
	}{
		{"the same at once", side{0, much}, side{0, much}, ""},
		{"the host spoke before the guest wrote more", side{30, later}, side{0, much}, ""},
		{"the guest spoke before it wrote more", side{0, much}, side{30, later}, ""},
		{"the host spoke before anything was there", side{30, much}, side{0, paper.Counters{}}, ""},
		{"deleted in between", side{0, much}, side{30, with(much, func(c *paper.Counters) { c.Deletes, c.Stored = 50, 50<<20 })}, ""},
		{"nothing happened, and it was there for so long", side{0, much},
			side{60, with(much, func(c *paper.Counters) { c.ByteHours += 100 << 20 })}, ""},
		{"nothing happened, and more is counted", side{0, much},

			side{60, with(much, func(c *paper.Counters) { c.ByteHours += 200 << 20 })}, "byte-hours: the guest counted"},
		{"nothing happened, and more is there", side{30, much},
			side{0, with(much, func(c *paper.Counters) { c.Stored += 1 << 20 })}, "the guest counted"},
		{"the host counts more than there was yet", side{30, much}, side{0, later}, "of gateway g"},
		{"the guest counts more than there was yet", side{0, later}, side{30, much}, "of gateway g"},
		{"reads that the guest knows nothing of", side{30, much}, side{0, with(much, func(c *paper.Counters) { c.Gets = 9 })},
			"reads: the guest counted 0, the host 9"},
		{"the host says nothing any more", side{121, later}, side{0, much}, "bytes"},
		{"less than one in a thousand", side{0, much}, side{0, with(much, func(c *paper.Counters) { c.Out = 999 })}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var guest, host Sum
			says := func(s side) *paper.Usage {
				return &paper.Usage{At: begin.Add(time.Duration(s.minute) * time.Minute), Of: map[string]paper.Counters{"g": s.c}}
			}
			guest.add(says(tt.guest))
			host.add(says(tt.host))
			if got, _ := differ(guest, host, nil); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
		})
	}
	// What another gateway deletes, its owner hears of later, as the host says it later.
	less := paper.Counters{Puts: 100, In: 100 << 20, Stored: 60 << 20, ByteHours: 1 << 30}
	for _, x := range []struct {
		guest, host paper.Counters
		second      int // when the guest speaks
		erased      bool
		want        paper.Party
	}{
		{much, less, 0, false, paper.Nobody}, {much, less, -60, false, paper.Nobody}, {less, much, 60, false, paper.Nobody},
		{less, much, -60, false, paper.Host}, // the host has heard of it, and counts it still
		{much, paper.Counters{Puts: 100, In: 100 << 20, ByteHours: 1 << 30}, 0, true, paper.Nobody},
		{much, paper.Counters{Puts: 100, In: 100 << 20, Stored: 100 << 20, ByteHours: 1<<30 + (100<<20)/70}, 0, false, paper.Nobody},
		{much, paper.Counters{Puts: 100, In: 100 << 20, Stored: 100 << 20, ByteHours: 1<<30 + (100<<20)/20}, 0, false, paper.Host},
	} {
		var guest, host Sum
		guest.add(&paper.Usage{At: begin.Add(time.Duration(x.second) * time.Second), Of: map[string]paper.Counters{"g": x.guest}})
		u := &paper.Usage{At: begin, Of: map[string]paper.Counters{"g": x.host}}
		if x.erased {
			u.Erased = &paper.Deletion{}
		}
		host.add(u)
		if got, who := differ(guest, host, nil); who != x.want {
			t.Errorf("%+v: %q by %q", x, got, who)
		}
	}
	// Who has no room did nothing.
	for room, want := range map[bool]paper.Party{true: paper.Nobody, false: paper.Host} {
		var guest, host Sum
		guest.add(&paper.Usage{At: begin, Of: map[string]paper.Counters{"g": much}})
		host.add(&paper.Usage{At: begin, Of: map[string]paper.Counters{"g": much, "ghost": much}})
		if got, who := differ(guest, host, map[string]bool{"g": true, "ghost": room}); who != want {
			t.Errorf("a gateway that says nothing, with room %v: %q by %q", room, got, who)
		}
	}
	// A host that always speaks a second later is found out when the guest speaks, and stays so.
	var said Usage
	word := func(side *Sum, second int, c paper.Counters) Usage {
		*side = Sum{}
		side.add(&paper.Usage{At: begin.Add(time.Duration(second) * time.Second), Of: map[string]paper.Counters{"g": c}})
		said.Differs, said.More = differ(said.Guest, said.Host, nil)
		return said
	}
	word(&said.Guest, 0, much)
	if u := word(&said.Host, 1, later); u.Differs != "" || u.Clears(paper.Host) {
		t.Errorf("it may have happened: %q", u.Differs)
	}
	if u := word(&said.Guest, 3600, much); u.More != paper.Host || u.Clears(paper.Host) {
		t.Errorf("the host counted more: %q by %q", u.Differs, u.More)
	}
	if u := word(&said.Host, 3601, later); u.Clears(paper.Host) {
		t.Error("who speaks last is cleared")
	}
	later.ByteHours += 200 << 20
	if u := word(&said.Guest, 7200, later); u.Differs != "" || !u.Clears(paper.Host) {
		t.Errorf("the guest counted it too: %q", u.Differs)
	}
	// Gateways speak at times of their own too.
	var guest, host Sum
	for g, minute := range map[string]int{"g": 0, "h": 50} {
		guest.add(&paper.Usage{At: begin.Add(time.Duration(minute) * time.Minute), Of: map[string]paper.Counters{g: much}})
	}
	host.add(&paper.Usage{At: begin.Add(25 * time.Minute), Of: map[string]paper.Counters{"g": much, "h": {}}})
	if got, _ := differ(guest, host, nil); strings.Contains(got, "gateway h") {
		t.Errorf("it says %q", got)
	}
	if guest.Stored != quantity.Bytes(200<<20) {
		t.Errorf("the guest has %v", guest.Stored)
	}
}

// TestLodgedDiffers: of room that is no store's, byte-hours are compared up to the same moment,
// whoever counts for a side, and however many do.
func TestLodgedDiffers(t *testing.T) {
	begin := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	const tib = 1 << 40
	says := func(minute int, stored quantity.Bytes, hours float64) *paper.Usage {
		return &paper.Usage{At: begin.Add(time.Duration(minute) * time.Minute),
			Of: map[string]paper.Counters{"ams": {Stored: stored, ByteHours: hours * tib}}}
	}
	for _, tt := range []struct {
		name        string
		guest, host []*paper.Usage
		want        paper.Party
	}{
		{"the same at once", []*paper.Usage{says(0, tib, 10)}, []*paper.Usage{says(0, tib, 10)}, paper.Nobody},
		{"the host spoke later", []*paper.Usage{says(0, tib, 10)}, []*paper.Usage{says(60, tib, 11)}, paper.Nobody},
		{"a copy came, and the host has not said so yet", []*paper.Usage{says(60, 2*tib, 11)}, []*paper.Usage{says(0, tib, 10)},
			paper.Nobody},
		{"a moment apart", []*paper.Usage{says(0, tib, 0)}, []*paper.Usage{says(1, tib, 0)}, paper.Nobody},
		{"the host keeps counting what is gone", []*paper.Usage{says(0, 0, 10)}, []*paper.Usage{says(60, tib, 11)}, paper.Host},
		{"the guest does not count what is there", []*paper.Usage{says(0, 0, 10)}, []*paper.Usage{says(0, tib, 10), says(90, 0, 0)},
			paper.Host},
		{"the guest counts more", []*paper.Usage{says(0, tib, 12)}, []*paper.Usage{says(0, tib, 10)}, paper.Guest},
		{"two sites of the guest, two gateways of the host", []*paper.Usage{says(0, tib, 5), says(30, tib, 5.5)},
			[]*paper.Usage{says(60, tib, 6), says(0, tib, 5)}, paper.Nobody},
		{"one side says nothing yet", nil, []*paper.Usage{says(0, tib, 2)}, paper.Nobody},
		{"one side never says anything", nil, []*paper.Usage{says(0, tib, 3)}, paper.Host},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var guest, host Sum
			for _, u := range tt.guest {
				guest.add(u)
			}
			for _, u := range tt.host {
				host.add(u)
			}
			why, more := differLodged(guest, host)
			if more != tt.want || (why == "") != (tt.want == paper.Nobody) {
				t.Errorf("it says %q of %q, want %q", why, more, tt.want)
			}
		})
	}
}
