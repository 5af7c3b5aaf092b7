// SPDX-License-Identifier: Apache-2.0

package lag

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/replica/protocol"
)

// A copy that catches up over a link whose rate changes, while the log grows: what is shown of the
// time left holds within a factor of 1.5 after the first tenth, as long as the rates hold.
func TestProgressIsRight(t *testing.T) {
	const second, mib = 5, 1 << 20 // ticks, bytes
	distance := func(from, to protocol.Position) int64 { return max(0, int64(to.Off)-int64(from.Off)) }
	before := func(until int, then, later int64) func(int) int64 {
		return func(at int) int64 {
			if at < until {
				return then * mib
			}
			return later * mib
		}
	}
	for name, c := range map[string]struct {
		link  func(at int) int64 // bytes of a tick
		grows int64
	}{
		"steady":          {before(0, 0, 4), 0},
		"in lumps":        {func(at int) int64 { return int64(at%10/9) * 40 * mib }, 0},
		"the log grows":   {before(0, 0, 4), mib},
		"it became slow":  {before(10*second, 8, 2), 0},
		"it stood a time": {before(3*second, 0, 4), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var l Meter
			peer := protocol.PeerStatus{Member: protocol.Member{Gateway: "b"}, Joined: true}
			end := position(5 << 30)
			type said struct {
				at   int
				left float64
				tens int64
			}
			var all []said
			at := 0
			for ; peer.Match.Less(end); at++ {
				if at > 1e6 {
					t.Fatal("it never arrives")
				}
				now := time.Hour + time.Duration(at)*time.Second/second
				l.Sample(end, now)
				l.Follow([]protocol.PeerStatus{peer}, end, end, now, distance)
				if c := l.catching["b"]; c != nil {
					p := c.progress(distance(peer.Match, end))
					if p.Total != p.Copied+distance(peer.Match, end) {
						t.Fatalf("%+v, of which %d are left", p, distance(peer.Match, end))
					}
					all = append(all, said{at, p.SecondsLeft, 10 * p.Copied / p.Total})
				}
				end.Off += uint64(c.grows)
				peer.Match = position(min(end.Off, peer.Match.Off+uint64(c.link(at))))
				peer.Match.Seq = 1
			}
			checked := 0
			for _, s := range all {
				truth := float64(at-s.at) / second
				if s.tens < 1 || s.at < 70*second && name == "it became slow" || truth < 10 {
					continue
				}
				checked++
				if s.left > truth*1.5 || s.left < truth/1.5 {
					t.Fatalf("after %d s it said %.0f s, and took %.0f s", s.at/second, s.left, truth)
				}
			}
			if checked < 100 {
				t.Fatalf("%d were checked", checked)
			}
			l.Follow([]protocol.PeerStatus{peer}, peer.Match, end, time.Hour, distance)
			if len(l.catching) > 0 {
				t.Error("progress is shown of a copy that has everything")
			}
		})
	}
}

// A copy that did not answer for a while goes on where it was; one that lost what it had begins
// anew.
func TestProgressGoesOn(t *testing.T) {
	distance := func(from, to protocol.Position) int64 { return max(0, int64(to.Off)-int64(from.Off)) }
	var l Meter
	end := position(100 << 20)
	now := time.Hour
	at := func(joined bool, match uint64) *catchUp {
		now += 10 * time.Second
		l.Sample(end, now)
		b := protocol.PeerStatus{Member: protocol.Member{Gateway: "b"}, Joined: joined, Match: position(match)}
		l.Follow([]protocol.PeerStatus{b}, end, end, now, distance)
		return l.catching["b"]
	}
	at(true, 0)
	at(true, 10<<20)
	at(true, 20<<20)
	at(false, 20<<20)
	for range 100 {
		at(false, 20<<20) // it says nothing of the rate
	}
	at(true, 20<<20)
	if p := at(true, 30<<20).progress(70 << 20); p.Copied != 20<<20 || p.BytesPerSecond != 1<<20 || p.SecondsLeft != 70 {
		t.Errorf("%+v", p)
	}
	at(true, 0)
	if c := at(true, 10<<20); c == nil || c.copied > 10<<20 {
		t.Errorf("a copy that begins anew: %+v", c)
	}
	if c := at(true, 100<<20); c != nil {
		t.Errorf("a copy that has all: %+v", c)
	}
}

// A copy that gets nothing, or less than is written, has no time left that could be said.
func TestProgressWithoutEnd(t *testing.T) {
	distance := func(from, to protocol.Position) int64 { return max(0, int64(to.Off)-int64(from.Off)) }
	var c catchUp
	match, end := position(0), position(1<<30)
	for i := range 100 {
		c.look(protocol.PeerStatus{Match: match}, end, time.Duration(i+1)*time.Second, distance)
		match.Off += 1 << 20
		end.Off += 2 << 20
	}
	p := c.progress(distance(match, end))
	if p.SecondsLeft != 0 || p.BytesPerSecond < 1<<20-10 || p.BytesPerSecond > 1<<20 {
		t.Errorf("%+v", p)
	}
}

// The lag of a copy that trails for very long is not given as small, and takes bounded memory.
func TestLongLag(t *testing.T) {
	var l Meter
	const days = 7 * 24 * 3600
	for i := range days {
		l.Sample(position(uint64(i+100)), time.Duration(i)*time.Second)
	}
	if len(l.samples) > maxSamples {
		t.Errorf("%d samples", len(l.samples))
	}
	for _, behind := range []int{1, 60, 3600, 24 * 3600, days - 1} {
		got := l.Behind(position(uint64(days+99-behind)), (days-1)*time.Second).Seconds()
		if want := float64(behind - 1); got > want || got < want*0.9-1 {
			t.Errorf("%d s behind: %v s", behind, got)
		}
	}
}

// A home whose log was cut long ago is not taken to be behind where it ended then.
func TestLagForgetsWhatWasCut(t *testing.T) {
	var l Meter
	l.Sample(position(100), time.Second)
	l.Sample(position(900), 2*time.Second)
	l.Sample(position(200), 3*time.Second) // cut
	if d := l.Behind(position(200), time.Hour); d != 0 {
		t.Fatalf("a copy that has everything trails by %v", d)
	}
	if d := l.Behind(position(150), time.Hour); d != time.Hour-3*time.Second {
		t.Fatalf("trails by %v", d)
	}
}

func position(off uint64) protocol.Position { return protocol.Position{Seq: 1, Off: off} }

// The age of a segment counts from its first record, also if no record is added after the first
// tick that saw it.
func TestAgeOfWhatIsNotSealed(t *testing.T) {
	t.Parallel()
	const header = segment.HeaderSize
	var l Meter
	for i, c := range []struct {
		end       protocol.Position
		now, want time.Duration
	}{
		{protocol.Position{}, 0, 0},
		{protocol.Position{Seq: 1, Off: header}, 1, 0},
		{protocol.Position{Seq: 1, Off: header}, 9, 0},
		{protocol.Position{Seq: 1, Off: header + 1}, 10, 0},
		{protocol.Position{Seq: 1, Off: header + 2}, 12, 2},
		{protocol.Position{Seq: 2, Off: header + 9}, 14, 0}, // rolled over by the writer, between two ticks
		{protocol.Position{Seq: 2, Off: header + 9}, 17, 3},
		{protocol.Position{Seq: 3, Off: header}, 18, 0},
		{protocol.Position{Seq: 3, Off: header + 1}, 20, 0},
		{protocol.Position{Seq: 3, Off: header + 1}, 21, 1},
	} {
		if got := l.Age(c.end, c.now); got != c.want {
			t.Errorf("step %d: log ends at %v: age %d, want %d", i, c.end, got, c.want)
		}
	}
}
