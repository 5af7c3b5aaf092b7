// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// unlisted is a store that does not list while it is told not to.
type unlisted struct {
	store.Store
	off *atomic.Bool
}

func (u unlisted) List(ctx context.Context, prefix string, fn func(store.Info) error) error {
	if u.off.Load() {
		return &store.Error{Op: "list", Store: "test", Err: store.ErrUnavailable}
	}
	return u.Store.List(ctx, prefix, fn)
}

// fill writes files whose content follows from their numbers, and ends segments in between.
func (c *cluster) fill(home, id string, from, to int) {
	c.t.Helper()
	r := c.router(home, id)
	cl := &client{name: fmt.Sprint("fill ", from)}
	for i := from; i < to; i++ {
		h := file(c.t.(*testing.T), r, cl, fmt.Sprint("file ", i))
		if _, err := r.Write(c.t.Context(), cl.next(), h, 0, block(i), true); err != nil {
			c.t.Fatal(err)
		}
		if i%3 == 0 {
			r.Copy().Replica.Roll()
		}
	}
}

func block(i int) []byte { return bytes.Repeat([]byte{byte(i), byte(i >> 8), 7}, 40<<10) }

// filled checks what fill wrote.
func filled(t *testing.T, r *routing.Router, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		a, err := r.Lookup(t.Context(), volume.Request{}, volume.Root, fmt.Sprint("file ", i))
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, len(block(i)))
		if n, _, err := r.Read(t.Context(), volume.Request{}, a.Handle, 0, p); err != nil || !bytes.Equal(p[:n], block(i)) {
			t.Fatalf("file %d: %d bytes, %v", i, n, err)
		}
	}
}

// checkpointed waits until the volume's copy at a site knows of a checkpoint after number.
func (c *cluster) checkpointed(site, id string, number uint64) (made engine.Checkpoints) {
	c.t.Helper()
	c.until("a checkpoint is made", func() (err error) {
		made, err = c.router(site, id).Copy().Engine.Checkpoints()
		if err == nil && made.Made.Number <= number {
			err = fmt.Errorf("%+v", made)
		}
		return err
	})
	return made
}

// lacking returns what the home says that the copy at a site is, and what it lacks.
func (c *cluster) lacking(home, id, site string) (r federation.ObservedReplica) {
	for _, r := range c.router(home, id).Copy().Replica.Lag() {
		if r.Site == site {
			return r
		}
	}
	return r
}

// TestANewCopyBeginsWithACheckpoint: it reads before it has what lies before the checkpoint, is no
// member until it has, and then keeps all alone what was written.
func TestANewCopyBeginsWithACheckpoint(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.due = checkpoints.Due{Bytes: 1 << 20, Shrunk: 1 << 40, Segments: 4, Grace: time.Hour}
	off := new(atomic.Bool)
	off.Store(true)
	c.store = func(site string, s store.Store) store.Store {
		if site == "c" {
			return unlisted{s, off}
		}
		return s
	}
	for _, s := range []string{"a", "b", "c"} {
		c.add(s)
	}
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	c.fill("a", id, 0, 20)
	first := c.checkpointed("a", id, 0)
	c.stop("a")
	c.start("a") // another epoch
	c.fill("a", id, 20, 30)
	c.checkpointed("a", id, first.Made.Number)
	c.fill("a", id, 30, 35)

	c.change(id, func(v *federation.Volume) { v.Spec.Replication.Copies, v.Sites = 3, []string{"a", "b", "c"} })
	c.until("c has a copy", func() error {
		if c.at("c").copies.Copy(id) == nil {
			return errors.New("none is open")
		}
		return nil
	})
	here := c.at("c").copies.Copy(id)
	filled(t, c.router("c", id), 0, 35)
	if n := here.Log.AbsentBytes(); n < 20*uint64(len(block(0)))/100 {
		t.Fatalf("c lacks %d bytes: it did not begin with a checkpoint", n)
	}
	c.until("the home says what the copy lacks", func() error {
		if is := c.lacking("a", id, "c"); is.State != federation.ReplicaJoining || is.LagBytes < int64(here.Log.AbsentBytes()) {
			return fmt.Errorf("it says %+v", is)
		}
		return nil
	})
	// It opens again as what it is.
	c.stop("c")
	c.start("c")
	c.until("c has its copy again", func() error {
		if c.at("c").copies.Copy(id) == nil {
			return errors.New("none is open")
		}
		return nil
	})
	filled(t, c.router("c", id), 0, 35)
	if n := c.at("c").copies.Copy(id).Log.AbsentBytes(); n == 0 {
		t.Error("after a restart it lacks nothing")
	}
	off.Store(false)
	c.whole("a", id, "c")
	if n := c.at("c").copies.Copy(id).Log.AbsentBytes(); n != 0 {
		t.Errorf("the home says that it has all, and it lacks %d bytes", n)
	}
	for _, s := range []string{"a", "b", "c"} {
		if n := c.at(s).copies.Checkpoints().Condition(id).Differs; n != 0 {
			t.Errorf("checkpoint %d at %s is not the home's", n, s)
		}
	}
	// All others go. A person makes it the home, of what only it has.
	c.change(id, func(v *federation.Volume) {
		v.Spec.Replication.Copies, v.Sites = 1, []string{"c"}
		v.Spec.Durability.Acknowledge, v.Spec.Durability.Sites = federation.AcknowledgeGateway, 0
	})
	c.members(id, "c")
	c.dropped("a", id)
	c.dropped("b", id)
	c.stop("a")
	c.stop("b")
	filled(t, c.router("c", id), 0, 35)
	made := c.checkpointed("c", id, 0)
	c.fill("c", id, 35, 50)
	c.checkpointed("c", id, made.Made.Number)
	filled(t, c.router("c", id), 0, 50)
}

// TestACheckpointThatCannotBeRead: the copy gets the whole log.
func TestACheckpointThatCannotBeRead(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	c.due = checkpoints.Due{Bytes: 1 << 20, Shrunk: 1 << 40, Segments: 4, Grace: time.Hour}
	c.stop("a")
	c.start("a")
	id := c.createAt("v", manifest("v", 1), []string{"a"})
	c.fill("a", id, 0, 20)
	c.checkpointed("a", id, 0)
	var gone []string
	if err := c.nodes["a"].store.List(t.Context(), id+"/c/", func(i store.Info) error {
		gone = append(gone, i.Name)
		return nil
	}); err != nil || len(gone) == 0 {
		t.Fatal(gone, err)
	}
	if err := c.nodes["a"].store.Delete(t.Context(), gone[0]); err != nil {
		t.Fatal(err)
	}
	c.change(id, func(v *federation.Volume) { v.Spec.Replication.Copies, v.Sites = 2, []string{"a", "b"} })
	c.whole("a", id, "b")
	filled(t, c.router("b", id), 0, 20)
	c.until("b knows of the checkpoint", func() error {
		_, err := c.at("b").copies.Newest(t.Context(), id)
		return err
	})
	if err := errors.Join(c.at("a").copies.Objects(t.Context(), id, gone[0], func([]byte) error { return nil })); err == nil {
		t.Error("an object that is gone was sent")
	}
}

// TestDamagedCheckpoint: what a store has damaged of a checkpoint is read from another copy by the
// next one, which is a change of it, and replaced: it does not stay for ever under its name.
func TestDamagedCheckpoint(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.due = checkpoints.Due{Bytes: 1 << 20, Shrunk: 1 << 40, Segments: 4, Grace: time.Hour, Every: 200 * time.Millisecond}
	c.add("a")
	c.add("b")
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	c.fill("a", id, 0, 30)
	made := c.checkpointed("b", id, 0)
	c.whole("a", id, "b")
	c.stop("b") // what it knows of the last one is gone
	s := c.nodes["b"].store
	objects := checkpoints.Objects(s, id)
	names := func() (names []string) {
		if err := s.List(t.Context(), id+"/c/", func(i store.Info) error { names = append(names, i.Name); return nil }); err != nil {
			t.Fatal(err)
		}
		return names
	}
	for _, name := range names() {
		b, err := objects.Get(t.Context(), name)
		if err == nil {
			b[len(b)/2] ^= 1
			err = s.Delete(t.Context(), name)
		}
		if err == nil {
			err = s.Put(t.Context(), name, int64(len(b)), bytes.NewReader(b))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	damaged := names()
	c.start("b")
	c.whole("a", id, "b")
	c.fill("a", id, 30, 40)
	c.checkpointed("b", id, made.Made.Number)
	written := 40
	c.within(5*hang, "a damaged chunk is whole again, or none is there any more", func() (err error) {
		c.fill("a", id, written, written+1) // changes come one upon the other, and are joined with older ones now and then
		written++
		gone := 0
		for _, name := range damaged {
			if _, err = objects.Get(t.Context(), name); err == nil {
				return nil
			} else if errors.Is(err, store.ErrNotExist) {
				gone++
			}
		}
		if gone == len(damaged) {
			return nil
		}
		return fmt.Errorf("%d of %d are gone: %w", gone, len(damaged), err)
	})
	filled(t, c.router("b", id), 0, written)
}

// TestCheckpointWithoutTheOneBefore: checkpoints are changes of earlier ones. When the store has
// lost that, the home asks for a whole one by itself, and a new copy begins with it.
func TestCheckpointWithoutTheOneBefore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.due = checkpoints.Due{Bytes: 1 << 20, Shrunk: 1 << 40, Segments: 4, Grace: time.Hour}
	c.add("a")
	id := c.createAt("v", manifest("v", 1), []string{"a"})
	c.fill("a", id, 0, 60)
	c.checkpointed("a", id, 0)
	c.stop("a") // what it knows of the last one is gone
	lost := 0
	s := c.nodes["a"].store
	var names []string
	for _, folder := range []string{"/c/", "/m/"} {
		if err := s.List(t.Context(), id+folder, func(i store.Info) error { names = append(names, i.Name); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range names {
		if err := s.Delete(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		lost++
	}
	c.start("a")
	made, err := c.router("a", id).Copy().Engine.Checkpoints()
	if err != nil || lost < 2 {
		t.Fatalf("%d objects are lost, %v", lost, err)
	}
	c.fill("a", id, 60, 70)
	c.until("another checkpoint is made, whole", func() error {
		now, err := c.router("a", id).Copy().Engine.Checkpoints()
		if err == nil && (now.Made.Number <= made.Made.Number || now.Asked.Whole != (now.Asked.Number == now.Made.Number)) {
			err = fmt.Errorf("%+v", now)
		}
		return err
	})
	c.add("b")
	c.change(id, func(v *federation.Volume) { v.Spec.Replication.Copies, v.Sites = 2, []string{"a", "b"} })
	c.until("b has all", func() error {
		is := c.at("b").copies.Copy(id)
		if r := c.lacking("a", id, "b"); is == nil || is.Log.AbsentBytes() > 0 || r.State == "" || r.LagBytes > 0 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	filled(t, c.router("b", id), 0, 70)
}
