// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// lazyJournal fsyncs as package replica does: what somebody waits for at once, the rest when the
// log has enough of it.
type lazyJournal struct{ logJournal }

func (j lazyJournal) Append(_ context.Context, rec *segment.Record) (segment.Position, error) {
	return j.Log.Append(rec)
}

// beside is an engine over a log in a directory, and a plain directory beside it.
type beside struct {
	*Engine
	plain  string // in the directory whose files are forget's
	dirs   []cachepool.Dir
	fsyncs atomic.Int64
}

// newBeside makes one with a cache of so many bytes of blocks. For reads from the disk it is small.
func newBeside(b *testing.B, blocks int64) *beside {
	h := &beside{}
	ok := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	pool, err := dir.Open(dir.Config{Path: b.TempDir(), Gateway: "gateway", Limit: 1 << 40, Random: rand.Reader})
	ok(err)
	d, err := pool.Volume(testID.String())
	ok(err)
	other, err := pool.Volume("plain")
	ok(err)
	h.plain, h.dirs = other.Path(), []cachepool.Dir{d, other}
	var j lazyJournal
	metadata := pebble.NewCache(64 << 20) // as a gateway has
	b.Cleanup(metadata.Unref)
	h.Engine = openEngine(b, vfs.Default, &j, func(c *Config) {
		c.Pebble = metadata
		c.Dir, c.Cache, c.Logger = filepath.Join(b.TempDir(), "meta"), NewBlockCache(blocks), slog.New(slog.DiscardHandler)
	})
	j.Log, err = log.Open(log.Config{Dir: d, Room: pool.Room(), Volume: segment.VolumeID(testID), DataKey: testKey, Rand: rand.Reader,
		Now: time.Now, Synced: func(time.Duration) { h.fsyncs.Add(1) }})
	ok(err)
	j.ShowTo(h.Engine)
	_, err = j.BeginEpoch(1)
	ok(err)
	ok(j.Replay(b.Context(), segment.Position{}, func(e log.Entry) error { return h.Ingest([]log.Entry{e}) }))
	h.Committed(j.End())
	ok(h.WaitApplied(b.Context(), j.End()))
	j.OnDurable(func(pos segment.Position, err error) {
		if err == nil {
			h.Committed(pos)
		}
	})
	ok(h.Lead(context.Background(), 1))
	b.Cleanup(func() { ok(errors.Join(j.Log.Close(), h.Engine.Close(), pool.Close())) })
	return h
}

// forget has the next reads of all files come from the disk.
func (h *beside) forget(b *testing.B) {
	b.Helper()
	for _, d := range h.dirs {
		files, err := d.List()
		for _, i := range files {
			var f cachepool.File
			if f, err = d.Open(i.Name); err == nil {
				err = errors.Join(f.Sync(), f.Forget(), f.Close())
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// rounds is how often a comparison changes between the two sorts: both meet the same noise.
const rounds = 4

// ratio runs n operations of both sorts, and reports how many times as fast the engine's are, and
// what they take of the processors.
func ratio(b *testing.B, workers, n int, ours, plain func(worker, i int) error) {
	b.Helper()
	var took, busy [2]time.Duration
	for r := range rounds {
		for k, op := range []func(worker, i int) error{ours, plain} {
			began, used := time.Now(), processors(b)
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					for i := r*n/rounds + w; i < (r+1)*n/rounds; i += workers {
						if err := op(w, i); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			took[k] += time.Since(began)
			busy[k] += processors(b) - used
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "x-plain")
	b.ReportMetric(float64(took[0].Microseconds())/float64(n), "us/op")
	b.ReportMetric(float64(took[1].Microseconds())/float64(n), "plain-us/op")
	b.ReportMetric(float64(busy[0].Microseconds())/float64(n), "cpu-us/op")
	b.ReportMetric(float64(busy[1].Microseconds())/float64(n), "plain-cpu-us/op")
	b.ReportMetric(0, "ns/op")
}

// lastOfRound reports whether operation i of n is the last in its round.
func lastOfRound(i, n int) bool { return (i+1)*rounds%n == 0 }

// processors returns what the process has taken of the processors.
func processors(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The benchmarks Beside… compare with a plain directory on the same disk, in one run. Reads
// come from the disk, as far as the kernel forgets what it has in memory when it is asked to.

// BenchmarkBesideFiles makes small files, each fsynced.
func BenchmarkBesideFiles(b *testing.B) {
	for _, workers := range []int{1, 16} {
		b.Run(fmt.Sprintf("create-write-fsync/workers=%d", workers), func(b *testing.B) {
			h := newBeside(b, 16<<20)
			p, n := make([]byte, 4<<10), 60*workers
			_, _ = rand.Read(p) // never fails
			before, mode := h.fsyncs.Load(), uint32(0o644)
			ratio(b, workers, n, func(w, i int) error {
				r := volume.Request{ID: volume.OpID{Slot: fmt.Sprint(w), Seq: uint32(2*i + 1)}}
				c, err := h.Create(b.Context(), r, volume.Root, fmt.Sprint(i),
					volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: &mode}})
				if err != nil {
					return err
				}
				r.ID.Seq++
				_, err = h.Write(b.Context(), r, c.Attr.Handle, 0, p, true)
				return err
			}, func(_, i int) error {
				f, err := os.OpenFile(filepath.Join(h.plain, fmt.Sprint(i)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
				if err != nil {
					return err
				}
				_, err = f.Write(p)
				return errors.Join(err, f.Sync(), f.Close())
			})
			b.ReportMetric(float64(2*n)/float64(h.fsyncs.Load()-before), "records/fsync")
		})
	}
}

// BenchmarkBesideBlocks writes and reads one file.
func BenchmarkBesideBlocks(b *testing.B) {
	h := newBeside(b, 16<<20)
	const size = 256 << 20
	p := make([]byte, 1<<20)
	_, _ = rand.Read(p) // never fails
	var f volume.Handle
	var plain *os.File
	files := 0
	b.Run("write-1MiB", func(b *testing.B) {
		if plain != nil {
			_ = plain.Close() // nothing in it is kept
		}
		files++ // a run writes a file that is not there
		f = newFile(b, h, volume.Root, fmt.Sprint("f", files))
		var err error
		if plain, err = os.Create(filepath.Join(h.plain, fmt.Sprint("f", files))); err != nil {
			b.Fatal(err)
		}
		n := size >> 20
		ratio(b, 1, n, func(_, i int) error {
			if _, err := h.Write(b.Context(), asRoot, f, uint64(i)<<20, p, false); err != nil || !lastOfRound(i, n) {
				return err
			}
			_, err := h.Commit(b.Context(), asRoot, f)
			return err
		}, func(_, i int) error {
			if _, err := plain.WriteAt(p, int64(i)<<20); err != nil || !lastOfRound(i, n) {
				return err
			}
			return plain.Sync()
		})
	})
	defer func() { _ = plain.Close() }() // nothing in it is kept
	b.Run("read-1MiB", func(b *testing.B) {
		h.forget(b)
		ratio(b, 1, size>>20, func(_, i int) error {
			_, _, err := h.Read(b.Context(), asRoot, f, uint64(i)<<20, p)
			return err
		}, func(_, i int) error {
			_, err := plain.ReadAt(p, int64(i)<<20)
			return err
		})
	})
	b.Run("read-4KiB-anywhere", func(b *testing.B) {
		h.forget(b)
		at := func(i int) int64 { return mathrand.New(mathrand.NewPCG(uint64(i), 1)).Int64N(size>>12) << 12 }
		ratio(b, 1, 4000, func(_, i int) error {
			_, _, err := h.Read(b.Context(), asRoot, f, uint64(at(i)), p[:4<<10])
			return err
		}, func(_, i int) error {
			_, err := plain.ReadAt(p[:4<<10], at(i))
			return err
		})
	})
}

// BenchmarkBesideSmallBlocks reads a file of a volume whose policy has small blocks, as databases
// are advised to.
func BenchmarkBesideSmallBlocks(b *testing.B) {
	const size = 128 << 20
	p := make([]byte, 1<<20)
	_, _ = rand.Read(p) // never fails
	for _, block := range []int{4 << 10, 8 << 10, 16 << 10} {
		b.Run(fmt.Sprintf("read-4KiB-anywhere/blockSize=%dKi", block>>10), func(b *testing.B) {
			h := newBeside(b, 4<<20)
			h.Tune(Tuning{BlockSize: block})
			f := newFile(b, h, volume.Root, "f")
			plain, err := os.Create(filepath.Join(h.plain, "f"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = plain.Close() }() // nothing in it is kept
			for off := int64(0); off < size; off += 1 << 20 {
				_, werr := h.Write(b.Context(), asRoot, f, uint64(off), p, false)
				if _, err := plain.WriteAt(p, off); errors.Join(err, werr) != nil {
					b.Fatal(err, werr)
				}
			}
			if _, err := h.Commit(b.Context(), asRoot, f); err != nil {
				b.Fatal(err)
			}
			if err := h.WaitApplied(b.Context(), h.lastEnd()); err != nil {
				b.Fatal(err)
			}
			h.forget(b)
			at := func(i int) int64 { return mathrand.New(mathrand.NewPCG(uint64(i), 1)).Int64N(size>>12) << 12 }
			q := make([]byte, 4<<10)
			ratio(b, 1, 4000, func(_, i int) error {
				_, _, err := h.Read(b.Context(), asRoot, f, uint64(at(i)), q)
				return err
			}, func(_, i int) error {
				_, err := plain.ReadAt(q, at(i))
				return err
			})
		})
	}
}

// BenchmarkBesideNames looks at the attributes of files, and lists a directory of many.
func BenchmarkBesideNames(b *testing.B) {
	h := newBeside(b, 256<<20)
	const entries = 100_000
	mode := uint32(0o644)
	var all sync.WaitGroup
	for w := range 64 {
		all.Go(func() {
			for i := w; i < entries; i += 64 {
				_, err := h.Create(b.Context(), asRoot, volume.Root, fmt.Sprint(i),
					volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: &mode}})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for i := range entries {
		if err := os.WriteFile(filepath.Join(h.plain, fmt.Sprint(i)), nil, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	if b.Failed() {
		return
	}
	if err := h.WaitApplied(b.Context(), h.lastEnd()); err != nil {
		b.Fatal(err)
	}
	b.Run("lookup-of-100k", func(b *testing.B) {
		ratio(b, 1, 20_000, func(_, i int) error {
			_, err := h.Lookup(b.Context(), asRoot, volume.Root, fmt.Sprint(i*7919%entries))
			return err
		}, func(_, i int) error {
			_, err := os.Lstat(filepath.Join(h.plain, fmt.Sprint(i*7919%entries)))
			return err
		})
	})
	b.Run("stat-of-1k", func(b *testing.B) {
		ratio(b, 1, 100_000, func(_, i int) error {
			_, err := h.Lookup(b.Context(), asRoot, volume.Root, fmt.Sprint(i%1000))
			return err
		}, func(_, i int) error {
			_, err := os.Lstat(filepath.Join(h.plain, fmt.Sprint(i%1000)))
			return err
		})
	})
	b.Run("readdir-100k", func(b *testing.B) {
		ratio(b, 1, rounds, func(int, int) error {
			n := 0
			for after, eof := uint64(0), false; !eof; {
				var some []volume.Entry
				var err error
				if some, eof, err = h.ReadDir(b.Context(), asRoot, volume.Root, after, 1000); err != nil {
					return err
				}
				n, after = n+len(some), some[len(some)-1].Cookie
			}
			if n != entries {
				return fmt.Errorf("%d entries, want %d", n, entries)
			}
			return nil
		}, func(int, int) error {
			all, err := os.ReadDir(h.plain)
			for _, e := range all {
				if _, err := e.Info(); err != nil { // the engine's listing has the attributes too
					return err
				}
			}
			if err == nil && len(all) != entries {
				err = fmt.Errorf("%d entries, want %d", len(all), entries)
			}
			return err
		})
	})
}
