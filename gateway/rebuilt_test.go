// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/rebuild"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// TestARebuiltCopyTakesOver: when all copies are gone and one store is left, a copy that is rebuilt
// from it becomes home by a person's word, and is written again.
func TestARebuiltCopyTakesOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.due = checkpoints.Due{Bytes: 1 << 20, Segments: 4}
	c.add("a")
	c.add("b")
	id := c.createAt("v", manifest("v", 1), []string{"a", "b"})
	c.fill("a", id, 0, 20)
	c.checkpointed("a", id, 0)
	c.router("a", id).Copy().Replica.Roll()
	c.until("all is in the store of b", func() error {
		l := c.router("b", id).Copy().Log
		end := c.router("a", id).Copy().Log.Sealed(c.router("a", id).Copy().Log.End())
		if l.End().Less(end) || l.UnstoredBytes(l.End()) > 0 {
			return fmt.Errorf("it ends at %v, want %v, and %d bytes are not stored", l.End(), end, l.UnstoredBytes(l.End()))
		}
		return nil
	})
	c.stop("a")
	c.stop("b")
	if err := errors.Join(os.RemoveAll(filepath.Join(c.dir, "a")), os.RemoveAll(filepath.Join(c.dir, "b"))); err != nil {
		t.Fatal(err)
	}
	ring, _, err := c.reg.Client(nil).GetKeyring(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.nodes["b"].key.UnwrapAll(ring, "b")
	if err != nil {
		t.Fatal(err)
	}
	keys := segment.NewKeys(all[0])
	keys.Add(all)
	pool, err := dir.Open(dir.Config{Path: filepath.Join(c.dir, "b"), Gateway: "gb", Limit: 1 << 30, Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	d, err := pool.Volume(id)
	if err != nil {
		t.Fatal(err)
	}
	var from store.Store = c.nodes["b"].store
	r, err := rebuild.Make(t.Context(), rebuild.Config{Volume: volume.ID(uuid.MustParse(id)), Store: from, Keys: keys, Dir: d,
		Room: pool.Room(), FS: vfs.Default, Now: time.Now, Clock: clockwork.NewRealClock(), Rand: rand.Reader,
		Logger: slog.New(slog.DiscardHandler)})
	if err := errors.Join(err, pool.Close()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d segments up to %s, of which %d were applied after the checkpoint at %s", r.Segments, r.End, r.Read, r.Checkpoint)
	c.start("b")
	c.until("b takes over by a person's word", func() error { return c.failover(t, "b", id, true) })
	router := c.router("b", id)
	filled(t, router, 0, 20)
	c.fill("b", id, 20, 25)
	filled(t, router, 0, 25)
}
