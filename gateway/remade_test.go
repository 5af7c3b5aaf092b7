// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/volume"
)

// TestDamagedMetadataAreMadeAnew: those of a copy that is not the home come again from a checkpoint
// and its log, also when that was dropped up to the checkpoint.
func TestDamagedMetadataAreMadeAnew(t *testing.T) {
	t.Parallel()
	for _, dropped := range []bool{false, true} {
		t.Run(fmt.Sprint("dropped ", dropped), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.due = checkpoints.Due{Bytes: 1 << 20, Shrunk: 1 << 40, Segments: 4, Grace: time.Hour}
			if dropped {
				c.due.Shrunk, c.due.Grace = 1<<20, time.Millisecond
			}
			for _, s := range []string{"a", "b"} {
				c.add(s)
			}
			id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
			c.fill("a", id, 0, 30)
			if dropped {
				c.remove("a", id, 0, 20)
			}
			c.fill("a", id, 30, 34)
			c.whole("a", id, "b")
			c.checkpointed("b", id, 0)
			base := func() segment.Position { return c.at("b").copies.Copy(id).Log.Base() }
			if dropped {
				c.until("the log is dropped at b", func() error {
					if base() == (segment.Position{}) {
						return errors.New("it has all")
					}
					return nil
				})
			}
			a, err := c.router("b", id).Lookup(t.Context(), volume.Request{}, volume.Root, "file 25")
			if err != nil {
				t.Fatal(err)
			}
			identity := c.at("b").copies.Copy(id).Log.Identity()
			c.edit("b", id, func(*meta.Store) []segment.Op {
				return []segment.Op{{Kind: segment.Delete, Key: meta.InodeKey(a.Handle.Ino)}}
			})
			c.until("b has its copy open", func() error {
				if c.at("b").copies.Copy(id) == nil {
					return errors.New("none is open")
				}
				return nil
			})
			if r := c.checked("b", id, false, false); r.Left() == 0 {
				t.Fatal("nothing is found")
			}
			if home := c.homeOf("a", id); home != "ga" {
				t.Fatalf("the home is %s", home)
			}
			r := c.checked("b", id, false, true)
			if len(r.Damage) == 0 || r.Left() != 0 {
				t.Errorf("%+v", r.Damage)
			}
			c.whole("a", id, "b")
			c.damages(c.checked("b", id, true, false))
			filled(t, c.router("b", id), 20, 34)
			if dropped != (base() != segment.Position{}) || c.at("b").copies.Copy(id).Log.Identity() != identity {
				t.Errorf("the log is another one, with base %v", base())
			}
			for _, at := range []string{"a", "b"} {
				if n := c.at(at).copies.Checkpoints().Condition(id).Differs; n != 0 {
					t.Errorf("checkpoint %d at %s is not the home's", n, at)
				}
			}
			// Metadata that are lost as a whole come again too, although nothing is written.
			c.stop("b")
			if err := os.RemoveAll(filepath.Join(c.dir, "b", "volumes", id, "meta")); err != nil {
				t.Fatal(err)
			}
			c.start("b")
			c.whole("a", id, "b")
			c.damages(c.checked("b", id, true, false))
			filled(t, c.router("b", id), 20, 34)
		})
	}
}

// TestADamagedHomeIsFound: a home makes a checkpoint of damaged metadata. Another copy that has its
// own made anew from the log differs again. When it is home, the damaged one is made anew from what
// it has.
func TestADamagedHomeIsFound(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.due = checkpoints.Due{Bytes: 1 << 20, Shrunk: 1 << 40, Segments: 4, Grace: time.Hour}
	for _, s := range []string{"a", "b"} {
		c.add(s)
	}
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	c.fill("a", id, 0, 30)
	c.whole("a", id, "b")
	c.checkpointed("b", id, 0)
	a, err := c.router("b", id).Lookup(t.Context(), volume.Request{}, volume.Root, "file 25")
	if err != nil {
		t.Fatal(err)
	}
	c.edit("a", id, func(*meta.Store) []segment.Op {
		return []segment.Op{{Kind: segment.Delete, Key: meta.InodeKey(a.Handle.Ino)}}
	})
	leads := func(site string) {
		t.Helper()
		c.until(site+" is home", func() error {
			for _, s := range c.order {
				is := c.at(s).copies.Copy(id)
				if is == nil {
					return fmt.Errorf("no copy is open at %s", s)
				}
				if _, ok := is.Leading(); ok && s == site {
					return nil
				} else if ok {
					is.Replica.Move("g" + site)
				}
			}
			return errors.New("it is not")
		})
	}
	at, last := 30, uint64(0)
	differs := func(home, other string) {
		t.Helper()
		c.until(other+" has another checkpoint than its home", func() error {
			is := c.at(other).copies.Checkpoints().Condition(id)
			if is.Differs > last {
				last = is.Differs
				return nil
			}
			c.fill(home, id, at, at+6)
			at += 6
			return fmt.Errorf("it is %+v", is)
		})
	}
	leads("a")
	differs("a", "b")
	r := c.checked("b", id, false, true)
	c.damages(r, "metadata Checkpoint true")
	c.whole("a", id, "b")
	filled(t, c.router("b", id), 26, 30)
	differs("a", "b") // so it is the home that is damaged
	if r := c.checked("a", id, false, true); r.Left() == 0 || !strings.Contains(r.Damage[0].Advice, "weir failover") {
		t.Errorf("at the home: %+v", r.Damage)
	}
	leads("b")
	differs("b", "a")
	if is := c.at("a").copies.Checkpoints().Condition(id); is.Alike != [32]byte{} {
		t.Errorf("a made %x as another home did", is.Alike)
	}
	if r := c.checked("a", id, false, true); r.Left() != 0 || len(r.Damage) == 0 {
		t.Errorf("at the former home: %+v", r.Damage)
	}
	c.damages(c.checked("a", id, false, false))
	c.damages(c.checked("b", id, false, false))
	if _, err := c.router("a", id).Lookup(t.Context(), volume.Request{}, volume.Root, "file 25"); err != nil {
		t.Error(err)
	}
}
