// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/pki"
)

// TestRegistryOfBefore: a registry that programs of earlier releases wrote, to etcd itself, goes on
// behind a gatekeeper, also while some still write past it. Nothing is converted.
func TestRegistryOfBefore(t *testing.T) {
	w := newWorldOfBefore(t)
	ctx := t.Context()
	before, err := etcd.Open(etcd.Config{After: time.After, Endpoints: []string{w.etcd.Endpoint}, Federation: "demo"})
	w.ok(err)
	defer func() { w.ok(before.Close()) }()
	made := func(uuid, name string) (federation.Volume, federation.Revision) {
		t.Helper()
		must[federation.Revision](w)(before.PutKeyring(ctx, 0, ringOf(uuid, "b"))) // it used to come first
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
	ring.Generation, ring.Wrapped["a"] = 2, []byte("wrapped for a")
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

	// An administrator signs what has no signature, and the charter asks for one: all goes on. Then
	// nobody endorses anything any more.
	must[federation.Revision](w)(before.PutKeyring(ctx, 0, ringOf("v3", "a")))
	must[federation.Revision](w)(before.CreateVolume(ctx, volumeOf("v3", "three", "A", "a"), federation.Keyring{}))
	if err := w.ga.Endorse(ctx, "volume/v3"); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("a gateway endorses: %v", err)
	}
	keys := must[[]string](w)(w.admin.Unsigned(ctx))
	if len(keys) < 3 {
		t.Errorf("without a signature are %v", keys)
	}
	for _, k := range keys {
		w.ok(w.admin.Endorse(ctx, k))
	}
	w.signed()
	if keys := must[[]string](w)(w.admin.Unsigned(ctx)); len(keys) > 0 {
		t.Errorf("without a signature are still %v", keys)
	}
	r := w.reader("B", "b", "gb")
	for _, uuid := range []string{"v1", "v2", "v3"} {
		if _, _, err := r.GetVolume(ctx, uuid); err != nil {
			t.Error(err)
		}
		if _, _, err := r.GetKeyring(ctx, uuid); err != nil {
			t.Error(err)
		}
	}
	if ctl, _, err := r.GetControl(ctx, "v1"); err != nil || ctl.Home != member("b") {
		t.Errorf("%+v, %v", ctl, err)
	}
	if _, err := before.CreateVolume(ctx, volumeOf("v4", "four", "A", "a"), federation.Keyring{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.GetVolume(ctx, "v4"); !errors.Is(err, federation.ErrForged) {
		t.Errorf("written past the gatekeeper by an earlier release, it counts: %v", err)
	}
	w.pass(10 * time.Second)
	w.ok(w.admin.Endorse(ctx, "volume/v4")) // too late
	if _, _, err := r.GetVolume(ctx, "v4"); !errors.Is(err, federation.ErrForged) {
		t.Errorf("endorsed too late, it counts: %v", err)
	}
}

// TestLateCertificate: a process that began with a certificate of an earlier release goes on by
// itself when it has one that names its part.
func TestLateCertificate(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // guards against a hang only
	defer cancel()
	dir := t.TempDir()
	root := must[pki.Pair](w)(w.rig.ca.Pair())
	_, _, err := pki.Pair{Cert: root.Cert, Key: root.Key}.Write(dir, "ca")
	w.ok(err)
	issue := func(part pki.Part) {
		t.Helper()
		p := must[pki.Pair](w)(w.rig.ca.Issue(pki.Identity{Federation: "demo", Organization: "A", Site: "a", Gateway: "ga", Part: part},
			[]string{"127.0.0.1"}, time.Now(), time.Hour))
		for name, text := range map[string][]byte{"ga.crt": p.Cert, "ga.key": p.Key} {
			w.ok(os.WriteFile(filepath.Join(dir, name), text, 0o600))
		}
	}
	issue(pki.PartUnknown)
	creds := must[*pki.Credentials](w)(pki.LoadFiles(pki.Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "ga.crt"),
		Key: filepath.Join(dir, "ga.key")}, time.Now))
	r := must[*etcd.Registry](w)(etcd.Open(etcd.Config{After: time.After, Endpoints: []string{"https://" + w.address}, Federation: "demo",
		TLS: creds.Client(pki.Expect{}, "127.0.0.1")}))
	defer func() { w.ok(r.Close()) }()
	if _, err := r.Sites(ctx); !errors.Is(err, federation.ErrAccess) {
		t.Fatalf("a certificate without a part: %v", err)
	}
	issue(pki.PartGateway)
	for {
		_, err := r.Sites(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
