// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
)

func member(site string) federation.Member {
	return federation.Member{Gateway: "g" + site, Site: site, Incarnation: "i", Log: "l"}
}

func volumeOf(uuid, name, owner string, sites ...string) federation.Volume {
	return federation.Volume{UUID: uuid, Name: name, Owner: owner, Generation: 1, Sites: sites, Spec: federation.VolumeSpec{Size: 1 << 30}}
}

func ringOf(uuid string, sites ...string) federation.Keyring {
	k := federation.Keyring{Volume: uuid, Generation: 1, Wrapped: map[string][]byte{}}
	for _, s := range sites {
		k.Wrapped[s] = []byte("wrapped for " + s)
	}
	return k
}

// A volume's whole life goes through a gatekeeper, with the programs' own calls, each by whom it is
// for; the one writer of each record is not in the way of another.
func TestLife(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	beat := must[federation.Heartbeat](w)(w.ga.Heartbeat(ctx, federation.Alive{Gateway: "ga", Site: "a", Incarnation: "i"}, 5*time.Second))
	if all := must[[]federation.SiteStatus](w)(w.pb.Sites(ctx)); len(all) != 3 || !all[0].Alive["ga"] {
		t.Fatalf("a person reads %+v", all)
	}
	w.ok(beat.Stop(ctx))

	// A person's volume, and an operator's.
	must[federation.Revision](w)(w.pa.CreateVolume(ctx, volumeOf("v1", "one", "A", "a", "b"), ringOf("v1", "a", "b")))
	owned := volumeOf("v2", "ns.two", "A", "a", "b")
	owned.OwnerSite, owned.OwnerCluster = "a", "uid-a"
	at := must[federation.Revision](w)(w.oa.CreateVolume(ctx, owned, ringOf("v2", "a", "c")))
	if _, err := w.oa.CreateVolume(ctx, owned, ringOf("v2", "a")); !errors.Is(err, federation.ErrConflict) {
		t.Errorf("made again: %v", err)
	}
	owned.Grants = []federation.Grant{{Site: "b", Namespace: "lab", Access: federation.ReadOnly}}
	owned.Generation++
	owned.Sites = []string{"a", "b", "c"}
	at = must[federation.Revision](w)(w.oa.UpdateVolume(ctx, at, owned))

	// Its home begins, takes a member in, and that takes over without it.
	ctl := federation.Control{Volume: "v2", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
		History: []federation.EpochStart{{Epoch: 1}}}
	rev := must[federation.Revision](w)(w.ga.SwapControl(ctx, "v2", 0, ctl))
	if _, err := w.gb.SwapControl(ctx, "v2", 0, ctl); !errors.Is(err, federation.ErrConflict) {
		t.Errorf("who comes late is not told so: %v", err)
	}
	ctl.Members = append(ctl.Members, member("b"))
	rev = must[federation.Revision](w)(w.ga.SwapControl(ctx, "v2", rev, ctl))
	ctl.Epoch, ctl.Home, ctl.Members = 2, member("b"), []federation.Member{member("b")}
	ctl.Begin(federation.EpochStart{Epoch: 2, Start: federation.Position{Seq: 1, Off: 9}})
	rev = must[federation.Revision](w)(w.gb.SwapControl(ctx, "v2", rev, ctl))
	ctl.Epoch, ctl.Home, ctl.Members = 3, member("c"), []federation.Member{member("c")}
	ctl.Begin(federation.EpochStart{Epoch: 3, Forced: true,
		Word: w.pa.says(signed.Takeover{Volume: "v2", Gateway: "gc", Epoch: 2, Change: 3})})
	must[federation.Revision](w)(w.gc.SwapControl(ctx, "v2", rev, ctl))

	// The home wraps the key for the others.
	ring, at2, err := w.gc.GetKeyring(ctx, "v2")
	w.ok(err)
	ring.Generation, ring.Wrapped["b"] = 2, []byte("wrapped for b")
	must[federation.Revision](w)(w.gc.PutKeyring(ctx, at2, ring))

	// What is not there may be deleted by anybody.
	w.ok(w.ob.DeleteClaim(ctx, "v2", "a", "lab", "nobody"))
	w.ok(w.cb.DeleteAttachment(ctx, "a", "nothing", "nobody"))

	// Who uses it.
	claim := federation.Claim{Volume: "v2", Site: "b", Namespace: "lab", Name: "two", Kind: federation.ClaimGeoVolume,
		Access: federation.ReadOnly}
	w.ok(w.ob.PutClaim(ctx, claim))
	w.ok(w.cb.PutAttachment(ctx, federation.Attachment{Volume: "v2", Site: "b", Node: "n", Access: federation.ReadOnly}))
	w.ok(w.gb.PutAdmission(ctx, federation.Admission{Volume: "v2", Site: "b", Client: "10.0.0.1", Access: federation.ReadOnly, Node: "n"}))
	w.ok(w.ca.PutAttachment(ctx, federation.Attachment{Volume: "v2", Site: "a", Node: "n", Access: federation.ReadWrite}))
	w.ok(w.ga.PutAdmission(ctx, federation.Admission{Volume: "v2", Site: "a", Client: "10.0.0.1", Access: federation.ReadWrite, Node: "n"}))
	w.ok(w.pa.PutAdmission(ctx, federation.Admission{Volume: "v1", Site: "b", Client: "10.0.0.2", Access: federation.ReadWrite}))
	w.ok(w.gb.PutObserved(ctx, federation.Observed{Volume: "v2", Gateway: "gb", Home: "gc"}))
	w.ok(w.gb.DeleteAdmission(ctx, "v2", "b", "10.0.0.1"))
	w.ok(w.cb.DeleteAttachment(ctx, "b", "v2", "n"))
	w.ok(w.ob.DeleteClaim(ctx, "v2", "b", "lab", "two"))
	w.ok(w.ob.PutClaim(ctx, claim))

	// It is deleted, and any gateway purges it when its time is over, with what others wrote.
	owned.Deleted, owned.DeletedAt, owned.PurgeAfter = true, w.clock(), w.clock().Add(time.Hour)
	at = must[federation.Revision](w)(w.oa.UpdateVolume(ctx, at, owned))
	p := federation.Purge{Volume: "v2", Name: "ns.two", At: w.clock(), Size: 1 << 30, Sites: owned.Sites, Pending: []string{"ga",
		"gb", "gc"}}
	if err := w.gc.PurgeVolume(ctx, at, p); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("purged before its time: %v", err)
	}
	w.pass(2 * time.Hour)
	p.At = w.clock()
	w.ok(w.gc.PurgeVolume(ctx, at, p))
	w.ok(w.gb.LeavePurge(ctx, "v2", "gb"))
	w.ok(w.pa.LeavePurge(ctx, "v2", "ga"))
	w.ok(w.gc.LeavePurge(ctx, "v2", "gc"))
	if err := w.gb.DeletePurge(ctx, "v2"); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("forgotten at once: %v", err)
	}
	w.pass(federation.PurgeKept)
	w.ok(w.gb.DeletePurge(ctx, "v2"))

	// A site is lost, found, and removed with its gateway.
	w.ok(w.pb.PutLost(ctx, federation.Lost{Site: "b", By: w.pb.id.String()}))
	w.ok(w.pb.DeleteLost(ctx, "b"))
	w.ok(w.pb.RemoveGateway(ctx, "b", "gb"))
	w.ok(w.admin.RemoveSite(ctx, "c"))
	if all := must[[]federation.SiteStatus](w)(w.ga.Sites(ctx)); len(all) != 2 || len(all[1].Site.Gateways) != 0 {
		t.Errorf("after sites were removed: %+v", all)
	}
	if said := w.log.last(); !strings.Contains(said, "audit=asked") || !strings.Contains(said, "-site/c -gateway/gc") {
		t.Errorf("what a person asked for is not in the audit: %s", said)
	}
	snapshot, err := w.admin.Snapshot(ctx)
	w.ok(err)
	w.ok(snapshot.Close())
}

// While a gateway says that the registry went back, an administrator brings it forward.
func TestReconciled(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	must[federation.Revision](w)(w.pa.CreateVolume(ctx, volumeOf("v1", "one", "A", "a"), ringOf("v1", "a")))
	notice := federation.Notice{Gateway: "gb", Why: "it went back", Complete: true}
	lost := w.pb.value("volume/v9", volumeOf("v9", "nine", "B", "b"))
	said := federation.Testimony{Gateway: "gb", Key: "volume/v9", Value: lost, Revision: 5}
	if err := w.gb.put("rewound/gb", notice, "testimony/gb/volume/v9", said); err != nil {
		t.Fatal(err)
	}
	for i := range 70 {
		c := federation.Control{Volume: fmt.Sprint("r", i), Epoch: 1, Home: member("b"), Members: []federation.Member{member("b")},
			History: []federation.EpochStart{{Epoch: 1}}}
		c.Succeed(nil)
		k := "control/" + c.Volume
		value := w.gb.value(k, c)
		if err := w.gb.put("testimony/gb/"+k, federation.Testimony{Gateway: "gb", Key: k, Value: value, Revision: 5}); err != nil {
			t.Fatal(err)
		}
	}
	v := volumeOf("v8", "eight", "A", "a")
	if _, err := w.pa.CreateVolume(ctx, v, ringOf("v8", "a")); !errors.Is(err, federation.ErrRewound) {
		t.Errorf("made while the registry is refused: %v", err)
	}
	if err := w.pa.put("admission/a/v1/10.0.0.1", federation.Admission{Volume: "v1", Site: "a", Client: "10.0.0.1",
		Access: federation.ReadOnly}); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("who does not look whether the registry is refused changes it: %v", err)
	}
	rewind := must[federation.Rewind](w)(w.admin.ReadRewind(ctx))
	plan, _, err := rewind.Plan()
	w.ok(err)
	last := federation.Reconciliation{ID: "1", By: w.pb.id.String(), At: w.clock()}
	if err := w.pb.Reconcile(ctx, rewind, plan, last); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("a person reconciles: %v", err)
	}
	last.By = w.admin.id.String()
	w.ok(w.admin.Reconcile(ctx, rewind, plan, last))
	if _, _, err := w.gb.GetVolume(ctx, "v9"); err != nil {
		t.Errorf("it was not brought forward: %v", err)
	}
	for i := range 70 { // more than one request has
		c, err := control(w.ga, fmt.Sprint("r", i))
		if err != nil || c.Epoch != 1 {
			t.Fatalf("control record %d: %+v, %v", i, c, err)
		}
	}
	if err := w.admin.put("volume/v9", lost); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("an administrator writes what is not his, when nothing went back: %v", err)
	}
}

// A gatekeeper whose etcd is away does not listen, and listens again when it is back.
func TestEtcdIsAway(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.etcd.Stop()
	for {
		if _, err := w.pa.Sites(ctx); errors.Is(err, federation.ErrUnavailable) {
			break
		}
	}
	w.etcd.Restart()
	for {
		all, err := w.pa.Sites(ctx)
		if err == nil && len(all) == 3 {
			return
		}
		if err != nil && !errors.Is(err, federation.ErrUnavailable) {
			t.Fatal(err)
		}
	}
}

// TestRace: what a change is judged by may change before it is applied: it is then judged anew.
func TestRace(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	v := volumeOf("v1", "one", "A", "a")
	v.Grants = []federation.Grant{{Site: "b", Namespace: "lab", Access: federation.ReadWrite}}
	at := must[federation.Revision](w)(w.pa.CreateVolume(ctx, v, ringOf("v1", "a")))
	claim := federation.Claim{Volume: "v1", Site: "b", Namespace: "lab", Name: "x", Kind: federation.ClaimGeoVolume,
		Access: federation.ReadOnly}
	between := func(f func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.between = f
	}
	between(func() {
		v.Grants[0].Access = federation.ReadOnly
		at = must[federation.Revision](w)(w.pa.UpdateVolume(ctx, at, v))
	})
	w.ok(w.ob.PutClaim(ctx, claim)) // it is still granted
	between(func() {
		v.Grants = nil
		at = must[federation.Revision](w)(w.pa.UpdateVolume(ctx, at, v))
	})
	if err := w.ob.PutClaim(ctx, claim); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("claimed after the grant was taken back: %v", err)
	}
	// A condition of the asker's own is told from that.
	between(func() {
		v.Generation++
		must[federation.Revision](w)(w.pa.UpdateVolume(ctx, at, v))
	})
	next := v
	next.Generation += 2
	if _, err := w.pa.UpdateVolume(ctx, at, next); !errors.Is(err, federation.ErrConflict) {
		t.Errorf("written over another's change: %v", err)
	}
}

func control(o *one, volume string) (federation.Control, error) {
	c, _, err := o.GetControl(o.rig.Context(), volume)
	return c, err
}
