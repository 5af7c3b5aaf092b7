// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/space"
	"github.com/weir-storage/weir/store"
)

// piecesAt returns the names of the pieces that a site's store has of a volume.
func (c *cluster) piecesAt(site, id string) (names []string) {
	c.t.Helper()
	if err := c.nodes[site].store.List(c.t.Context(), id+segment.PieceFolder, func(i store.Info) error {
		names = append(names, i.Name)
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
	return names
}

// TestTheEndOfTheLogIsInStores: what was written is in the store of each site within maxLag, though
// the segment has not ended. When all gateways are gone, a copy that is rebuilt from one store has
// it.
func TestTheEndOfTheLogIsInStores(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.due = checkpoints.Due{Bytes: 128 << 20, Shrunk: 32 << 20, Segments: 64, Cost: 2, Grace: time.Minute, Every: 100 * time.Millisecond}
	c.add("a")
	c.add("b")
	id := c.createAt("v", strings.Replace(manifest("v", 1), "durability: {", "durability: {maxLag: {time: 15s}, ", 1), []string{"a", "b"})
	c.fill("a", id, 0, 5)
	begun := c.router("a", id).Copy().Log.End().Seq
	for _, s := range []string{"a", "b"} {
		c.until("the end of the log is in the store of "+s, func() error {
			if len(c.piecesAt(s, id)) == 0 {
				return errors.New("it has no piece")
			}
			return nil
		})
		is := c.spaceAt(s, id).Store
		if is.Of(space.Orphans).Objects != 0 || is.Of(space.Log).Objects == 0 || len(is.Differs) > 0 {
			t.Errorf("what the store of %s has is %+v", s, is)
		}
	}
	end := c.router("a", id).Copy().Log.End()
	r := c.rebuilt("b", id, "a", "b")
	if r.End != end || end.Seq != begun || uint64(r.Segments) != end.Seq-1 {
		t.Errorf("%d segments up to %s, the log ended at %s, and at segment %d before", r.Segments, r.End, end, begun)
	}
	c.start("b")
	c.until("b takes over by a person's word", func() error { return c.failover(t, "b", id, true) })
	filled(t, c.router("b", id), 0, 5)

	// The segment has ended with the epoch: its pieces go.
	c.until("the pieces are gone", func() error {
		if left := c.piecesAt("b", id); len(left) > 0 {
			return fmt.Errorf("there are %q", left)
		}
		return nil
	})
}
