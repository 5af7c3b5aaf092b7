// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/encryption"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// under returns by number of the data key how many objects a site's store has that are sealed, also
// in part, with it.
func (o *overwritten) under(site string) map[uint32]int {
	o.c.t.Helper()
	out := map[uint32]int{}
	st := o.c.nodes[site].store
	keys := map[uint64]uint32{} // of segments, as the metadata have them
	copied := o.c.router(site, o.id).Copy()
	listed, err := copied.Engine.Segments()
	if err != nil {
		o.c.t.Fatal(err)
	}
	for _, s := range listed {
		keys[s.Seq] = s.Key
	}
	if err := st.List(o.c.t.Context(), o.id+"/", func(i store.Info) error {
		read := func(p []byte, off uint64) error { return st.GetRange(o.c.t.Context(), i.Name, int64(off), p) }
		if _, hash, err := pack.ParseName(i.Name); err == nil {
			index, err := pack.Open([16]byte(copied.Engine.ID()), hash, uint64(i.Size), read)
			if err != nil {
				return err
			}
			seen := map[uint32]bool{}
			for _, k := range index.Kept() {
				if len(k.Cuts) > 0 {
					seen[index.Key()] = true
				}
				if len(k.Cuts) < len(k.Blocks) {
					seen[keys[k.Seq]] = true
				}
			}
			for n := range seen {
				out[n]++
			}
			return nil
		}
		if _, _, _, err := segment.ParseName(i.Name); err == nil {
			b := make([]byte, segment.HeaderSize)
			if err := read(b, 0); err != nil {
				return err
			}
			h, err := segment.DecodeHeader(b)
			out[h.Key]++
			return err
		}
		if strings.Contains(i.Name, "/m/") || strings.Contains(i.Name, "/c/") {
			b := make([]byte, 16)
			if err := read(b, 0); err != nil {
				return err
			}
			out[uint32(b[12])<<24|uint32(b[13])<<16|uint32(b[14])<<8|uint32(b[15])]++
		}
		return nil
	}); err != nil && !errors.Is(err, store.ErrNotExist) && !errors.Is(err, os.ErrNotExist) {
		o.c.t.Fatal(err)
	}
	return out
}

// TestResealed: when the owner wants it, nothing that an older data key sealed stays in the stores
// of a volume, though nobody writes any more. All copies make the same; clients read what they
// wrote, also after the home has changed in the midst of it.
func TestResealed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.due = packsEarly
	for _, s := range []string{"a", "b", "c"} {
		c.add(s)
	}
	c.signed()
	id := c.createAt("v", rolling("v", 3), []string{"a", "b", "c"})
	c.members(id, "a", "b", "c")
	o := &overwritten{c: c, id: id, rng: rand.New(rand.NewPCG(6, 7)), calls: &client{name: "x"}}
	o.begin("a", 6)
	o.overwrite("a", 4<<20)
	says := func(p encryption.Policy) {
		t.Helper()
		c.change(id, func(v *federation.Volume) { v.Spec.Encryption = p })
	}
	anew := func(newest uint32, sites ...string) {
		t.Helper()
		for _, site := range sites {
			c.until("all is sealed anew at "+site, func() error {
				is := o.under(site)
				for n, objects := range is {
					if n < newest && objects > 0 {
						return fmt.Errorf("objects by data key: %v", is)
					}
				}
				if is[newest] == 0 {
					return fmt.Errorf("there is nothing: %v", is)
				}
				return nil
			})
			o.same(c.router(site, id), volume.Root, o.model)
			o.checked(site)
		}
	}
	// Without the word nothing is sealed anew.
	says(encryption.Policy{Rotation: 1})
	c.follows(id, 2, "a", "b", "c")
	o.overwrite("a", 1<<20)
	if is := o.under("a"); is[0] == 0 {
		t.Fatalf("objects by data key: %v", is)
	}
	says(encryption.Policy{Rotation: 1, Reseal: encryption.ResealRotation})
	anew(1, "a", "b", "c")

	// Another one follows, and the home goes meanwhile. Nobody writes.
	says(encryption.Policy{Rotation: 2, Reseal: encryption.ResealRotation})
	c.follows(id, 3, "a", "b", "c")
	c.stop("a")
	next := ""
	c.until("another home", func() error {
		for _, s := range []string{"b", "c"} {
			if copied := c.at(s).copies.Copy(id); copied != nil {
				if _, leads := copied.Replica.Leading(); leads && copied.MayServe() == nil {
					next = s
					return nil
				}
			}
		}
		return errors.New("there is none")
	})
	c.start("a")
	c.whole(next, id, "a")
	anew(2, "a", "b", "c")
	for _, s := range []string{"a", "b", "c"} {
		if n := c.at(s).copies.Checkpoints().Condition(id); n.Differs != 0 {
			t.Errorf("checkpoint %d at %s is not the home's", n.Differs, s)
		}
	}
}
