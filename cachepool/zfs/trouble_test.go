// SPDX-License-Identifier: Apache-2.0

package zfs_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/zfs"
	"github.com/weir-storage/weir/cachepool/zfs/zfstest"
)

// heard keeps what is logged.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, string(p))
	return len(p), nil
}

// has waits until a line is logged that has all of the words.
func (h *heard) has(t *testing.T, words ...string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		h.mu.Lock()
		for i, l := range h.lines {
			n := 0
			for _, w := range words {
				if strings.Contains(l, w) {
					n++
				}
			}
			if n == len(words) {
				h.lines = h.lines[i+1:]
				h.mu.Unlock()
				return
			}
		}
		all := strings.Join(h.lines, "")
		h.mu.Unlock()
		if time.Now().After(end) {
			t.Fatalf("nobody says %q: %s", words, all)
		}
	}
}

// watched opens a pool and watches it until the test ends.
func watched(t *testing.T, config zfs.Config, every time.Duration) *zfs.Pool {
	t.Helper()
	p, err := zfs.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { p.Watch(ctx, every, func(string, error) {}) })
	t.Cleanup(func() {
		stop()
		watching.Wait()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestTrouble: what goes wrong with a pool's devices is told, with a remedy, and that it is over.
func TestTrouble(t *testing.T) {
	a, b, log := device(t, "a"), device(t, "b"), device(t, "log")
	devices := zfs.Devices{Data: []string{a, b}, Layout: zfs.Mirror, Log: []string{log}, Cache: []string{device(t, "cache")}}
	name, config := tank(t, devices)
	h := new(heard)
	config.Log = slog.New(slog.NewTextHandler(h, nil))
	watched(t, config, 100*time.Millisecond)
	h.has(t, "condition=Healthy is=true", "reason=Online")
	zfstest.Run(t, "zpool", "offline", name, b)
	h.has(t, "level=WARN", "condition=Degraded is=true", "is OFFLINE", "zpool online")
	zfstest.Run(t, "zpool", "online", name, b)
	h.has(t, "level=INFO", "condition=Degraded is=false")
	zfstest.Run(t, "zpool", "remove", name, log)
	h.has(t, "level=WARN", "condition=SlogMissing is=true", fmt.Sprintf("zpool add %s log", name))
	zfstest.Run(t, "zpool", "add", name, "log", log)
	h.has(t, "level=INFO", "condition=SlogMissing is=false")
}

// TestReport: what is told of a pool's devices and tiers is what the kernel and ZFS count.
func TestReport(t *testing.T) {
	name, config := tank(t, zfs.Devices{Data: []string{device(t, "a"), device(t, "b")}, Layout: zfs.Mirror,
		Log: []string{device(t, "log")}, Cache: []string{device(t, "cache")}})
	config.Tools.Root = "/" // as a container has it, only elsewhere
	p := watched(t, config, 100*time.Millisecond)
	const size = 4 << 20
	d, err := p.Volume("v")
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.Create("f")
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 64<<10)
	for off := int64(0); off < size; off += int64(len(block)) {
		if _, err := rand.Read(block); err != nil {
			t.Fatal(err)
		}
		if _, err = f.WriteAt(block, off); err == nil {
			err = f.Sync()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	zfstest.Run(t, "zfs", "snapshot", name+"/weir/volumes/v@now") // what is written goes to the data devices, too
	use := func(r cachepool.Report, class cachepool.Class) (u cachepool.ClassUse) {
		for _, c := range r.Classes {
			if c.Class == class {
				u = c
			}
		}
		return u
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		r := p.Report()
		data, log, cache := use(r, cachepool.Data), use(r, cachepool.Log), use(r, cachepool.Cache)
		well := r.State == "ONLINE" && len(r.Devices) == 4 && len(r.Conditions) > 4 && r.ARC != nil && r.ARC.Size > 0 && r.L2ARC != nil &&
			data.Used >= size && data.Size > 200*mib && data.Size <= 256*mib && log.Size > 200*mib && cache.Size > 200*mib &&
			data.Written >= 2*size && log.Written >= size
		if well && r.Dataset == name+"/weir" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, ARC %v, L2ARC %v", r, r.ARC, r.L2ARC)
		}
	}
}
