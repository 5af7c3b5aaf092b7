// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"bytes"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/federation/upkeep"
	"github.com/weir-storage/weir/gateway/packsource"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/memory"
)

// TestMovable: a copy drops what moved into a pack only if its site's store has that pack, whole,
// and if the pack has all that its metadata need (checkpoints-8).
func TestMovable(t *testing.T) {
	id := uuid.New()
	c := Copy{UUID: id.String()}
	is := engine.Pack{Number: 2, Hash: pack.Hash{7}, Len: 5, Made: 1}
	table := &engine.Packs{All: []engine.Pack{{Number: 1, Hash: pack.Hash{6}, Len: 9, Made: 1, Condemned: 2, Into: 2}, is},
		Moved: map[uint64]uint64{3: 2, 4: 2}}
	name := pack.Name([16]byte(id), is.Hash)
	for _, x := range []struct {
		what    string
		stored  []byte
		covered bool
		without bool // the site has no store
		want    []uint64
	}{
		{"the store does not have it", nil, true, false, []uint64{1, 2}},
		{"the store has a part of it", []byte("half"), true, false, []uint64{1, 2}},
		{"a block is missing", []byte("whole"), false, false, []uint64{1, 2}},
		{"there is no store", nil, true, true, []uint64{1, 2}},
		{"its record is not known to be there", []byte("whole"), true, false, []uint64{1, 2}},
		{"it is damaged, and an earlier process put it", []byte("whole"), true, false, []uint64{1, 2}},
		{"all is well", []byte("whole"), true, false, []uint64{1, 2, 3, 4}},
	} {
		var s store.Store
		if !x.without {
			s = memory.New()
		}
		k := New(Config{Logger: slog.New(slog.DiscardHandler), Store: s})
		if x.stored != nil {
			if err := s.Put(t.Context(), name, int64(len(x.stored)), bytes.NewReader(x.stored)); err != nil {
				t.Fatal(err)
			}
		}
		k.packsOf(c.UUID).covered[2] = x.covered
		if x.what != "its record is not known to be there" {
			k.packsOf(c.UUID).proved[2] = 0
		}
		if x.what == "all is well" || x.what == "the store has a part of it" {
			k.packsOf(c.UUID).bad[is.Hash] = false // it was whole when it was put, or verified
		}
		got, err := k.movable(t.Context(), c, table, []uint64{1, 2, 3, 4})
		if err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%s: segments %d may go, want %d, %v", x.what, got, x.want, err)
		}
	}
}

// TestPacksThatDiffer: another pack than the home's does not take its place.
func TestPacksThatDiffer(t *testing.T) {
	want := engine.Pack{Number: 1, Hash: pack.Hash{7}, Len: 5}
	for _, x := range []struct {
		pack.Built
		alike bool
	}{{pack.Built{Hash: pack.Hash{7}, Len: 5}, true}, {pack.Built{Hash: pack.Hash{8}, Len: 5}, false},
		{pack.Built{Hash: pack.Hash{7}, Len: 6}, false}} {
		if err := packsource.Alike(x.Built, want); (err == nil) != x.alike {
			t.Errorf("%+v: %v", x, err)
		}
	}
}

// TestPaceOfPacks: as many bytes move as the owner says, also where rounds are rare, and no more.
func TestPaceOfPacks(t *testing.T) {
	now := time.Date(2026, 5, 4, 21, 0, 0, 0, time.UTC)
	const size = 64 << 20
	for _, tt := range []struct {
		says  upkeep.Compaction
		least uint64 // bytes in an hour
		most  uint64
	}{
		{upkeep.Compaction{Rate: 4 << 20}, 3600 * 4 << 20, 3615*4<<20 + size},
		{upkeep.Compaction{Rate: 1 << 20}, 3500 << 20, 3615<<20 + size},
		{upkeep.Compaction{Rate: 100 << 20}, 3500 * 100 << 20, 3630*100<<20 + size},
		{upkeep.Compaction{Hours: "22:00-06:00"}, 0, 0},
	} {
		var p packing
		bytes := uint64(0)
		for at := time.Duration(0); at < time.Hour; at += sweepEvery {
			for bytes <= tt.most && tt.says.May(p.next, now.Add(at)) {
				p.moved(tt.says, now.Add(at), size, sweepEvery)
				bytes += size
			}
		}
		if bytes < tt.least || bytes > tt.most {
			t.Errorf("%+v: %d MiB moved in an hour", tt.says, bytes>>20)
		}
	}
	if !(upkeep.Compaction{Hours: "22:00-06:00"}).May(time.Time{}, now.Add(time.Hour)) {
		t.Error("nothing moves in the hours")
	}
}

// TestSuspectedPacks: of the packs that could not be read while a store was away, one is read in
// each round, and each once. Without a store nobody suspects any.
func TestSuspectedPacks(t *testing.T) {
	id := uuid.New()
	c := Copy{UUID: id.String()}
	in := memory.NewCounting(memory.New())
	k := New(Config{Logger: slog.New(slog.DiscardHandler), Store: in})
	p, table := k.packsOf(c.UUID), &engine.Packs{}
	for i := range 5 {
		is := engine.Pack{Number: uint64(i + 1), Hash: pack.Hash{byte(i + 1)}, Len: 5, Made: 1}
		table.All = append(table.All, is)
		name := pack.Name([16]byte(id), is.Hash)
		if err := in.Put(t.Context(), name, 5, bytes.NewReader([]byte("bytes"))); err != nil {
			t.Fatal(err)
		}
		k.Suspect(c.UUID)(name)
	}
	table.All[2].Condemned = 3 // nobody needs it any more
	for round := 1; round <= 6; round++ {
		if err := k.examine(t.Context(), c, p, table); err != nil {
			t.Fatal(err)
		}
		if n, want := int(in.Stats.Load()), min(round, 4); n != want || len(p.bad) != want {
			t.Errorf("after %d rounds, %d packs were looked at, and %d are bad", round, n, len(p.bad))
		}
	}
	if k.packsLeft(c.UUID) {
		t.Error("something is left to do")
	}
	if New(Config{}).Suspect(c.UUID) != nil {
		t.Error("without a store packs are suspected, and nobody ever looks")
	}
}
