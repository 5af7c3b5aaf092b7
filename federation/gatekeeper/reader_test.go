// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/archive"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// reader is a gateway with an archive, which follows the registry.
type reader struct {
	*etcd.Registry
	w    *world
	name string
	log  *lines

	mu      sync.Mutex
	forged  map[federation.Kind]int
	told    []federation.Event
	synced  chan struct{}
	watched chan error
	sleep   context.CancelFunc
}

func (w *world) reader(organization, site, name string) *reader {
	w.Helper()
	creds := w.credentials(organization, site, pki.PartGateway, name)
	kept, err := archive.Open(vfs.Default, filepath.Join(w.TempDir(), "archive"), w.clock)
	w.ok(err)
	guard, err := federation.NewGuard(func() (s federation.GuardState, _ error) { return s, nil },
		func(federation.GuardState) error { return nil }, kept)
	w.ok(err)
	r := &reader{w: w, name: name, log: new(lines), forged: map[federation.Kind]int{}, synced: make(chan struct{}),
		watched: make(chan error, 1)}
	r.Registry, err = etcd.Open(etcd.Config{After: soon, Endpoints: []string{"https://" + w.address}, Federation: "demo",
		Guard: guard,
		TLS:   creds.Client(pki.Expect{Part: pki.PartRegistry}, "127.0.0.1"),
		Seal: signed.New(creds, slog.New(slog.NewTextHandler(r.log, nil)), func(k federation.Kind) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.forged[k]++
		})})
	w.ok(err)
	r.wake()
	w.Cleanup(func() {
		if r.sleep != nil {
			r.rest()
		}
		if err := errors.Join(r.Close(), kept.Close()); err != nil {
			w.Error(err)
		}
	})
	return r
}

// soon is a timer for who does not want to wait as long as a program does that lists anew.
func soon(d time.Duration) <-chan time.Time { return time.After(d / 20) }

// wake has the reader follow the registry, and returns when it has listed everything.
func (r *reader) wake() {
	ctx, cancel := context.WithCancel(context.Background())
	r.mu.Lock()
	r.sleep, r.synced = cancel, make(chan struct{})
	synced := r.synced
	r.mu.Unlock()
	go func() { r.watched <- r.Watch(ctx, r.hear) }()
	<-synced
}

// rest has it follow no more.
func (r *reader) rest() {
	r.sleep()
	r.sleep = nil
	if err := <-r.watched; err == nil {
		r.w.Error("a watch ended without a reason")
	}
}

func (r *reader) hear(e federation.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Kind == federation.KindSynced {
		select {
		case <-r.synced:
		default:
			close(r.synced)
		}
		return nil
	}
	r.told = append(r.told, e)
	return nil
}

// refusals is how many records of a kind did not count.
func (r *reader) refusals(k federation.Kind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forged[k]
}

// after waits until the reader has heard of all that there is, and returns what it was told since n
// events.
func (r *reader) after(n int) []federation.Event {
	r.w.Helper()
	// A watch that had to list anew tells in the order of keys: what it lists may come after the
	// first mark, and comes before the second.
	for range 2 {
		mark := federation.Lost{Site: "c", By: r.w.admin.id.String(), At: time.Now().UTC()}
		r.w.ok(r.w.admin.PutLost(r.w.Context(), mark))
		r.w.eventually("the reader hears of a mark", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return slices.ContainsFunc(r.told, func(e federation.Event) bool { return e.Lost != nil && e.Lost.At.Equal(mark.At) })
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.told[n:]), func(e federation.Event) bool { return e.Lost != nil })
}

func (r *reader) heard() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.told)
}

// forge makes a value that somebody signed who may sign whatever he likes with his certificate.
func (o *one) forge(key string, number uint64, record any) []byte {
	o.rig.Helper()
	text, err := json.Marshal(record)
	o.rig.ok(err)
	sum := sha256.Sum256(text)
	signature, err := o.creds.Sign(pki.Statement{Key: key, Number: number, Digest: sum[:]})
	o.rig.ok(err)
	is := map[string]any{"version": 1, "record": json.RawMessage(text), "signature": signature}
	if was := o.rig.plainly(key); signed.KindOf(key) == federation.KindKeyring && was != nil { // from which it says it grew
		is["because"] = json.RawMessage(was)
	}
	value, err := json.Marshal(is)
	o.rig.ok(err)
	return value
}

// later is the number of a write that comes after all that there is.
func (w *world) later() uint64 { return uint64(w.clock().Add(time.Minute).UnixMilli()) }

// readOne reads a record as its kind is read.
func readOne(ctx context.Context, o interface{ federation.Registry }, key string) (any, error) {
	_, name, _ := strings.Cut(key, "/")
	switch signed.KindOf(key) {
	case federation.KindVolume:
		v, _, err := o.GetVolume(ctx, name)
		return v, err
	case federation.KindControl:
		c, _, err := o.GetControl(ctx, name)
		return c, err
	case federation.KindKeyring:
		k, _, err := o.GetKeyring(ctx, name)
		return k, err
	case federation.KindSite:
		all, err := o.Sites(ctx)
		for _, s := range all {
			if s.Site.Name == name {
				return s.Site, err
			}
		}
		return nil, err
	}
	return nil, nil
}

// readAsBefore checks that a reader reads what there was.
func (w *world) readAsBefore(t *testing.T, r *reader, key string, was []byte) {
	t.Helper()
	got, err := readOne(t.Context(), r, key)
	if err != nil {
		t.Fatalf("the reader knows better: %v", err)
	}
	value := must[[]byte](w)(federation.Encode(got))
	if !signed.SameRecord(value, was) {
		t.Errorf("the reader reads %s, and there was %s", value, was)
	}
}
