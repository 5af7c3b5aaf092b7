// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// memoryEntries is how many files TestMemory makes in one directory. They have to be many for the
// caches to be full; a million take some minutes.
var memoryEntries = flag.Int("memory-entries", 0, "files that TestMemory makes in one directory; 0: 20 000, in a soak run a million")

// A gateway takes 512 MiB by default. clientMemory is for clients, and not here. The rest is the
// engine's, with its caches.
const (
	clientMemory = 128 << 20
	mostMemory   = 512<<20 - clientMemory
)

// TestMemory has 64 writers fill files, and a directory of very many entries, with the caches of a
// gateway. What the process has from the kernel stays below mostMemory.
func TestMemory(t *testing.T) {
	if raced {
		t.Skip("the race detector takes memory of its own")
	}
	if *memoryEntries == 0 {
		*memoryEntries = 20_000
		if os.Getenv("WEIR_SOAK") != "" {
			*memoryEntries = 1_000_000
		}
	}
	if os.Getenv("WEIR_MEMORY") == "" { // other tests have left theirs in this process
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestMemory$",
			fmt.Sprint("-memory-entries=", *memoryEntries))
		c.Env = append(os.Environ(), "WEIR_MEMORY=1")
		out, err := c.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Error(err)
		}
		return
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(512<<20/10*9 - clientMemory)) // as package process tells a gateway
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pool, err := dir.Open(dir.Config{Path: t.TempDir(), Gateway: "gateway", Limit: 1 << 40, Random: rand.Reader})
	ok(err)
	d, err := pool.Volume(testID.String())
	ok(err)
	metadata := pebble.NewCache(48 << 20)
	defer metadata.Unref()
	var j logJournal
	e := openEngine(t, vfs.Default, &j, func(c *Config) {
		c.Dir, c.Cache, c.Pebble = filepath.Join(t.TempDir(), "meta"), NewBlockCache(128<<20), metadata
		c.Logger = slog.New(slog.DiscardHandler)
	})
	j.Log, err = log.Open(log.Config{Dir: d, Room: pool.Room(), Volume: segment.VolumeID(testID), DataKey: testKey, Rand: rand.Reader,
		Now: time.Now})
	ok(err)
	defer func() { ok(errors.Join(j.Log.Close(), e.Close(), pool.Close())) }()
	j.ShowTo(e)
	_, err = j.BeginEpoch(1)
	ok(err)
	ok(j.Replay(t.Context(), segment.Position{}, func(en log.Entry) error { return e.Ingest([]log.Entry{en}) }))
	e.Committed(j.End())
	ok(e.WaitApplied(t.Context(), j.End()))
	j.OnDurable(func(pos segment.Position, err error) {
		if err == nil {
			e.Committed(pos)
		}
	})
	ok(e.Lead(context.Background(), 1))

	var most atomic.Uint64
	look := func() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if now := m.Sys - m.HeapReleased; now > most.Load() {
			most.Store(now)
		}
	}
	const writers, each = 64, 6 << 20
	var all sync.WaitGroup
	mode := uint32(0o644)
	for w := range writers {
		all.Go(func() {
			f := newFile(t, e, volume.Root, fmt.Sprint("file ", w))
			p := make([]byte, 1<<20)
			_, _ = rand.Read(p) // never fails
			for off := uint64(0); off < each; off += 1 << 20 {
				if _, err := e.Write(t.Context(), asRoot, f, off, p, false); err != nil {
					t.Error(err)
				}
				if _, _, err := e.Read(t.Context(), asRoot, f, off, p); err != nil {
					t.Error(err)
				}
				look()
			}
			for i := w; i < *memoryEntries; i += writers {
				_, err := e.Create(t.Context(), asRoot, volume.Root, fmt.Sprint(i),
					volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: &mode}})
				if err != nil {
					t.Error(err)
					return
				}
			}
			look()
		})
	}
	all.Wait()
	began, n := time.Now(), 0
	for after, eof := uint64(0), false; !eof; {
		var some []volume.Entry
		some, eof, err = e.ReadDir(t.Context(), asRoot, volume.Root, after, 1000)
		ok(err)
		if n, after = n+len(some), some[len(some)-1].Cookie; n%10_000 < 1000 {
			look()
		}
	}
	if n != *memoryEntries+writers {
		t.Errorf("%d entries, want %d", n, *memoryEntries+writers)
	}
	t.Logf("at most %d MiB, with %d MiB written by %d writers and %d entries, which are listed in %v",
		most.Load()>>20, writers*each>>20, writers, n, time.Since(began))
	if most.Load() > mostMemory {
		t.Errorf("%d MiB, want at most %d MiB", most.Load()>>20, mostMemory>>20)
	}
}
