// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/view"
)

// TestAlike: a copy drops what was condemned at a checkpoint only once it found that checkpoint, or
// a later one, to be what the home made (checkpoints-1, checkpoints-5).
func TestAlike(t *testing.T) {
	k := New(Config{Logger: slog.New(slog.DiscardHandler), Due: Due{Grace: time.Minute}})
	mine := map[uint64]checkpoint.Hash{3: {3}, 4: {4}, 5: {5}}
	k.last["v"] = made{number: 5, hashes: mine}
	for _, x := range []struct {
		number  uint64
		hash    checkpoint.Hash
		differs uint64
		may     uint64 // the newest at which what was condemned may go
		alike   uint64 // the newest that was made alike, if nothing may go
	}{
		{2, checkpoint.Hash{2}, 0, 0, 0}, // which this copy did not make
		{3, mine[3], 0, 3, 0},
		{4, checkpoint.Hash{9}, 4, 0, 3}, // one of the two is damaged: nothing goes
		{5, mine[5], 0, 5, 0},
	} {
		var home engine.Checkpoints
		home.Made.Number, home.Made.Hash = x.number, x.hash
		k.compare(Copy{UUID: "v"}, home)
		if got := k.of("v").differs; got != x.differs {
			t.Errorf("checkpoint %d: %d differs, want %d", x.number, got, x.differs)
		}
		if got := k.Condition("v").Alike; got != mine[cmp.Or(x.may, x.alike)] { // what metadata are made anew from
			t.Errorf("after checkpoint %d, the newest that was made alike is %x", x.number, got)
		}
		for number := uint64(1); number <= 6; number++ {
			if got, want := k.mayGo("v", number, time.Minute), number <= x.may; got != want {
				t.Errorf("after checkpoint %d, what was condemned at %d may go: %t", x.number, number, got)
			}
			if k.mayGo("v", number, time.Minute-1) {
				t.Error("it may go before the grace is over")
			}
		}
	}
}

// told is a registry that tells of some events, and ends.
type told []federation.Event

var errEnds = errors.New("that is all")

func (w told) Watch(_ context.Context, fn func(federation.Event) error) error {
	for _, e := range w {
		if err := fn(e); err != nil {
			return err
		}
	}
	return errEnds
}

func (told) Head(context.Context) (federation.Head, error) { return federation.Head{}, nil }

// TestShared: nothing is deleted of a volume of which another gateway of the site may have a copy:
// one that is registered there, the home, or a member (checkpoints-9).
func TestShared(t *testing.T) {
	member := func(gateway, site string) federation.Member { return federation.Member{Gateway: gateway, Site: site} }
	control := func(home federation.Member, members ...federation.Member) federation.Event {
		return federation.Event{Kind: federation.KindControl, Name: "v", Revision: 1,
			Control: &federation.Control{Volume: "v", Home: home, Members: members}}
	}
	registered := func(site string, gateways ...string) federation.Event {
		s := &federation.Site{Name: site}
		for _, g := range gateways {
			s.Gateways = append(s.Gateways, federation.Gateway{Name: g})
		}
		return federation.Event{Kind: federation.KindSite, Name: site, Revision: 2, Site: s}
	}
	me, elsewhere, beside := member("ga", "a"), member("gb", "b"), member("ga2", "a")
	for what, x := range map[string]struct {
		events []federation.Event
		want   bool
	}{
		"nobody else": {[]federation.Event{control(me, me)}, false},
		"only at other sites": {[]federation.Event{control(elsewhere, elsewhere, me), registered("a", "ga"),
			registered("b", "gb", "gb2")}, false},
		"the home is beside":      {[]federation.Event{control(beside, elsewhere)}, true},
		"a member is beside":      {[]federation.Event{control(elsewhere, elsewhere, beside)}, true},
		"another is registered":   {[]federation.Event{control(elsewhere, elsewhere), registered("a", "ga", "ga2")}, true},
		"the volume is not known": {nil, false},
	} {
		v := view.New("a", federation.KindControl, federation.KindSite)
		all := append(x.events, federation.Event{Kind: federation.KindSynced, Revision: 3})
		if err := v.Watch(t.Context(), told(all)); !errors.Is(err, errEnds) {
			t.Fatal(err)
		}
		k := New(Config{Gateway: "ga", Site: "a", View: v, Logger: slog.New(slog.DiscardHandler)})
		if got := k.Shared("v"); got != x.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}

// TestAnotherEngine: what is known of a copy's checkpoints is not believed of the one that is
// opened later: that may have other metadata, after a forced takeover, say. It is where somebody
// says that it has the same.
func TestAnotherEngine(t *testing.T) {
	const id = "v"
	first, second := new(engine.Engine), new(engine.Engine)
	for _, x := range []struct {
		what    string
		between func(k *Keeper)
		keeps   bool
	}{
		{"a forced takeover", func(*Keeper) {}, false},
		{"it is held still", func(k *Keeper) { k.Hold(id) }, true},
		{"it was held", func(k *Keeper) { k.Hold(id); k.Release(id, false) }, true},
		{"it was made anew", func(k *Keeper) { k.Hold(id); k.Release(id, true) }, false},
	} {
		k := New(Config{Logger: slog.New(slog.DiscardHandler), Due: Due{Grace: time.Minute}})
		k.last[id], k.plans[id] = made{engine: first, number: 5, alike: 5}, &plan{number: 5}
		k.renew(Copy{UUID: id, Engine: first})
		if !k.mayGo(id, 5, time.Minute) || k.plans[id] == nil {
			t.Fatalf("%s: before, what is known is not believed", x.what)
		}
		x.between(k)
		for range 2 {
			k.renew(Copy{UUID: id, Engine: second})
			if got := k.mayGo(id, 5, time.Minute); got != x.keeps || !x.keeps && k.plans[id] != nil && x.what == "a forced takeover" {
				t.Errorf("%s: what was condemned may go: %t", x.what, got)
			}
		}
	}
}
