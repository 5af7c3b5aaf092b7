// SPDX-License-Identifier: Apache-2.0

package zfs_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

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

// TestTrouble: what goes wrong with a pool's devices is told, with a remedy, and that it is over.
func TestTrouble(t *testing.T) {
	a, b, log := device(t, "a"), device(t, "b"), device(t, "log")
	devices := zfs.Devices{Data: []string{a, b}, Layout: zfs.Mirror, Log: []string{log}, Cache: []string{device(t, "cache")}}
	name, config := tank(t, devices)
	h := new(heard)
	config.Log = slog.New(slog.NewTextHandler(h, nil))
	p, err := zfs.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { p.Watch(ctx, 100*time.Millisecond, func(string, error) {}) })
	t.Cleanup(func() {
		stop()
		watching.Wait()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
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
