// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"testing"

	"github.com/google/uuid"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/memory"
)

// TestALaterCheckpointIsSeen: a gateway that is behind finds in the site's store that there is a
// checkpoint later than those it knows. What can not be read may be one.
func TestALaterCheckpointIsSeen(t *testing.T) {
	id := uuid.New()
	var key segment.DataKey
	_, _ = rand.Read(key[:]) // never fails
	s := memory.New()
	name := func(seq uint64, number uint32) string {
		head := checkpoint.Head{Volume: segment.VolumeID(id), At: segment.Position{Seq: seq, Off: 100}, Epoch: 1, Key: number}
		pairs := func(yield func(checkpoint.Pair, error) bool) {
			yield(checkpoint.Pair{Key: []byte{'i', byte(seq)}}, nil)
		}
		m, _, err := checkpoint.Write(t.Context(), head, &key, pairs, Objects(s, id.String()))
		if err != nil {
			t.Fatal(err)
		}
		names := m.Names()
		for _, n := range names {
			if n[len(id.String()):][:3] == "/m/" {
				return n
			}
		}
		t.Fatalf("there is no manifest among %q", names)
		return ""
	}
	first, second, third := name(1, 0), name(2, 0), name(3, 0)
	var now engine.Checkpoints
	now.Made.At = segment.Position{Seq: 2, Off: 100}
	known := Copy{UUID: id.String(), Keys: segment.NewKeys(key)}
	chunk := id.String() + "/c/ff"
	for what, x := range map[string]struct {
		names []string
		of    Copy
		in    store.Store
		later bool
		fails bool
	}{
		"none":                         {nil, known, s, false, false},
		"earlier ones":                 {[]string{first, second, chunk}, known, s, false, false},
		"a later one":                  {[]string{first, third}, known, s, true, false},
		"what is no object's name":     {[]string{first, "other/m/00"}, known, s, false, false},
		"the store does not answer":    {[]string{first}, known, mute{s}, false, true},
		"a key that is not known here": {[]string{name(4, 1)}, known, s, false, true},
	} {
		k := New(Config{Logger: slog.New(slog.DiscardHandler), Store: x.in})
		later, err := k.later(t.Context(), x.of, now, x.names)
		if later != x.later || (err != nil) != x.fails {
			t.Errorf("%s: %t, %v", what, later, err)
		}
	}
}

// mute is a store that does not answer.
type mute struct{ store.Store }

func (mute) Stat(context.Context, string) (store.Info, error) {
	return store.Info{}, io.ErrUnexpectedEOF
}
