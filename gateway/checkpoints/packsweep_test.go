// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// TestOrphanPacks: a pack that nobody committed goes when a checkpoint that was asked for since
// does not know it, and not before; and never one that is named.
func TestOrphanPacks(t *testing.T) {
	for what, x := range map[string]struct {
		number uint64 // of the newest checkpoint that was made as the home did, after the one of before
		after  time.Duration
		named  bool // it is committed meanwhile
		differ bool // the checkpoint is not the home's
		aside  bool
		gone   bool
	}{
		"there is a later checkpoint": {number: 1, after: time.Hour, gone: true},
		"there is none":               {number: 0, after: time.Hour},
		"it was seen just now":        {number: 1, after: time.Minute},
		"it was committed":            {number: 1, after: time.Hour, named: true},
		"the copy is damaged":         {number: 1, after: time.Hour, differ: true},
		"a copy is kept aside":        {number: 1, after: time.Hour, aside: true},
	} {
		y := newYear(t, time.Minute, true)
		y.must(y.engine.AskCheckpoint(t.Context(), 0, false))
		y.copy.Aside = func() bool { return x.aside }
		hash := pack.Hash{7}
		name := pack.Name([16]byte(y.engine.ID()), hash)
		y.must(y.store.Put(t.Context(), name, 5, bytes.NewReader([]byte("whole"))))
		p := y.keeper.packsOf(y.copy.UUID)
		y.must(y.keeper.list(t.Context(), y.copy, p))
		table := &engine.Packs{}
		y.must(y.keeper.sweepPacks(t.Context(), y.copy, table))
		now, err := y.engine.Checkpoints()
		y.must(err)
		if now.Asked.Number == 0 {
			t.Fatal("no checkpoint was asked for")
		}
		last := made{number: now.Asked.Number + x.number, alike: now.Asked.Number + x.number}
		if x.differ {
			last.differs = last.number
		}
		y.keeper.last[y.copy.UUID] = last
		y.until("all is applied", func() bool { return y.engine.Applied() == y.log.End() })
		y.clock.Advance(x.after)
		if x.named {
			table.All = []engine.Pack{{Number: 1, Hash: hash, Len: 5, Made: last.number}}
		}
		y.must(y.keeper.sweepPacks(t.Context(), y.copy, table))
		_, err = y.store.Stat(t.Context(), name)
		if gone := errors.Is(err, store.ErrNotExist); gone != x.gone {
			t.Errorf("%s: %v", what, err)
		}
		if !x.gone && !x.named && !x.aside && x.number == 1 && !x.differ && !y.keeper.packsLeft(y.copy.UUID) {
			t.Errorf("%s: nobody looks again", what)
		}
	}
}

// TestOrphanPackOfAVolume: a Keeper finds a pack that a home put and did not commit, and it goes as
// time passes.
func TestOrphanPackOfAVolume(t *testing.T) {
	y := newYear(t, time.Minute, false) // segments end often
	name := pack.Name([16]byte(y.engine.ID()), pack.Hash{7})
	y.must(y.store.Put(t.Context(), name, 5, bytes.NewReader([]byte("whole"))))
	y.page = y.file("page")
	for i := 0; ; i++ {
		if i > 5000 {
			_, kinds := y.objects()
			t.Fatal("the pack is there after half a day: ", kinds)
		}
		// Something of each segment lives, so that they are merged.
		_, err := y.engine.Write(t.Context(), volume.Request{}, y.page, uint64(i)*4096, make([]byte, 4000), true)
		y.must(err)
		y.tick()
		y.keep()
		if _, err := y.store.Stat(t.Context(), name); errors.Is(err, store.ErrNotExist) {
			break
		}
	}
	table, err := y.engine.Packs()
	y.must(err)
	_, kinds := y.objects()
	if len(table.All) == 0 || kinds["p"] == 0 {
		t.Errorf("%d packs were made, and there are %v", len(table.All), kinds)
	}
}
