// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"log/slog"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// lookAfter is how often LimitMemory looks at what is in use.
	lookAfter = 5 * time.Second
	// liveBytes is what the last collection left in use.
	liveBytes = "/gc/heap/live:bytes"
)

// LimitMemory has the runtime collect garbage more often as the process nears so many bytes. What
// is in use cannot be collected. When there is more of it than fits, the limit gives way: to
// collect in vain would take the time that promises need. The log says so once. pause waits for a
// time, and returns false when its context ended first. The caller calls end, which waits until
// nothing of it runs any more.
func LimitMemory(ctx context.Context, bytes int64, pause func(context.Context, time.Duration) bool, logger *slog.Logger) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		keepLimit(ctx, bytes, pause, logger)
	}()
	return func() { stop(); <-done }
}

// keepLimit is LimitMemory until ctx ends.
func keepLimit(ctx context.Context, bytes int64, pause func(context.Context, time.Duration) bool, logger *slog.Logger) {
	sample := []metrics.Sample{{Name: liveBytes}}
	told := false
	for more := true; more; more = pause(ctx, lookAfter) {
		metrics.Read(sample)
		live := int64(sample[0].Value.Uint64())
		soft := softLimit(bytes, live)
		debug.SetMemoryLimit(soft)
		if soft > bytes && !told {
			told = true
			logger.Warn("more memory is in use than the configuration says; raise memory, and the container's limit above it",
				"memory", bytes, "in use", live)
		}
	}
}

// softLimit is the limit for the runtime of a process that is to take so many bytes: nine tenths,
// because the limit is passed by a little before a collection ends; and a third more than what is
// in use.
func softLimit(bytes, live int64) int64 { return max(bytes/10*9, live/3*4) }
