// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/volume"
)

// Readers of a volume that is Bounded are answered by a copy that has no vote, also when all others
// are gone, as long as its state is not too old; and they see at once what they wrote themselves.
func TestBoundedVolume(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("slow", strings.Replace(manifest("slow", 2), "spec:\n", "spec:\n  consistency: {mode: Bounded, maxStaleness: 20s}\n", 1))
	a := c.router("a", id)
	voter, far := "b", "c" // unless c was sooner
	c.until("a and one other are members, and the third knows how old its state is", func() error {
		copied := c.at(far).copies.Copy(id)
		if copied == nil {
			return errors.New("no copy")
		}
		ctl := copied.Replica.Control()
		if ctl == nil || len(ctl.Members) != 2 || ctl.Home.Site != "a" {
			return fmt.Errorf("%+v", ctl)
		}
		if ctl.Members[0].Site == far || ctl.Members[1].Site == far {
			voter, far = far, voter
			return fmt.Errorf("%s votes", voter)
		}
		if _, ok := copied.Replica.Bounded(); !ok {
			return errors.New("it does not know")
		}
		return nil
	})
	at, cl := c.router(far, id), &client{name: "x"}
	f := file(t, a, &client{name: "y"}, "f")
	for i := range byte(20) { // its clients see what they wrote, and what they have seen
		if _, err := at.Write(within(t, hang), cl.next(), f, 0, []byte{i}, i%2 == 0); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1)
		if _, _, err := at.Read(within(t, hang), cl.next(), f, 0, p); err != nil || p[0] != i {
			t.Fatalf("after %d was written, %d is read, %v", i, p[0], err)
		}
		if attr, err := at.GetAttr(within(t, hang), volume.Request{}, f); err != nil || attr.Size != uint64(len(content)) {
			t.Fatalf("%+v, %v", attr, err)
		}
	}
	c.until("it has what is committed", func() error {
		pos, ok := c.at(far).copies.Copy(id).Replica.Bounded()
		if end := c.at("a").copies.Copy(id).Log.End(); !ok || pos.Less(end) {
			return fmt.Errorf("%v of %v", pos, end)
		}
		return nil
	})
	// It takes nothing in, for its pool is full. Its clients still do not see what was before.
	room := c.at(far).pools.Main().Room()
	full := room.Status()
	took := full.Limit - full.ReservedForDelete - full.Used
	if err := room.Reserve(took); err != nil {
		t.Fatal(err)
	}
	for i := range byte(3) {
		if _, err := at.Write(within(t, hang), cl.next(), f, 0, []byte{100 + i}, true); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1)
		if _, _, err := at.Read(within(t, hang), cl.next(), f, 0, p); err != nil || p[0] != 100+i {
			t.Fatalf("at a copy that lacks it, after %d was written, %d is read, %v", 100+i, p[0], err)
		}
	}
	room.Release(took)
	if _, err := at.Write(within(t, hang), cl.next(), f, 0, []byte{19}, true); err != nil {
		t.Fatal(err)
	}
	c.until("it has what is committed", func() error {
		pos, ok := c.at(far).copies.Copy(id).Replica.Bounded()
		if end := c.at("a").copies.Copy(id).Log.End(); !ok || pos.Less(end) {
			return fmt.Errorf("%v of %v", pos, end)
		}
		return nil
	})
	c.stop("a")
	c.stop(voter)
	for range 20 {
		p := make([]byte, 1)
		if _, _, err := at.Read(within(t, time.Second), cl.next(), f, 0, p); err != nil || p[0] != 19 {
			t.Fatalf("without the others %d is read, %v", p[0], err)
		}
	}
	c.change(id, func(v *federation.Volume) { v.Spec.Consistency.Mode = federation.ConsistencyStrong })
	c.until("Strong does not show an earlier state", func() error {
		if _, _, err := at.Read(within(t, 300*time.Millisecond), cl.next(), f, 0, make([]byte, 1)); err == nil {
			return errors.New("it is read")
		}
		return nil
	})
}
