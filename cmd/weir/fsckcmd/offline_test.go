// SPDX-License-Identifier: Apache-2.0

package fsckcmd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	pooldir "github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/journal"
	storedir "github.com/weir-storage/weir/store/dir"
	"github.com/weir-storage/weir/volume"
)

const testID = "3f9c02d7-0000-4000-8000-000000000001"

// alone is the journal of a home without other members.
type alone struct{ log *log.Log }

var _ journal.Journal = alone{}

func (alone) Ready(context.Context) error                       { return nil }
func (alone) SealAhead([]segment.Block)                         {}
func (alone) WaitKnown(context.Context, segment.Position) error { return nil }
func (alone) WaitRoom(context.Context) error                    { return nil }
func (alone) MayServe() error                                   { return nil }
func (alone) Bounded() (pos segment.Position, ok bool)          { return pos, false }
func (j alone) WaitCommitted(ctx context.Context, pos segment.Position) error {
	return j.log.Wait(ctx, pos)
}

func (j alone) Append(_ context.Context, rec *segment.Record) (segment.Position, error) {
	end, err := j.log.Append(rec)
	if err == nil {
		j.log.Sync(end)
	}
	return end, err
}

func (j alone) ReadBlocks(ctx context.Context, refs []segment.BlockRef) ([][]byte, error) {
	return j.log.ReadBlocks(ctx, refs)
}

// site is the folder of a site whose gateway is stopped: a pool, and a store with all its segments.
type site struct {
	*testing.T
	dir string
	ids volume.ID
}

func (s *site) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// segment is a segment's file on the pool, or in the store.
func (s *site) segment(folder string, seq int) string {
	s.Helper()
	pattern := s.path(filepath.Join("objects", testID, fmt.Sprintf("%016x-*", seq)))
	if folder == "pool" {
		pattern = s.path(filepath.Join("pool", "volumes", testID, fmt.Sprintf("%016x.seg", seq)))
	}
	all, err := filepath.Glob(pattern)
	if err != nil || len(all) != 1 {
		s.Fatalf("%s is %q, %v", pattern, all, err)
	}
	return all[0]
}

// flip damages a byte in the middle of a segment. Called again, it is whole again.
func (s *site) flip(folder string, seq int) {
	s.Helper()
	path := s.segment(folder, seq)
	b, err := os.ReadFile(path)
	s.ok(err)
	b[len(b)/2] ^= 1
	s.ok(errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, b, 0o600)))
}

// newSite writes six files, each into a segment of its own.
func newSite(t *testing.T, key segment.DataKey) *site {
	s := &site{T: t, dir: t.TempDir(), ids: volume.ID(uuid.MustParse(testID))}
	ctx := t.Context()
	pool, err := pooldir.Open(pooldir.Config{Path: s.path("pool"), Gateway: "g", Limit: 1 << 30, Random: rand.Reader})
	s.ok(err)
	dir, err := pool.Volume(testID)
	s.ok(err)
	e, err := engine.Open(engine.Config{ID: s.ids, FS: vfs.Default, Dir: filepath.Join(dir.Path(), "meta"), DataKey: key, Now: time.Now,
		Clock: clockwork.NewRealClock(), Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler)})
	s.ok(err)
	l, err := log.Open(log.Config{Dir: dir, Room: pool.Room(), Volume: segment.VolumeID(s.ids), DataKey: key, Keys: segment.NewKeys(key),
		Rand: rand.Reader, Now: time.Now})
	s.ok(err)
	l.ShowTo(e)
	e.KnowSegments(checkpoints.ClosedOf(l))
	_, err = l.BeginEpoch(1)
	s.ok(err)
	s.ok(l.Replay(ctx, log.Position{}, func(en log.Entry) error { return e.Ingest([]journal.Entry{en}) }))
	s.ok(l.Wait(ctx, l.End()))
	e.Committed(l.End())
	l.OnDurable(func(pos segment.Position, err error) {
		if err == nil {
			e.Committed(pos)
		}
	})
	e.Attach(alone{l})
	s.ok(e.Lead(ctx, 1))
	for i := range 6 {
		made, err := e.Create(ctx, volume.Request{}, volume.Root, fmt.Sprint("file ", i+1),
			volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
		s.ok(err)
		p := make([]byte, 256<<10)
		_, _ = mathrand.NewChaCha8([32]byte{byte(i)}).Read(p)
		_, err = e.Write(ctx, volume.Request{}, made.Attr.Handle, 0, p, true)
		s.ok(err)
		s.ok(e.WaitApplied(ctx, l.End()))
		s.ok(l.Roll())
	}
	s.ok(l.Wait(ctx, l.End()))
	to, err := storedir.Open(s.path("objects"))
	s.ok(err)
	for _, info := range l.Segments() {
		b := make([]byte, info.Len)
		_, err := l.ReadSegmentFile(info.Seq, b, 0)
		s.ok(err)
		s.ok(to.Put(ctx, info.Name, int64(len(b)), bytes.NewReader(b)))
		s.ok(l.MarkStored(info.Name))
	}
	l.NoteCommitted(l.End())
	s.ok(l.SyncWatermark())
	s.ok(errors.Join(e.Close(), l.Close(), pool.Close()))
	return s
}

// TestOffline: a copy on a pool, and a store, are checked without a gateway, and one is repaired
// from the other.
func TestOffline(t *testing.T) {
	b, _, _ := bench(t)
	siteKey := b.Keys["ams"]
	ring, key, err := keyring.New(testID, map[string][]byte{"ams": siteKey.Public()}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, segment.DataKey(key))
	text, err := siteKey.Bytes()
	s.ok(err)
	s.ok(os.WriteFile(s.path("site.key"), text, 0o600))
	text, err = json.Marshal(ring)
	s.ok(err)
	s.ok(os.WriteFile(s.path("keyring.json"), text, 0o600))
	s.ok(os.WriteFile(s.path("gateway.yaml"),
		[]byte("site: ams\ngateway: g\nsiteKey: site.key\nstore: {dir: objects}\npool: {path: pool}\n"), 0o600))
	base := []string{"fsck", testID, "--config", s.path("gateway.yaml"), "--keyring", s.path("keyring.json")}
	want := func(code int, says string, args ...string) {
		t.Helper()
		b.Want(code, says, "", append(base[:len(base):len(base)], args...)...)
	}
	inPool := []string{"--pool", s.path("pool")}
	pool := func(code int, says string, args ...string) {
		t.Helper()
		want(code, says, append(args, inPool...)...)
	}

	// The pool alone.
	pool(0, "7 inodes, 6 names")
	pool(0, ": clean", "--data")
	held, err := pooldir.Open(pooldir.Config{Path: s.path("pool"), Gateway: "g", Limit: 1 << 30, Random: rand.Reader})
	s.ok(err)
	pool(Operational, "in use by another process")
	s.ok(held.Close())
	want(Operational, "give the folder of a gateway's pool", "--pool", s.dir)
	s.flip("pool", 3)
	pool(0, ": clean")
	pool(Uncorrected, "/file 3 [", "--data")
	pool(Uncorrected, "no copy has it", "--data", "--repair")
	pool(Uncorrected, "/file 3 [", "--data") // it is as it was

	// The pool and the store.
	pool(Uncorrected, "another copy has it", "--data", "--store")
	pool(Corrected, "repaired", "--data", "--store", "--repair")
	pool(0, ": clean", "--data", "--store")
	s.flip("pool", 4)
	s.flip("objects", 4)
	pool(Uncorrected, "no copy in reach has 64.0 KiB of files", "--data", "--store", "--repair")
	s.flip("pool", 4)
	pool(Corrected, "segment 4: store, Segment, repaired", "--data", "--store", "--repair")
	s.ok(os.Remove(s.segment("objects", 5)))
	pool(Uncorrected, "the store does not have it", "--store")
	pool(Corrected, "the store does not have it", "--store", "--repair")
	pool(0, ": clean", "--data", "--store-dir", s.path("objects"))

	// The store alone.
	want(0, ": clean", "--store")
	want(0, ": clean", "--store", "--data", "--work", s.dir)
	whole, err := os.ReadFile(s.segment("objects", 6))
	s.ok(err)
	path := s.segment("objects", 6)
	s.ok(os.Remove(path))
	want(0, "6 inodes", "--store") // nobody can tell from a store alone that its last segment is missing
	s.ok(os.WriteFile(path, whole, 0o600))
	path = s.segment("objects", 2)
	whole, err = os.ReadFile(path)
	s.ok(err)
	s.ok(os.Remove(path))
	want(Uncorrected, "cannot be applied", "--store")
	s.ok(os.WriteFile(path, whole, 0o600))
	want(0, ": clean", "--store", "--data")
	left, err := filepath.Glob(filepath.Join(s.dir, "weir-fsck-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%q are left, %v", left, err)
	}
}
