// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/space"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// spaceAt asks a site's gateway what a volume takes, and checks that it is what the store lists.
func (c *cluster) spaceAt(site, id string) space.Report {
	c.t.Helper()
	conn := c.dialAs(pki.Identity{Federation: "test", Organization: "org-" + site, Site: site, Gateway: "x", Part: pki.PartPerson}, site)
	f := forwardpb.NewForwardClient(conn)
	list := func() (names string, a space.Amount) {
		if err := c.nodes[site].store.List(c.t.Context(), id+"/", func(i store.Info) error {
			names += i.Name + "\n"
			a.Objects++
			a.Bytes += i.Size
			return nil
		}); err != nil {
			c.t.Fatal(err)
		}
		return names, a
	}
	var r space.Report
	c.until("the store does not change while it is counted", func() error {
		before, there := list()
		reply, err := f.Space(c.t.Context(), &forwardpb.SpaceRequest{Volume: id})
		if err != nil {
			return err
		}
		r = space.Report{}
		if err := json.Unmarshal(reply.GetJson(), &r); err != nil {
			c.t.Fatal(err)
		}
		var sum space.Amount
		for _, p := range r.Store.Parts {
			if sum.Objects += p.Objects; p.Bytes < 0 || p.Objects < 0 {
				c.t.Fatalf("%+v", r.Store)
			}
			sum.Bytes += p.Bytes
		}
		if sum != r.Store.Amount {
			c.t.Fatalf("the parts have %+v: %+v", sum, r.Store)
		}
		after, _ := list()
		if after != before { // what was put after the list and before the metadata were read may seem to be missing
			return fmt.Errorf("it had\n%sand has\n%s", before, after)
		}
		if len(r.Store.Differs) > 0 {
			c.t.Fatalf("%+v", r.Store)
		}
		if sum != there {
			c.t.Fatalf("the store lists %+v: %+v", there, r.Store)
		}
		return nil
	})
	return r
}

// TestSpaceIsCounted: whatever happens to a volume, each byte in a site's store counts once, and
// what the gateway does not know is shown.
func TestSpaceIsCounted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.due = checkpoints.Due{Bytes: 1 << 20, Shrunk: 1 << 20, Segments: 4, Grace: time.Millisecond}
	c.add("a")
	c.add("b")
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	r, cl, ctx := c.router("a", id), &client{name: "x"}, t.Context()
	e := r.Copy().Engine
	rng := rand.New(rand.NewPCG(7, 7))
	was := map[space.Kind]bool{}
	files := map[string]volume.Handle{}
	var snaps []string
	var number uint64 // of the newest checkpoint that was waited for
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 150 {
		name := fmt.Sprint("file ", rng.IntN(12))
		switch h, there := files[name]; rng.IntN(12) {
		case 0:
			if there {
				_, err := r.Remove(ctx, cl.next(), volume.Root, name)
				must(err)
				delete(files, name)
			}
		case 1:
			snaps = append(snaps, fmt.Sprint("s", i))
			_, err := e.TakeSnapshot(ctx, volume.Request{}, snaps[len(snaps)-1])
			must(err)
		case 2:
			if len(snaps) > 0 {
				must(e.DropSnapshot(ctx, volume.Request{}, snaps[0]))
				snaps = snaps[1:]
			}
		case 3, 4:
			r.Copy().Replica.Roll()
		default:
			if !there {
				h = file(t, r, cl, name)
				files[name] = h
			}
			p := make([]byte, 1+rng.IntN(200<<10))
			for k := range p {
				p[k] = byte(rng.Uint32())
			}
			_, err := r.Write(ctx, cl.next(), h, uint64(rng.IntN(300<<10)), p, true)
			must(err)
		}
		if i%50 == 49 {
			r.Copy().Replica.Roll()
			number = c.checkpointed("a", id, number).Made.Number
		}
		if i%15 == 14 || i%50 == 49 {
			for _, site := range []string{"a", "b"} {
				for _, p := range c.spaceAt(site, id).Store.Parts {
					was[p.Kind] = was[p.Kind] || p.Bytes > 0
				}
			}
		}
	}
	for _, k := range []space.Kind{space.Live, space.Snapshots, space.Dead, space.Log, space.Checkpoints} {
		if !was[k] {
			t.Errorf("nothing was ever %s", k)
		}
	}

	// What nobody knows is shown by name.
	strays := []string{id + "/lost/one", fmt.Sprintf("%s/%016x-%s", id, 3, strings.Repeat("ab", 32)), id + "/c/" + strings.Repeat("cd", 32)}
	for _, name := range strays {
		must(c.nodes["b"].store.Put(ctx, name, 5, bytes.NewReader([]byte("stray"))))
	}
	c.until("the strays are orphans", func() error {
		got := c.spaceAt("b", id).Store
		for _, name := range strays[:2] { // the third goes with older checkpoints
			if !strings.Contains(strings.Join(got.Strays, "\n"), name) {
				return fmt.Errorf("orphans are %q, of %+v", got.Strays, got)
			}
		}
		return nil
	})
	for _, name := range strays {
		must(c.nodes["b"].store.Delete(ctx, name))
	}

	// Without files all is of the snapshot, and then nothing is.
	_, err := e.TakeSnapshot(ctx, volume.Request{}, "last")
	must(err)
	for name := range files {
		_, err := r.Remove(ctx, cl.next(), volume.Root, name)
		must(err)
	}
	c.until("only snapshots use blocks", func() error {
		r.Copy().Replica.Roll()
		if got := c.spaceAt("b", id).Store; got.Of(space.Live).Bytes > 0 || got.Of(space.Snapshots).Bytes < 1<<20 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	for _, name := range append(snaps, "last") {
		must(e.DropSnapshot(ctx, volume.Request{}, name))
	}
	c.until("nothing uses blocks", func() error {
		if got := c.spaceAt("b", id).Store; got.Of(space.Snapshots).Bytes > 0 || got.Of(space.Live).Bytes > 0 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	is, err := e.Checkpoints()
	must(err)
	for range 2 { // the next one may be placed already
		number = is.Placed.Number
		end := rarely(func(int) {
			file(t, r, cl, "brief") // the record after a segment places a checkpoint
			_, err := r.Remove(ctx, cl.next(), volume.Root, "brief")
			must(err)
			r.Copy().Replica.Roll()
		})
		c.until("a checkpoint is made", func() (err error) {
			end()
			if is, err = e.Checkpoints(); err == nil && is.Made.Number <= number {
				err = fmt.Errorf("%+v", is)
			}
			return err
		})
	}
	c.until("it all goes", func() error {
		if got := c.spaceAt("b", id).Store; got.Of(space.Dead).Bytes+got.Of(space.Condemned).Bytes > 1<<20 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})

	// A segment that was stored, and is gone, is told of.
	h := file(t, r, cl, "again")
	_, err = r.Write(ctx, cl.next(), h, 0, block(1), true)
	must(err)
	seq := r.Copy().Log.End().Seq
	r.Copy().Replica.Roll()
	conn := c.dialAs(pki.Identity{Federation: "test", Organization: "org-a", Site: "a", Gateway: "x", Part: pki.PartPerson}, "a")
	var stored log.SegmentInfo
	c.until("the segment is stored", func() error {
		if stored, _ = r.Copy().Log.Segment(seq); !stored.Uploaded {
			return fmt.Errorf("%+v", stored)
		}
		return nil
	})
	must(c.nodes["a"].store.Delete(ctx, stored.Name))
	reply, err := forwardpb.NewForwardClient(conn).Space(ctx, &forwardpb.SpaceRequest{Volume: id})
	must(err)
	var got space.Report
	must(json.Unmarshal(reply.GetJson(), &got))
	if len(got.Store.Differs) != 1 || !strings.Contains(got.Store.Differs[0], stored.Name) {
		t.Errorf("a segment is not there, and %q is told", got.Store.Differs)
	}

	for who, want := range map[string]codes.Code{"org-a": codes.OK, "org-z": codes.PermissionDenied} {
		conn := c.dialAs(pki.Identity{Federation: "test", Organization: who, Site: "a", Gateway: "x", Part: pki.PartPerson}, "a")
		if _, err := forwardpb.NewForwardClient(conn).Space(ctx, &forwardpb.SpaceRequest{Volume: id}); status.Code(err) != want {
			t.Errorf("%s is told: %v", who, err)
		}
	}
}
