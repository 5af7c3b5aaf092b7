// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

const deal = "6f1c2b6e-0000-4000-8000-000000000001"

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func newClock() *clock { return &clock{at: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)} }

func opened(t testing.TB, path string, c *clock) *Ledger {
	t.Helper()
	l, err := Open(path, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func put(l *Ledger, gateway string, size quantity.Bytes, limit Limit) error {
	done, err := l.Reserve(deal, gateway, size, limit)
	if err == nil {
		done(true)
	}
	return err
}

func TestRoom(t *testing.T) {
	l := opened(t, filepath.Join(t.TempDir(), "ledger"), newClock())
	limit := Limit{Amount: 100, Room: 60}
	for _, x := range []struct {
		gateway string
		size    quantity.Bytes
		ok      bool
	}{{"a", 60, true}, {"a", 1, false}, {"a", 0, true}, {"b", 41, false}, {"b", 40, true}, {"b", 1, false}, {"c", math.MaxInt64, false},
		{"c", -1, false}} {
		if err := put(l, x.gateway, x.size, limit); (err == nil) != x.ok || err != nil && !errors.Is(err, ErrRoom) {
			t.Errorf("%s puts %d: %v", x.gateway, x.size, err)
		}
	}
	l.Deleted(deal, "b", "a", 60)
	if err := put(l, "a", 60, limit); err != nil {
		t.Error(err)
	}
	l.Deleted(deal, "b", "b", 40)
	onItsWay, err := l.Reserve(deal, "b", 30, limit)
	if err != nil {
		t.Fatal(err)
	}
	if err := put(l, "c", 11, limit); !errors.Is(err, ErrRoom) {
		t.Errorf("what is on its way does not count: %v", err)
	}
	onItsWay(true)
	few := Limit{Amount: 100, Room: 100}
	for n := 0; ; n++ {
		if err := put(l, "many", 0, few); err != nil {
			if n != mostObjects || !strings.Contains(err.Error(), "put fewer, larger ones") {
				t.Errorf("after %d objects: %v", n, err)
			}
			break
		}
	}
	done, err := l.Reserve(deal, "a", 0, limit)
	if err != nil {
		t.Fatal(err)
	}
	done(false)
	if a := l.Of(deal)["a"]; a.Puts != 3 || a.Stored != 60 || a.Objects != 2 || a.In != 120 {
		t.Errorf("%+v", a)
	}
}

// However many write at once, what is stored and on its way is never more than allowed.
func TestRoomOfMany(t *testing.T) {
	l := opened(t, filepath.Join(t.TempDir(), "ledger"), newClock())
	limit := Limit{Amount: 1000, Room: 700}
	var there, most atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			g := string(rune('a' + i%2))
			for n := range 200 {
				size := quantity.Bytes(1 + (i*7+n*13)%37)
				done, err := l.Reserve(deal, g, size, limit)
				if err != nil {
					continue
				}
				is := there.Add(int64(size))
				for m := most.Load(); is > m && !most.CompareAndSwap(m, is); m = most.Load() {
				}
				stays := n%3 != 0
				if !stays {
					there.Add(-int64(size))
				}
				done(stays)
			}
		})
	}
	all.Wait()
	if most.Load() > 1000 || there.Load() < 1000-37 {
		t.Errorf("%d of 1000 bytes were there at once, %d at the end", most.Load(), there.Load())
	}
}

func TestTime(t *testing.T) {
	c := newClock()
	l := opened(t, filepath.Join(t.TempDir(), "ledger"), c)
	limit := Limit{Amount: 1 << 40, Room: 1 << 40}
	if err := put(l, "a", 1000, limit); err != nil {
		t.Fatal(err)
	}
	c.pass(30 * time.Minute)
	c.pass(-10 * time.Minute) // a clock that is set back counts nothing twice
	_ = l.Of(deal)
	c.pass(10 * time.Minute)
	if err := put(l, "a", 3000, limit); err != nil {
		t.Fatal(err)
	}
	c.pass(time.Hour)
	l.Deleted(deal, "a", "a", 1000)
	c.pass(time.Hour)
	if got, want := l.Of(deal)["a"].ByteHours, 1000*0.5+4000+3000; math.Abs(got-want) > 1e-6 {
		t.Errorf("%v byte-hours, want %v", got, want)
	}
}

// A process that ends without saving, a file that is lost, and one that is damaged.
func TestEnds(t *testing.T) {
	c := newClock()
	path := filepath.Join(t.TempDir(), "ledger")
	limit := Limit{Amount: 1 << 40, Room: 1 << 40}
	l := opened(t, path, c)
	for range 3 {
		if err := put(l, "a", 100, limit); err != nil {
			t.Fatal(err)
		}
	}
	l.Read(deal, "a", 50)
	if a := l.Meet(deal, "a", paper.Counters{}); a.Lost || !a.Taken.IsZero() {
		t.Errorf("when they met first: %+v", a)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = opened(t, path, c)
	l.Recount(deal, map[string]Tally{"a": {3, 300}})
	if a := l.Of(deal)["a"]; a.Torn || a.Lost || a.Puts != 3 || a.Gets != 1 {
		t.Errorf("after a clean end: %+v", a)
	}
	if err := l.Save(); err != nil {
		t.Fatal(err)
	}
	// What comes after the last save is lost with the process, but for what is stored.
	if err := put(l, "a", 70, limit); err != nil {
		t.Fatal(err)
	}
	l.Read(deal, "a", 50)
	c.pass(time.Hour)
	l = opened(t, path, c)
	l.Recount(deal, map[string]Tally{"a": {4, 370}})
	a := l.Of(deal)["a"]
	if !a.Torn || a.Puts != 4 || a.In != 370 || a.Gets != 1 || a.Stored != 370 || a.ByteHours != 370 {
		t.Errorf("after a crash: %+v", a)
	}
	theirs := a.Counters
	theirs.Gets, theirs.Out = 2, 100
	if a = l.Meet(deal, "a", theirs); a.Torn || a.Gets != 2 || a.Out != 100 || a.Taken.IsZero() {
		t.Errorf("after they met: %+v", a)
	}
	theirs.Gets = 9
	if a = l.Meet(deal, "a", theirs); a.Gets != 2 {
		t.Errorf("it takes what it did not lose: %+v", a)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	l = opened(t, path, c)
	l.Recount(deal, map[string]Tally{"a": {4, 370}})
	if a = l.Of(deal)["a"]; !a.Lost || a.Stored != 370 || a.Gets != 0 {
		t.Errorf("after a damage: %+v", a)
	}
	theirs.ByteHours = 1e6
	if a = l.Meet(deal, "a", theirs); a.Lost || a.Gets != 9 || a.ByteHours != 1e6 {
		t.Errorf("after they met: %+v", a)
	}
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte(`{"version": 2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, c.now); err == nil {
		t.Error("a later version is read")
	}
}

// Whatever happens, and whenever the host ends: after both met, they agree.
func TestBothAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "ledger")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		c := newClock()
		open := func(name string) *Ledger {
			l, err := Open(filepath.Join(dir, name), c.now)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		host, guest := open("host"), open("guest")
		objects := []quantity.Bytes{}
		limit := Limit{Amount: 1 << 20, Room: 1 << 20}
		recount := func(l *Ledger) {
			var is Tally
			for _, o := range objects {
				is.Objects++
				is.Bytes += o
			}
			l.Recount(deal, map[string]Tally{"g": is})
		}
		meet := func() { // the gateway comes by
			guest.Meet(deal, "g", host.Meet(deal, "g", guest.Of(deal)["g"].Counters).Counters)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			c.pass(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0, 1:
				size := quantity.Bytes(rapid.IntRange(1, 1<<14).Draw(t, "size"))
				if put(host, "g", size, limit) == nil {
					objects = append(objects, size)
					_ = put(guest, "g", size, limit)
				}
			case 2:
				host.Read(deal, "g", 100)
				guest.Read(deal, "g", 100)
			case 3:
				if len(objects) > 0 {
					host.Deleted(deal, "g", "g", objects[0])
					guest.Deleted(deal, "g", "g", objects[0])
					objects = objects[1:]
				}
			case 4:
				_ = host.Save()
				_ = guest.Save()
			case 5: // the host ends at any time, and comes back
				host = open("host")
				recount(host)
				meet()
			case 6:
				guest = open("guest")
				recount(guest)
				meet()
			case 7:
				meet()
			}
		}
		meet()
		h, g := host.Of(deal)["g"].Counters, guest.Of(deal)["g"].Counters
		// Bytes times time of what was put or deleted after the last save may differ by that time.
		if math.Abs(h.ByteHours-g.ByteHours) > 0.001*max(h.ByteHours, g.ByteHours)+float64(1<<20)*float64(60*5)/3600 {
			t.Errorf("%v and %v byte-hours", h.ByteHours, g.ByteHours)
		}
		h.ByteHours, g.ByteHours = 0, 0
		if h != g {
			t.Errorf("the host counted %+v, the guest %+v", h, g)
		}
	})
}

// What a side has signed it has counted, whatever its disk has.
func TestFloor(t *testing.T) {
	l := opened(t, filepath.Join(t.TempDir(), "ledger"), newClock())
	if err := put(l, "a", 100, Limit{Amount: 1000, Room: 1000}); err != nil {
		t.Fatal(err)
	}
	l.Floor(deal, "a", paper.Counters{Puts: 5, Gets: 7, Deletes: 4, In: 50, Out: 9, Stored: 999, ByteHours: 3})
	l.Floor(deal, "gone", paper.Counters{Gets: 2})
	want := paper.Counters{Puts: 5, Gets: 7, Deletes: 4, In: 100, Out: 9, Stored: 100, ByteHours: 3}
	if all := l.Of(deal); all["a"].Counters != want || all["gone"].Gets != 2 {
		t.Errorf("%+v", all)
	}
}
