// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// sealedAt returns how many bytes of segments a site's store has of a volume.
func (c *cluster) sealedAt(site, id string) (n int64) {
	c.t.Helper()
	if err := c.nodes[site].store.List(c.t.Context(), id+"/", func(i store.Info) error {
		if _, _, _, err := segment.ParseName(i.Name); err == nil {
			n += i.Size
		}
		return nil
	}); err != nil {
		c.t.Error(err)
	}
	return n
}

// remove removes what fill wrote.
func (c *cluster) remove(home, id string, from, to int) {
	c.t.Helper()
	r := c.router(home, id)
	cl := &client{name: fmt.Sprint("remove ", from)}
	for i := from; i < to; i++ {
		if _, err := r.Remove(c.t.Context(), cl.next(), volume.Root, fmt.Sprint("file ", i)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestSpaceComesBack: what nothing uses any more goes from stores and pools. A copy that was away
// meanwhile, whose log nobody can go on with, comes back by itself, and so does a gateway without a
// copy.
func TestSpaceComesBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.due = checkpoints.Due{Bytes: 1 << 20, Shrunk: 1 << 20, Segments: 4, Grace: time.Millisecond}
	for _, s := range []string{"a", "b", "c", "d"} {
		c.add(s)
	}
	id := c.createAt("v", manifest("v", 2), []string{"a", "b", "c"})
	c.admit("d", id)
	c.fill("a", id, 0, 20)
	filled(t, c.router("d", id), 0, 20)
	c.whole("a", id, "b")
	c.whole("a", id, "c")
	late, stays := "c", "b" // whichever is no member
	c.with(func(r federation.Registry) error {
		ctl, _, err := r.GetControl(t.Context(), id)
		if err == nil && slices.ContainsFunc(ctl.Members, func(m federation.Member) bool { return m.Site == late }) {
			late, stays = stays, late
		}
		return err
	})
	c.members(id, "a", stays)
	before := c.at(late).copies.Copy(id).Log.Identity()
	c.stop(late)
	c.stop("d")
	c.fill("a", id, 20, 30)
	c.remove("a", id, 0, 20)
	c.fill("a", id, 30, 34)
	live := int64(14 * len(block(0)))
	for _, s := range []string{"a", stays} {
		c.until("space comes back at "+s, func() error {
			l := c.at(s).copies.Copy(id).Log
			if n := c.sealedAt(s, id); n > live+8*int64(len(block(0))) || l.Base() == (segment.Position{}) {
				return fmt.Errorf("the store has %d bytes of segments, %d are used; the log's base is %v", n, live, l.Base())
			}
			return nil
		})
	}
	filled(t, c.router(stays, id), 20, 34)

	c.start(late)
	c.until(late+" is back", func() error {
		copied := c.at(late).copies.Copy(id)
		if copied == nil {
			return errors.New("no copy is open")
		}
		if base := copied.Log.Base(); base == (segment.Position{}) {
			return fmt.Errorf("its log ends at %v, and has all", copied.Log.End())
		}
		return nil
	})
	c.whole("a", id, late)
	copied := c.at(late).copies.Copy(id)
	if copied.Log.Identity() != before {
		t.Error("its log is another one")
	}
	if n := copied.Log.AbsentBytes(); n != 0 {
		t.Errorf("it lacks %d bytes", n)
	}
	if aside := c.at(late).copies.Salvaged(id); len(aside) > 0 {
		t.Errorf("it left %v", aside)
	}
	filled(t, c.router(late, id), 20, 34)
	c.start("d")
	filled(t, c.router("d", id), 20, 34)

	// Without the others it has all that is there.
	c.change(id, func(v *federation.Volume) {
		v.Spec.Replication.Copies, v.Sites = 1, []string{late}
		v.Spec.Durability.Acknowledge, v.Spec.Durability.Sites = federation.AcknowledgeGateway, 0
	})
	c.members(id, late)
	c.dropped("a", id)
	c.dropped(stays, id)
	c.stop("a")
	c.stop(stays)
	filled(t, c.router(late, id), 20, 34)

	// All goes.
	c.remove(late, id, 20, 34)
	c.fill(late, id, 34, 36)
	c.remove(late, id, 34, 36)
	c.until("the store is empty but for the last segments", func() error {
		c.router(late, id).Copy().Replica.Roll()
		if n := c.sealedAt(late, id); n > 2*int64(len(block(0))) {
			return fmt.Errorf("it has %d bytes of segments", n)
		}
		return nil
	})
	names, _, err := c.router(late, id).ReadDir(context.Background(), volume.Request{}, volume.Root, 0, 10)
	if err != nil || len(names) > 0 {
		t.Errorf("%+v, %v", names, err)
	}
}
