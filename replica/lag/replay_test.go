// SPDX-License-Identifier: Apache-2.0

package lag

import (
	"testing"
	"time"
)

func TestReplayProgress(t *testing.T) {
	began := time.Unix(1000, 0)
	r := Replay{Began: began, Total: 100 << 20}
	for _, c := range []struct {
		lacks int64
		after time.Duration
		want  string
	}{
		{100 << 20, time.Second, "0%, 0KiB/s, waits"},
		{75 << 20, 10 * time.Second, "25%, 2.5MiB/s, 30s left"},
		{0, 40 * time.Second, "100%, 2.5MiB/s, 0s left"},
	} {
		if got := r.Progress(c.lacks, began.Add(c.after)).String(); got != c.want {
			t.Errorf("after %v: %s, want %s", c.after, got, c.want)
		}
	}
}
