// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd/etcdtest"
	"github.com/weir-storage/weir/federation/federationtest"
	"github.com/weir-storage/weir/federation/internal/records"
)

func open(t *testing.T, cfg Config) *Registry {
	t.Helper()
	if cfg.Federation == "" {
		cfg.Federation = "test"
	}
	cfg.After = time.After
	r, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestSuite(t *testing.T) {
	server := etcdtest.Start(t, nil)
	var n atomic.Int64
	federationtest.Run(t, func(*testing.T) federationtest.Harness {
		name := fmt.Sprintf("f%d", n.Add(1))
		return federationtest.Harness{
			Open: func(t *testing.T, g *federation.Guard) federation.Registry {
				return open(t, Config{Endpoints: []string{server.Endpoint}, Federation: name, Guard: g})
			},
			Abandon: func(t *testing.T, r federation.Registry, _ string) {
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}

// A watch lives through a restart of the registry.
func TestWatchOverRestart(t *testing.T) {
	server := etcdtest.Start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	writer := open(t, Config{Endpoints: []string{server.Endpoint}})
	must(writer.Register(ctx, federationtest.Site("ams", "ams-1")))
	must(writer.Register(ctx, federationtest.Site("utr", "utr-1")))

	watcher := open(t, Config{Endpoints: []string{server.Endpoint}})
	events := make(chan federation.Event)
	go func() { _ = watcher.Watch(ctx, func(e federation.Event) error { events <- e; return nil }) }()
	next := func() federation.Event {
		t.Helper()
		select {
		case e := <-events:
			return e
		case <-ctx.Done():
			t.Fatal("no event came")
			panic("unreachable")
		}
	}
	for next().Kind != federation.KindSynced {
	}
	server.Stop()
	server.Restart()
	must(writer.RemoveSite(ctx, "ams"))
	if e := next(); e.Name != "ams" || !e.Deleted {
		t.Fatalf("told %+v, want that ams is gone", e)
	}
}

// follow reports a compacted revision as such; the mirror above it then lists anew (memory's test
// shows that).
func TestFollowCompacted(t *testing.T) {
	server := etcdtest.Start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for range 5 {
		if _, err := c.Put(ctx, "x", "y"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Compact(ctx, 5); err != nil {
		t.Fatal(err)
	}
	k := &kv{client: c, prefix: "/weir/test/", shakes: &handshakes{}, ctx: ctx}
	err = k.Follow(ctx, 1, func(federation.Head, []records.Pair) error { return nil })
	if !errors.Is(err, records.ErrCompacted) {
		t.Fatalf("error %v, want compacted", err)
	}
}

// Of a member that keeps silent, a read goes on to the next one.
func TestReadPassesASilentMember(t *testing.T) {
	silent, other := etcdtest.Start(t, nil), etcdtest.Start(t, nil)
	at := func(endpoints ...string) *Registry {
		return open(t, Config{Endpoints: endpoints, CallTimeout: 2*tryTime + 10*time.Second})
	}
	both := at(silent.Endpoint, other.Endpoint)
	// Reads go around: after some, both are connected.
	for volume, s := range map[string]*etcdtest.Server{"silent": silent, "other": other} {
		if _, err := at(s.Endpoint).SwapControl(t.Context(), volume, 0, federationtest.Control(volume, 1, 1)); err != nil {
			t.Fatal(err)
		}
		for err := federation.ErrNotFound; err != nil; {
			if _, _, err = both.GetControl(t.Context(), volume); err != nil && !errors.Is(err, federation.ErrNotFound) {
				t.Fatal(err)
			}
		}
	}
	silent.Pause()
	for range 4 { // some are sent to it
		if _, _, err := both.GetControl(t.Context(), "v"); !errors.Is(err, federation.ErrNotFound) {
			t.Errorf("error %v, want that there is none", err)
		}
	}
}

func TestDown(t *testing.T) {
	server := etcdtest.Start(t, nil)
	r := open(t, Config{Endpoints: []string{server.Endpoint}, CallTimeout: time.Second})
	rev, err := r.SwapControl(t.Context(), "v", 0, federationtest.Control("v", 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	server.Stop()
	_, _, err = r.GetControl(t.Context(), "v")
	if !errors.Is(err, federation.ErrUnavailable) || !strings.Contains(err.Error(), server.Endpoint) ||
		!strings.Contains(err.Error(), "running volumes go on") {
		t.Errorf("read: error %v, want unavailable, naming the endpoint", err)
	}
	if _, err := r.SwapControl(t.Context(), "v", rev, federationtest.Control("v", 2, 1)); !errors.Is(err, federation.ErrUnavailable) {
		t.Errorf("swap: error %v, want unavailable: its read goes first", err)
	}
	a := federation.Admission{Volume: "v", Site: "ams", Client: "10.0.0.1", Access: federation.ReadOnly}
	if err := r.PutAdmission(t.Context(), a); !errors.Is(err, federation.ErrUnknown) {
		t.Errorf("put: error %v, want unknown", err)
	}
	server.Restart()
	got, grev, err := r.GetControl(t.Context(), "v")
	for errors.Is(err, federation.ErrUnavailable) { // the connection waits a moment before it tries again
		got, grev, err = r.GetControl(t.Context(), "v")
	}
	if err != nil || grev != rev || got.Epoch != 1 {
		t.Errorf("after a restart: %+v at %d, %v", got, grev, err)
	}
}

// A heartbeat whose lease expired while the registry was gone comes back by itself.
func TestHeartbeatRegained(t *testing.T) {
	server := etcdtest.Start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := open(t, Config{Endpoints: []string{server.Endpoint}})
	h, err := r.Heartbeat(ctx, federation.Alive{Gateway: "ams-1", Site: "ams", Incarnation: "i"}, federationtest.TTL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	leases, err := c.Leases(ctx)
	if err != nil || len(leases.Leases) != 1 {
		t.Fatalf("leases %+v, %v", leases, err)
	}
	enough := errors.New("enough")
	gone := false
	err = r.Watch(ctx, func(e federation.Event) error {
		switch {
		case e.Kind == federation.KindSynced:
			_, err := c.Revoke(ctx, leases.Leases[0].ID)
			return err
		case e.Kind == federation.KindAlive && e.Deleted:
			gone = true
		case e.Kind == federation.KindAlive && gone:
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if err := h.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

// A heartbeat whose lease has expired when it is stopped leaves nothing behind, so that is no
// error.
func TestHeartbeatStoppedAfterItsEnd(t *testing.T) {
	server := etcdtest.Start(t, nil)
	r := open(t, Config{Endpoints: []string{server.Endpoint}})
	h, err := r.Heartbeat(t.Context(), federation.Alive{Gateway: "ams-1", Site: "ams", Incarnation: "i"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	b := h.(*beat)
	b.stop() // nothing regains it
	<-b.done
	if _, err := b.c.client.Revoke(t.Context(), b.lease); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A record of a later release is refused by name, and shown as unreadable, never as deleted.
func TestNewerRecord(t *testing.T) {
	server := etcdtest.Start(t, nil)
	ctx := t.Context()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Put(ctx, "/weir/test/control/v", `{"version":2,"record":{"volume":"v"}}`); err != nil {
		t.Fatal(err)
	}
	r := open(t, Config{Endpoints: []string{server.Endpoint}})
	_, _, err = r.GetControl(ctx, "v")
	if !errors.Is(err, federation.ErrVersion) || !strings.Contains(err.Error(), "version 2") {
		t.Fatalf("error %v, want that it is too new", err)
	}
	enough := errors.New("enough")
	err = r.Watch(ctx, func(e federation.Event) error {
		if e.Kind != federation.KindControl || e.Deleted || !errors.Is(e.Err, federation.ErrVersion) {
			t.Errorf("told %+v", e)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
}
