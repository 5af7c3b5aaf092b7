// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-storage/weir/volume"
)

func lock(owner string, start, end uint64, exclusive bool) volume.Lock {
	return volume.Lock{Owner: volume.LockOwner{Gateway: "g", Owner: owner}, Start: start, End: end, Exclusive: exclusive}
}

func show(f *file) string {
	s := ""
	for l := range f.all() {
		kind := "s"
		if l.Exclusive {
			kind = "x"
		}
		end := fmt.Sprint(l.End)
		if l.End == toEnd {
			end = "end"
		}
		s += fmt.Sprintf("%s%s:%d-%s ", l.Owner.Owner, kind, l.Start, end)
	}
	return s
}

func TestSet(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  []volume.Lock
		want string
	}{
		{"one", []volume.Lock{lock("a", 1, 5, true)}, "ax:1-5 "},
		{"same again", []volume.Lock{lock("a", 1, 5, true), lock("a", 1, 5, true)}, "ax:1-5 "},
		{"touching, same kind", []volume.Lock{lock("a", 0, 4, true), lock("a", 5, 9, true)}, "ax:0-9 "},
		{"touching, other kind", []volume.Lock{lock("a", 0, 4, true), lock("a", 5, 9, false)}, "ax:0-4 as:5-9 "},
		{"fills a gap", []volume.Lock{lock("a", 0, 4, true), lock("a", 8, 9, true), lock("a", 5, 7, true)}, "ax:0-9 "},
		{"downgrade the middle", []volume.Lock{lock("a", 0, 9, true), lock("a", 3, 5, false)}, "ax:0-2 as:3-5 ax:6-9 "},
		{"upgrade it again", []volume.Lock{lock("a", 0, 9, true), lock("a", 3, 5, false), lock("a", 3, 5, true)}, "ax:0-9 "},
		{"to the end", []volume.Lock{lock("a", 5, toEnd, true), lock("a", 0, 4, true)}, "ax:0-end "},
		{"after the end nothing touches", []volume.Lock{lock("a", 0, 0, true), lock("a", toEnd, toEnd, true)}, "ax:0-0 ax:18446744073709551615-end "},
		{"shared by two", []volume.Lock{lock("b", 0, 9, false), lock("a", 0, 9, false)}, "as:0-9 bs:0-9 "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var f file
			for _, l := range tc.set {
				if err := f.set(l); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.check(); err != nil {
				t.Error(err)
			}
			if got := show(&f); got != tc.want {
				t.Errorf("locks are %q, want %q", got, tc.want)
			}
		})
	}
}

func TestConflict(t *testing.T) {
	var f file
	for _, l := range []volume.Lock{lock("a", 10, 19, true), lock("b", 30, 39, false)} {
		if err := f.set(l); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		want volume.Lock
		held string // the owner in the way, or ""
	}{
		{lock("b", 0, 9, true), ""},
		{lock("b", 0, 10, false), "a"},
		{lock("b", 19, toEnd, true), "a"},
		{lock("a", 0, 29, true), ""},
		{lock("c", 30, 30, false), ""},
		{lock("c", 39, 50, true), "b"},
		{lock("c", 0, toEnd, true), "a"},
	} {
		before := show(&f)
		err := f.test(tc.want)
		var conflict *volume.LockConflict
		switch {
		case tc.held == "" && err != nil:
			t.Errorf("Test(%+v) = %v, want nil", tc.want, err)
		case tc.held != "" && (!errors.As(err, &conflict) || conflict.Held.Owner.Owner != tc.held || !errors.Is(err, volume.ErrLocked)):
			t.Errorf("Test(%+v) = %v, want a conflict with %s", tc.want, err, tc.held)
		}
		if tc.held != "" {
			if err := f.set(tc.want); !errors.Is(err, volume.ErrLocked) {
				t.Errorf("Set(%+v) = %v, want ErrLocked", tc.want, err)
			}
			if after := show(&f); after != before {
				t.Errorf("a refused Set changed %q to %q", before, after)
			}
		}
	}
}

func TestTableRelease(t *testing.T) {
	var table Table
	one, two := volume.Handle{Ino: 1}, volume.Handle{Ino: 2}
	a1 := volume.Lock{Owner: volume.LockOwner{Gateway: "g1", Owner: "a"}, End: 9}
	b1 := volume.Lock{Owner: volume.LockOwner{Gateway: "g1", Owner: "b"}, End: 9}
	a2 := volume.Lock{Owner: volume.LockOwner{Gateway: "g2", Owner: "a"}, End: 9}
	for _, h := range []volume.Handle{one, two} {
		for _, l := range []volume.Lock{a1, b1, a2} {
			if err := table.Set(h, l); err != nil {
				t.Fatal(err)
			}
		}
	}
	steps := []struct {
		name string
		do   func() bool
		len  int
	}{
		{"unlock everywhere", func() bool { return table.Unlock(one, a1) && table.Unlock(two, a1) }, 4},
		{"unlock again", func() bool { return !table.Unlock(one, a1) && !table.Unlock(two, a1) }, 4},
		{"gateway", func() bool { return table.ReleaseGateway("g1") }, 2},
		{"unlock", func() bool { return table.Unlock(one, a2) }, 1},
		{"unlock nothing", func() bool { return !table.Unlock(one, a2) }, 1},
		{"file", func() bool { table.ReleaseFile(two); return true }, 0},
	}
	for _, s := range steps {
		if !s.do() {
			t.Errorf("%s: wrong report of whether anything was held", s.name)
		}
		if table.Len() != s.len {
			t.Errorf("%s: %d locks left, want %d", s.name, table.Len(), s.len)
		}
		if err := table.Check(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}

// model is the obvious implementation: for every byte, who holds it and how.
type model [bytes]map[volume.LockOwner]bool // value: exclusive

const bytes = 24 // the last one stands for everything up to the end

func (m *model) conflicts(l volume.Lock) bool {
	for i := l.Start; i <= min(l.End, bytes-1); i++ {
		for owner, exclusive := range m[i] {
			if owner != l.Owner && (exclusive || l.Exclusive) {
				return true
			}
		}
	}
	return false
}

func (m *model) put(l volume.Lock, held bool) {
	for i := l.Start; i <= min(l.End, bytes-1); i++ {
		if held {
			m[i][l.Owner] = l.Exclusive
		} else {
			delete(m[i], l.Owner)
		}
	}
}

func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table Table
		var m model
		for i := range m {
			m[i] = make(map[volume.LockOwner]bool)
		}
		h := volume.Handle{Ino: 7}
		draw := rapid.Custom(func(t *rapid.T) volume.Lock {
			start := rapid.Uint64Range(0, bytes-1).Draw(t, "start")
			end := rapid.Uint64Range(start, bytes-1).Draw(t, "end")
			if end == bytes-1 {
				end = toEnd
			}
			return volume.Lock{
				Owner: volume.LockOwner{
					Gateway: rapid.SampledFrom([]string{"g", "h"}).Draw(t, "gateway"),
					Owner:   rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"),
				},
				Start: start, End: end, Exclusive: rapid.Bool().Draw(t, "exclusive"),
			}
		})
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				l := draw.Draw(t, "lock")
				bad := m.conflicts(l)
				if err := table.Test(h, l); (err != nil) != bad {
					t.Fatalf("Test(%+v) = %v, conflict in the model: %v", l, err, bad)
				}
				if err := table.Set(h, l); (err != nil) != bad {
					t.Fatalf("Set(%+v) = %v, conflict in the model: %v", l, err, bad)
				}
				if !bad {
					m.put(l, true)
				}
			},
			"unlock": func(t *rapid.T) {
				l := draw.Draw(t, "lock")
				table.Unlock(h, l)
				m.put(l, false)
			},
			"unlock everything": func(t *rapid.T) {
				owner := draw.Draw(t, "lock").Owner
				all := volume.Lock{Owner: owner, End: toEnd}
				table.Unlock(h, all)
				m.put(all, false)
			},
			"release gateway": func(t *rapid.T) {
				gateway := draw.Draw(t, "lock").Owner.Gateway
				table.ReleaseGateway(gateway)
				for _, owner := range []string{"a", "b"} {
					m.put(volume.Lock{Owner: volume.LockOwner{Gateway: gateway, Owner: owner}, End: toEnd}, false)
				}
			},
			"": func(t *rapid.T) {
				if err := table.Check(); err != nil {
					t.Fatal(err)
				}
				var got model
				for i := range got {
					got[i] = make(map[volume.LockOwner]bool)
				}
				for _, l := range table.All() {
					got.put(l, true)
				}
				for i := range m {
					if fmt.Sprint(got[i]) != fmt.Sprint(m[i]) {
						t.Fatalf("byte %d is held by %v, in the model by %v", i, got[i], m[i])
					}
				}
			},
		})
	})
}

func TestAllStops(t *testing.T) {
	var table Table
	for i := range uint64(3) {
		if err := table.Set(volume.Handle{Ino: i}, lock("a", 0, 1, true)); err != nil {
			t.Fatal(err)
		}
	}
	var seen []volume.Handle
	for h := range table.All() {
		seen = append(seen, h)
		break
	}
	if len(seen) != 1 {
		t.Errorf("All yielded %v after its consumer stopped", seen)
	}
}
