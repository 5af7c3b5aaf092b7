// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd"
)

// TestRegistryOfBefore: a registry that programs of earlier releases wrote, to etcd itself, goes on
// behind a gatekeeper, also while some still write past it. Nothing is converted.
func TestRegistryOfBefore(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	before, err := etcd.Open(etcd.Config{After: time.After, Endpoints: []string{w.etcd.Endpoint}, Federation: "demo"})
	w.ok(err)
	defer func() { w.ok(before.Close()) }()
	made := func(uuid, name string) (federation.Volume, federation.Revision) {
		t.Helper()
		must[federation.Revision](w)(before.PutKeyring(ctx, 0, ringOf(uuid, "a"))) // it used to come first
		v := volumeOf(uuid, name, "A", "a", "b")
		v.OwnerSite, v.OwnerCluster = "a", "uid-a"
		return v, must[federation.Revision](w)(before.CreateVolume(ctx, v, federation.Keyring{}))
	}
	v, at := made("v1", "ns.one")
	ctl := federation.Control{Volume: "v1", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
		History: []federation.EpochStart{{Epoch: 1}}}
	rev := must[federation.Revision](w)(before.SwapControl(ctx, "v1", 0, ctl))
	w.ok(before.PutAdmission(ctx, federation.Admission{Volume: "v1", Site: "b", Client: "10.0.0.1", Access: federation.ReadWrite}))

	// A certificate of before has no part, and is told to be issued again.
	if _, err := w.old.Sites(ctx); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("a certificate of an earlier release reads: %v", err)
	}
	v.Generation++
	at = must[federation.Revision](w)(w.oa.UpdateVolume(ctx, at, v))
	ctl.Members = append(ctl.Members, member("b"))
	rev = must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", rev, ctl))
	// One that still goes past the gatekeeper, and one behind it, exclude each other.
	ctl.Epoch, ctl.Home = 2, member("b")
	ctl.Begin(federation.EpochStart{Epoch: 2})
	must[federation.Revision](w)(before.SwapControl(ctx, "v1", rev, ctl))
	if _, err := w.gb.SwapControl(ctx, "v1", rev, ctl); !errors.Is(err, federation.ErrConflict) {
		t.Errorf("two took the same epoch: %v", err)
	}
	ring, ringAt, err := w.gb.GetKeyring(ctx, "v1")
	w.ok(err)
	ring.Generation, ring.Wrapped["b"] = 2, []byte("wrapped for b")
	must[federation.Revision](w)(w.gb.PutKeyring(ctx, ringAt, ring))
	w.ok(w.pa.DeleteAdmission(ctx, "v1", "b", "10.0.0.1"))

	// A keyring whose volume was never made is replaced when it is.
	must[federation.Revision](w)(before.PutKeyring(ctx, 0, ringOf("v2", "c")))
	must[federation.Revision](w)(w.pa.CreateVolume(ctx, volumeOf("v2", "two", "A", "a"), ringOf("v2", "a")))
	if k, _, err := w.ga.GetKeyring(ctx, "v2"); err != nil || k.Wrapped["a"] == nil || k.Wrapped["c"] != nil {
		t.Errorf("the keyring is %v, %v", k, err)
	}
	// What an earlier release deleted without saying when it goes, gets a time.
	v.Deleted, v.DeletedAt = true, w.clock()
	at = must[federation.Revision](w)(before.UpdateVolume(ctx, at, v))
	v.PurgeAfter = w.clock().Add(federation.TrashTime)
	must[federation.Revision](w)(w.gc.UpdateVolume(ctx, at, v))
}
