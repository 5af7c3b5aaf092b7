// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	now, b := time.Unix(1000, 0), backoff{}
	if b.waits(now) {
		t.Error("a copy that never failed waits")
	}
	for _, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
		b.opened(now)
		if got := b.failed(now); got != want*time.Second || !b.waits(now) || b.waits(now.Add(got)) {
			t.Errorf("it waits %v, want %v s", got, want)
		}
		if b.waits(now.Add(-time.Hour)) {
			t.Error("it waits for an hour after the clock was set back")
		}
		now = now.Add(want * time.Second)
	}
	b.opened(now)
	if got := b.failed(now.Add(6 * time.Minute)); got != backoffFirst {
		t.Errorf("after six minutes in which it was well it waits %v", got)
	}
}
