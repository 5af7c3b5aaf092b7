// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"bytes"
	"log/slog"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/pack"
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
		if err := alike(x.Built, want); (err == nil) != x.alike {
			t.Errorf("%+v: %v", x, err)
		}
	}
}
