// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

// A gateway that slept while much happened believes what it finds, and puts nothing back.
func TestReaderThatSlept(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	gc2 := w.as("C", "c", pki.PartGateway, "gc2")
	second := federation.Gateway{Name: "gc2", Addr: "127.0.0.1:7002", Incarnation: "i"}
	w.ok(gc2.Register(ctx, federation.Site{Name: "c", Organization: "C", Gateways: []federation.Gateway{second}}))
	carol, bob := w.as("C", "c", pki.PartPerson, "carol"), w.pb
	v := volumeOf("v1", "one", "A", "a", "b")
	at := must[federation.Revision](w)(w.pa.CreateVolume(ctx, v, ringOf("v1", "a")))
	ctl := federation.Control{Volume: "v1", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
		History: []federation.EpochStart{{Epoch: 1}}}
	rev := must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", 0, ctl))
	trash := volumeOf("v2", "two", "A", "a")
	trashAt := must[federation.Revision](w)(w.pa.CreateVolume(ctx, trash, ringOf("v2", "a")))
	r := w.reader("A", "a", "ga")
	r.rest()
	w.pass(time.Minute)

	// A gateway changes its entry, and a person takes another out.
	moved := siteOf("c", "C")
	moved.Gateways[0].Addr = "127.0.0.1:7009"
	w.ok(w.gc.Register(ctx, moved))
	w.ok(carol.RemoveGateway(ctx, "c", "gc2"))
	// A site is removed, and comes again.
	w.ok(bob.RemoveSite(ctx, "b"))
	w.pass(time.Minute)
	w.ok(w.gb.Register(ctx, siteOf("b", "B")))
	w.ok(w.ob.Register(ctx, federation.Site{Name: "b", Organization: "B", Region: "rb", Cluster: "uid-b"}))
	// The home adds a wrap, b becomes home, and is to leave.
	ring, ringAt, err := w.ga.GetKeyring(ctx, "v1")
	w.ok(err)
	ring.Generation, ring.Wrapped["b"] = 2, []byte("wrapped for b")
	ringAt = must[federation.Revision](w)(w.ga.PutKeyring(ctx, ringAt, ring))
	ctl.Members = append(ctl.Members, member("b"))
	rev = must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", rev, ctl))
	ctl.Epoch, ctl.Home = 2, member("b")
	ctl.Begin(federation.EpochStart{Epoch: 2})
	must[federation.Revision](w)(w.gb.SwapControl(ctx, "v1", rev, ctl))
	ring.Generation, ring.Later = 3, []federation.LaterKey{{At: w.clock().UTC(), Wrapped: map[string][]byte{"b": {1}}}}
	must[federation.Revision](w)(w.gb.PutKeyring(ctx, ringAt, ring))
	// It is given away twice.
	v.Sites, v.Generation = []string{"b", "c"}, 2
	lends := siteOf("c", "C")
	lends.Gateways[0].Addr, lends.Lends = "127.0.0.1:7009", []string{"A", "B"}
	w.ok(w.gc.Register(ctx, lends))
	at = must[federation.Revision](w)(w.pa.UpdateVolume(ctx, at, v))
	v.Owner, v.OwnerSite, v.OwnerCluster = "B", "b", "uid-b"
	at = must[federation.Revision](w)(w.pa.UpdateVolume(ctx, at, v))
	v.Owner, v.OwnerSite, v.OwnerCluster = "C", "", ""
	must[federation.Revision](w)(bob.UpdateVolume(ctx, at, v))
	// Another is deleted, and purged.
	trash.Deleted, trash.DeletedAt, trash.PurgeAfter = true, w.clock(), w.clock().Add(time.Minute)
	trashAt = must[federation.Revision](w)(w.pa.UpdateVolume(ctx, trashAt, trash))
	w.pass(2 * time.Minute)
	w.ok(w.gb.PurgeVolume(ctx, trashAt, federation.Purge{Volume: "v2", Name: "two", At: w.clock(), Size: trash.Spec.Size,
		Sites: trash.Sites, Pending: []string{"ga"}}))

	keys := []string{"site/b", "site/c", "volume/v1", "control/v1", "keyring/v1", "purged/v2"}
	var was [][]byte
	for _, k := range keys {
		was = append(was, w.plainly(k))
	}
	r.wake()
	for range 2 {
		w.pass(5 * time.Second)
		w.ok(r.Tend(ctx, "ga", w.clock()))
	}
	r.after(0)
	for i, k := range keys {
		if is := w.plainly(k); !bytes.Equal(is, was[i]) {
			t.Errorf("%s was put back: %s, and it was %s", k, is, was[i])
		}
	}
	r.mu.Lock()
	if len(r.forged) > 0 {
		t.Errorf("refused: %v", r.forged)
	}
	r.mu.Unlock()
	if c, _, err := r.GetControl(ctx, "v1"); err != nil || c.Home != member("b") {
		t.Errorf("%+v, %v", c, err)
	}
	if is, _, err := r.GetVolume(ctx, "v1"); err != nil || is.Owner != "C" {
		t.Errorf("%+v, %v", is, err)
	}
	// Nobody else puts back what was.
	for name, value := range map[string][]byte{"volume/v1": was[2], "control/v1": was[3]} {
		if err := w.gc.put(name, value); err == nil {
			t.Errorf("%s is put over itself", name)
		}
	}
}
