// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// TestSoftLimit: the limit leaves a collection something to collect.
func TestSoftLimit(t *testing.T) {
	for _, c := range []struct{ bytes, live, want int64 }{
		{500 << 20, 0, 450 << 20},
		{500 << 20, 300 << 20, 450 << 20},
		{500 << 20, 450 << 20, 600 << 20},
		{500 << 20, 3 << 30, 4 << 30},
	} {
		if got := softLimit(c.bytes, c.live); got/1000 != c.want/1000 {
			t.Errorf("of %d MiB with %d MiB in use: %d bytes, want about %d", c.bytes>>20, c.live>>20, got, c.want)
		}
	}
}

// TestLimitMemory: the runtime is told, again after a while, and a process with too little is told
// about once.
func TestLimitMemory(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	var log bytes.Buffer
	looks := 0
	held := make([]byte, 8<<20)
	runtime.GC()
	keepLimit(t.Context(), 1<<20, func(context.Context, time.Duration) bool {
		looks++
		if got := debug.SetMemoryLimit(-1); got < 8<<20 || got == math.MaxInt64 {
			t.Errorf("the limit is %d bytes with 8 MiB in use", got)
		}
		return looks < 3
	}, slog.New(slog.NewTextHandler(&log, nil)))
	runtime.KeepAlive(held)
	if looks != 3 || strings.Count(log.String(), "raise memory") != 1 {
		t.Errorf("it looked %d times, and said %q", looks, log.String())
	}
	end := LimitMemory(t.Context(), 1<<40, func(ctx context.Context, _ time.Duration) bool { <-ctx.Done(); return false },
		slog.New(slog.DiscardHandler))
	end()
	if got := debug.SetMemoryLimit(-1); got != 1<<40/10*9 {
		t.Errorf("the limit is %d bytes, want nine tenths of a TiB", got)
	}
}
