// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/federation/etcd/etcdtest"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// watching is a gateway with a guard, which keeps an archive, and its watch.
func (w *world) watching(name, organization string) *etcd.Registry {
	w.Helper()
	guard := must[*federation.Guard](w)(federation.NewGuard(func() (federation.GuardState, error) { return federation.GuardState{}, nil },
		func(federation.GuardState) error { return nil }, memory.NewArchive()))
	creds := w.credentials(organization, name, pki.PartGateway, "g"+name)
	r := must[*etcd.Registry](w)(etcd.Open(etcd.Config{After: time.After, Endpoints: []string{"https://" + w.address}, Federation: "demo",
		TLS: creds.Client(pki.Expect{}, "127.0.0.1"), Guard: guard,
		Seal: signed.New(creds, nil, nil)}))
	ctx, cancel := context.WithCancel(context.Background())
	done, synced := make(chan struct{}), make(chan struct{}, 100)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = r.Watch(ctx, func(e federation.Event) error {
				if e.Kind == federation.KindSynced {
					synced <- struct{}{}
				}
				return nil
			})
		}
	}()
	w.Cleanup(func() { cancel(); <-done; _ = r.Close() })
	<-synced
	return r
}

// TestWentBack: gateways notice through a gatekeeper that the registry went back, say what they
// know, and believe it again when an administrator has brought it forward.
func TestWentBack(t *testing.T) {
	w := newConcealing(t)
	ctx := t.Context()
	v1 := volumeOf("v1", "one", "A", "a")
	v1.Grants = []federation.Grant{{Site: "b", Namespace: "lab", Access: federation.ReadOnly}} // c is not shown it
	must[federation.Revision](w)(w.pa.CreateVolume(ctx, v1, ringOf("v1", "a")))
	ctl := federation.Control{Volume: "v1", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
		History: []federation.EpochStart{{Epoch: 1}}}
	rev := must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", 0, ctl))
	dir := t.TempDir()
	snapshot := must[io.ReadCloser](w)(w.admin.Snapshot(ctx))
	file := must[*os.File](w)(os.Create(filepath.Join(dir, "registry.db")))
	_, err := io.Copy(file, snapshot)
	w.ok(errors.Join(err, snapshot.Close(), file.Close()))
	all := map[string]*etcd.Registry{"a": w.watching("a", "A"), "b": w.watching("b", "B"), "c": w.watching("c", "C")}
	// What changes after the backup: a volume's record, its keyring, a site's, and the home.
	v, at, err := w.pa.GetVolume(ctx, "v1")
	w.ok(err)
	v.Generation++
	must[federation.Revision](w)(w.pa.UpdateVolume(ctx, at, v))
	ring, ringAt, err := w.ga.GetKeyring(ctx, "v1")
	w.ok(err)
	ring.Generation, ring.Wrapped["c"] = 2, []byte("wrapped for c")
	must[federation.Revision](w)(w.ga.PutKeyring(ctx, ringAt, ring))
	moved := siteOf("c", "C")
	moved.Gateways[0].Addr = "127.0.0.1:7009"
	w.ok(w.gc.Register(ctx, moved))
	ctl.Epoch = 2
	ctl.Begin(federation.EpochStart{Epoch: 2})
	must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", rev, ctl))
	for name, r := range all {
		for { // until its archive has the new record
			w.ok(r.Tend(ctx, "g"+name, w.clock()))
			if c, _, err := r.GetControl(ctx, "v1"); err == nil && c.Epoch == 2 || name == "c" && errors.Is(err, federation.ErrNotFound) {
				break
			}
		}
		w.ok(r.Tend(ctx, "g"+name, w.clock()))
	}
	// It is restored from the backup, and is another registry then (ADR 16).
	w.etcd.Stop()
	data := filepath.Join(dir, "data")
	out, err := exec.Command(etcdtest.Program(t, "etcdutl"), "snapshot", "restore", file.Name(), "--data-dir", data, "--name", "test",
		"--initial-cluster", "test="+w.etcd.PeerURL, "--initial-advertise-peer-urls", w.etcd.PeerURL,
		"--initial-cluster-token", "another").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.etcd.RestartOn(data)
	for until := time.Now().Add(30 * time.Second); ; { // a hang guard
		said := 0
		for name, r := range all {
			_ = r.Tend(ctx, "g"+name, w.clock()) // until the gatekeeper listens again, an error
			if r.Trusted() != nil {
				said++
			}
		}
		rewind, err := w.admin.ReadRewind(ctx)
		if err == nil && said == len(all) && len(rewind.Notices) == len(all) && len(rewind.Missing()) == 0 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d refuse it, notices %+v, missing %v", said, rewind.Notices, rewind.Missing())
		}
	}
	if _, err := w.pa.CreateVolume(ctx, volumeOf("v2", "two", "A", "a"), ringOf("v2", "a")); !errors.Is(err, federation.ErrRewound) {
		t.Errorf("made while it is refused: %v", err)
	}
	rewind := must[federation.Rewind](w)(w.admin.ReadRewind(ctx))
	plan, missing, err := rewind.Plan()
	if err != nil || len(missing) > 0 || len(plan) != 3 || plan[0].Key != "control/v1" || plan[1].Key != "keyring/v1" ||
		plan[2].Key != "volume/v1" {
		t.Fatalf("plan %+v, missing %v, %v", plan, missing, err)
	}
	w.ok(w.admin.Reconcile(ctx, rewind, plan, federation.Reconciliation{ID: w.clock().UTC().Format("20060102T150405.000000000Z"),
		By: w.admin.id.String(), At: w.clock()}))
	for until := time.Now().Add(30 * time.Second); ; { // a hang guard
		trusted := 0
		for name, r := range all {
			w.ok(r.Tend(ctx, "g"+name, w.clock()))
			if r.Trusted() == nil {
				trusted++
			}
		}
		if trusted == len(all) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d believe it", trusted)
		}
	}
	if c, _, err := all["b"].GetControl(ctx, "v1"); err != nil || c.Epoch != 2 {
		t.Errorf("the record is of epoch %d, %v", c.Epoch, err)
	}
	if is, _, err := all["b"].GetVolume(ctx, "v1"); err != nil || is.Generation != v.Generation {
		t.Errorf("the volume is of generation %d, %v", is.Generation, err)
	}
	if is, _, err := all["b"].GetKeyring(ctx, "v1"); err != nil || is.Generation != 2 {
		t.Errorf("the keyring is of generation %d, %v", is.Generation, err)
	}
	w.ok(w.gc.Register(ctx, moved)) // as a gateway does then
	must[federation.Revision](w)(w.pa.CreateVolume(ctx, volumeOf("v2", "two", "A", "a"), ringOf("v2", "a")))
}

// TestForcedByATestimony: while the registry is refused, a gateway that may have a copy testifies
// an epoch that it begins by force, and no person said so. Nobody takes it, and no plan has it.
func TestForcedByATestimony(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	must[federation.Revision](w)(w.pa.CreateVolume(ctx, volumeOf("v1", "one", "A", "a", "b"), ringOf("v1", "a")))
	ctl := federation.Control{Volume: "v1", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
		History: []federation.EpochStart{{Epoch: 1}}}
	must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", 0, ctl))
	now, _, err := w.ga.GetControl(ctx, "v1")
	w.ok(err)
	a := w.watching("a", "A")
	taken := func(word string) federation.Control {
		next := now.Clone()
		next.Epoch, next.Home, next.Members = 2, member("b"), []federation.Member{member("b")}
		next.Begin(federation.EpochStart{Epoch: 2, Forced: true, Word: word})
		next.Succeed(&now)
		further := next.Clone()
		further.Succeed(&next)
		return further
	}
	said := signed.Takeover{Volume: "v1", Gateway: "gb", Epoch: 1, Change: now.Change}
	for name, x := range map[string]struct {
		is   federation.Control
		want uint64 // epoch
	}{"nobody said so": {taken(""), 1}, "a person of the host said so": {taken(w.pb.says(said)), 1},
		"its owner": {taken(w.pa.says(said)), 2}} {
		w.write(w.gb, "rewound/gb", federation.Notice{Gateway: "gb", Why: "a test", At: w.clock()})
		w.write(w.gb, "testimony/gb/control/v1", federation.Testimony{Gateway: "gb", Key: "control/v1", Revision: 1 << 30,
			Value: w.gb.forge("control/v1", x.is.Change, x.is)})
		if x.want == 1 { // what is taken stays
			w.ok(a.Tend(ctx, "ga", w.clock()))
			w.ok(a.Tend(ctx, "ga", w.clock()))
			if c, _, err := a.GetControl(ctx, "v1"); err != nil || c.Epoch != 1 {
				t.Errorf("%s: a gateway believes epoch %d (%v)", name, c.Epoch, err)
			}
		}
		rewind := must[federation.Rewind](w)(w.admin.ReadRewind(ctx))
		plan, _, err := rewind.Plan()
		w.ok(err)
		planned := uint64(1)
		for _, c := range plan {
			var is federation.Control
			if c.Key == "control/v1" && federation.Decode("control", "v1", c.Value, &is) == nil {
				planned = is.Epoch
			}
		}
		if planned != x.want {
			t.Errorf("%s: the plan has epoch %d, and not %d", name, planned, x.want)
		}
	}
}

// write puts a record as somebody with a program of his own does, with his signature.
func (w *world) write(o *one, key string, rec any) {
	w.Helper()
	value := must[[]byte](w)(federation.Encode(rec))
	value = must[[]byte](w)(signed.New(o.creds, nil, nil).Sign(key, value, w.plainly))
	_, err := o.raw.Txn(w.Context()).Then(clientv3.OpPut(prefix+key, string(value))).Commit()
	w.ok(err)
}
