// SPDX-License-Identifier: Apache-2.0

package rebuild

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/store/memory"
)

// pieces puts the last segment into the store in n pieces, with so many changes in each. The first
// begins at from, where a piece ended.
func (h *home) pieces(n, changes int, from uint64) (names []string, end log.Position) {
	h.Helper()
	for range n {
		h.changes(changes)
		h.ok(h.log.Wait(h.Context(), h.log.End()))
		end = h.log.End()
		b := make([]byte, end.Off)
		if n, err := h.log.ReadSegmentFile(end.Seq, b, 0); n != len(b) {
			h.Fatal(n, err)
		}
		head, err := segment.DecodeHeader(b[:segment.HeaderSize])
		h.ok(err)
		p := segment.Piece{Seq: end.Seq, Salt: [8]byte(head.Salt[:8]), From: from, To: end.Off, Hash: blake3.Sum256(b)}
		name := segment.PieceName(head.Volume, p)
		h.ok(h.store.Put(h.Context(), name, int64(end.Off-from), bytes.NewReader(b[from:])))
		names = append(names, name)
		from = end.Off
	}
	return names, end
}

// few makes changes until the last segment is a new one, so that a few more are in that.
func (h *home) few() {
	h.Helper()
	h.ok(h.log.Roll())
	h.changes(1)
}

// TestRebuiltWithPieces: what is in no segment that ended, and in the store in pieces, is there
// after a rebuild.
func TestRebuiltWithPieces(t *testing.T) {
	for seed := range uint64(4) {
		h := newHome(t, seed, memory.New())
		h.changes(40)
		if seed%2 == 1 {
			h.checkpoint()
			h.changes(10)
		}
		h.few()
		h.upload()
		_, end := h.pieces(3, 3, 0)
		h.pieces(1, 0, 0) // of another gateway of the site
		r := newTarget(t, h.store).rebuilt(h.upTo(end), end)
		if len(r.Lost)+len(r.Left)+len(r.Passed) > 0 || uint64(r.Segments) != end.Seq-1 {
			t.Fatalf("seed %d: %+v", seed, r)
		}
		// A copy goes on in another segment, and the pieces stay beside the whole one.
		h.changes(5)
		h.ok(h.log.Roll())
		h.changes(5)
		end = h.upload()
		r = newTarget(t, h.store).rebuilt(h.upTo(end), end)
		if len(r.Lost)+len(r.Left)+len(r.Passed) > 0 {
			t.Fatalf("seed %d, with the whole segment: %+v", seed, r)
		}
	}
	// The first segment of a volume.
	h := newHome(t, 9, memory.New())
	_, end := h.pieces(2, 10, 0)
	newTarget(t, h.store).rebuilt(h.upTo(end), end)
}

// TestDamagedPieces: what can not be used of pieces is a loss that is named, and nothing that does
// not verify is applied.
func TestDamagedPieces(t *testing.T) {
	h := newHome(t, 5, memory.New())
	h.changes(40)
	h.few()
	h.upload()
	var names []string
	var ends []log.Position
	from := uint64(0)
	for range 3 {
		n, end := h.pieces(1, 4, from)
		names, ends, from = append(names, n...), append(ends, end), end.Off
	}
	for what, damage := range map[string]func(s *memory.Store, name string){
		"missing": func(s *memory.Store, name string) { h.ok(s.Delete(t.Context(), name)) },
		"damaged": func(s *memory.Store, name string) {
			replace(t, s, name, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		},
		"short": func(s *memory.Store, name string) { replace(t, s, name, func(b []byte) []byte { return b[:len(b)-1] }) },
	} {
		for i, name := range names {
			if what == "missing" && i == len(names)-1 {
				continue // nobody knows that it was there
			}
			s := clone(t, h.store)
			damage(s, name)
			g := newTarget(t, s)
			_, err := Make(t.Context(), g.Config)
			if loss := (*LossError)(nil); !errors.As(err, &loss) || !strings.Contains(err.Error(), "/t/") {
				t.Fatalf("%s, piece %d: %v", what, i, err)
			}
			g.AcceptLoss = true
			r, err := Make(t.Context(), g.Config)
			h.ok(err)
			want := log.Position{Seq: ends[0].Seq - 1, Off: r.End.Off}
			if i > 0 {
				want = ends[i-1]
			}
			if r.End != want || i > 0 && !same(pairsIn(t, g.Dir.Path()+"/meta"), h.upTo(want)) {
				t.Fatalf("%s, piece %d: up to %s, want %s", what, i, r.End, want)
			}
		}
	}
	// A segment before them that is gone is not passed over.
	s := clone(t, h.store)
	all := h.log.Segments()
	h.ok(s.Delete(t.Context(), all[len(all)-1].Name))
	_, err := Make(t.Context(), newTarget(t, s).Config)
	if loss := (*LossError)(nil); !errors.As(err, &loss) || !strings.Contains(err.Error(), all[len(all)-1].Name) {
		t.Fatal(err)
	}
}

// TestPiecesOfABranch: pieces of a later epoch decide, and those of a branch that was left out by
// force do not.
func TestPiecesOfABranch(t *testing.T) {
	h := newHome(t, 1, memory.New())
	h.changes(100)
	h.few()
	fork := h.upload()
	_, old := h.pieces(2, 5, 0) // what a forced takeover leaves out

	b := newHome(t, 2, h.store)
	b.close()
	b.path, b.epoch, b.made = t.TempDir(), 0, nil
	pool := copyLog(b, h, fork)
	b.epoch = h.epoch + 1
	b.ok(pool.Close())
	b.open()
	_, end := b.pieces(1, 2, 0)
	if old.Seq != end.Seq {
		t.Fatalf("the branch that was left out ends at %s, the other at %s", old, end)
	}
	r := newTarget(t, b.store).rebuilt(b.upTo(end), end)
	if len(r.Left) != 1 || !slices.ContainsFunc(r.Left, func(n string) bool { return strings.Contains(n, "/t/") }) {
		t.Fatalf("%+v", r)
	}
}
