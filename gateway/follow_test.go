// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/encryption"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/gateway/checkpoints"
)

// follows waits until a volume has so many data keys, which sites have, and no more.
func (c *cluster) follows(id string, n int, sites ...string) (r federation.Keyring) {
	c.t.Helper()
	c.until(fmt.Sprintf("there are %d data keys", n), func() error {
		if r = c.ring(id); len(r.Keys()) != n {
			return fmt.Errorf("there are %d", len(r.Keys()))
		}
		return nil
	})
	for _, s := range sites {
		if len(r.Newest()[s]) == 0 {
			c.t.Errorf("site %s has not the newest", s)
		}
	}
	return r
}

// TestKeysFollow: a data key follows for each greater word of the owner, also if the home dies
// meanwhile, and no second one for the same word; and by schedule. Nobody notices, everything stays
// readable, and what is written later is sealed with it.
func TestKeysFollow(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "c")
	c.signed()
	id := c.createAt("v", manifest("v", 2), []string{"a", "c"})
	a := c.router("a", id)
	c.members(id, "a", "c")
	stop := c.load(a, "f")
	says := func(p encryption.Policy) { c.change(id, func(v *federation.Volume) { v.Spec.Encryption = p }) }
	says(encryption.Policy{Rotation: 3})
	r := c.follows(id, 2, "a", "c")
	if l := r.Later[0]; l.Rotation != 3 || time.Since(l.At) > hang {
		t.Errorf("it is of %v, for %d", l.At, l.Rotation)
	}
	first, err := c.nodes["c"].key.Unwrap(r, "c")
	if err != nil {
		t.Fatal(err)
	}
	c.until("new data is sealed with it", func() error {
		if _, closed := c.sealedFor("a", id, map[uint32]segment.DataKey{0: first}); closed[1] < 10 {
			return fmt.Errorf("%v", closed)
		}
		return nil
	})
	names := stop()

	// The word comes when the home is away. The next home hears of it, and the former one, too.
	c.stop("a")
	says(encryption.Policy{Rotation: 4})
	next := c.router("c", id)
	has(t, next, names)
	if r = c.follows(id, 3, "a", "c"); r.Later[1].Rotation != 4 {
		t.Errorf("it followed for %d", r.Later[1].Rotation)
	}
	c.start("a")
	c.members(id, "a", "c")
	names = append(names, c.load(next, "g")()...)
	says(encryption.Policy{Rotation: 2}) // it went back: this is no other word
	c.until("the home has taken that up", func() error {
		v, _, err := c.reg.Client(nil).GetVolume(t.Context(), id)
		if err != nil {
			return err
		}
		return c.inForce(id, v.Generation)
	})
	c.stop("c")
	c.start("c")
	has(t, c.router("c", id), names)
	has(t, c.router("a", id), names)
	c.follows(id, 3, "a", "c")

	// By schedule, which is shorter here than a policy may have it.
	says(encryption.Policy{Rotation: 4, RotateEvery: quantity.Duration(time.Second)})
	c.until("two more follow", func() error {
		if r = c.ring(id); len(r.Keys()) < 5 {
			return fmt.Errorf("there are %d", len(r.Keys()))
		}
		return nil
	})
	says(encryption.Policy{Rotation: 4})
	for i, l := range r.Later {
		if i > 2 && (l.At.Sub(r.Later[i-1].At) < time.Second || l.Rotation != 4) {
			t.Errorf("key %d followed after %v, for %d", i+1, l.At.Sub(r.Later[i-1].At), l.Rotation)
		}
	}
	has(t, c.router("c", id), names)
}

// TestACheckpointHasTheKeyOfItsRecord: whoever makes a checkpoint seals it with the data key that
// the committed record names, whatever it uses itself by then.
func TestACheckpointHasTheKeyOfItsRecord(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.due = checkpoints.Due{Bytes: 1 << 40, Shrunk: 1 << 40, Segments: 1 << 40, Grace: time.Hour}
	c.add("a")
	c.signed()
	id := c.createAt("v", manifest("v", 1), []string{"a"})
	r := c.router("a", id)
	c.fill("a", id, 0, 4)
	c.change(id, func(v *federation.Volume) { v.Spec.Encryption.Rotation = 1 })
	c.follows(id, 2, "a")
	cp := r.Copy()
	c.until("the home uses it", func() error {
		if n, _ := cp.Keys().Newest(); n != 1 {
			return errors.New("it does not")
		}
		return nil
	})
	if err := cp.Engine.AskCheckpoint(t.Context(), 0, true); err != nil {
		t.Fatal(err)
	}
	cp.Replica.Roll()
	c.fill("a", id, 4, 8)
	made := c.checkpointed("a", id, 0).Made
	m, err := checkpoint.Open(t.Context(), segment.VolumeID(uuid.MustParse(id)), made.Hash, cp.Keys().Get,
		checkpoints.Objects(c.nodes["a"].store, id))
	if err != nil || m.Key != 0 {
		t.Fatalf("it cannot be opened: %v", err)
	}
}
