// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	now, b := time.Unix(1000, 0), Backoff{}
	if b.Waits(now) {
		t.Error("a copy that never failed waits")
	}
	for _, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
		b.Opened(now)
		if got := b.Failed(now); got != want*time.Second || !b.Waits(now) || b.Waits(now.Add(got)) {
			t.Errorf("it waits %v, want %v s", got, want)
		}
		if b.Waits(now.Add(-time.Hour)) {
			t.Error("it waits for an hour after the clock was set back")
		}
		now = now.Add(want * time.Second)
	}
	b.Opened(now)
	if got := b.Failed(now.Add(6 * time.Minute)); got != backoffFirst {
		t.Errorf("after six minutes in which it was well it waits %v", got)
	}
}
