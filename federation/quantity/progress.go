// SPDX-License-Identifier: Apache-2.0

package quantity

import (
	"fmt"
	"time"
)

// Progress is how far something has come that has to be copied, and grows meanwhile.
type Progress struct {
	Copied         int64 `json:"copied"` // bytes, since it began
	Total          int64 `json:"total"`  // Copied, and what it lacks now: it grows with each write
	BytesPerSecond int64 `json:"bytesPerSecond"`
	// SecondsLeft is how long it still takes if all goes on as it does; 0: it does not get nearer.
	SecondsLeft float64 `json:"secondsLeft,omitempty"`
}

// String is the progress for people: 37%, 52MiB/s, 1m12s left.
func (p Progress) String() string {
	if p == (Progress{}) {
		return ""
	}
	left := "falls behind"
	if p.SecondsLeft > 0 || p.Copied >= p.Total {
		left = time.Duration(p.SecondsLeft*float64(time.Second)).Round(time.Second).String() + " left"
	} else if p.BytesPerSecond == 0 {
		left = "waits"
	}
	const kib, mib = 1 << 10, 1 << 20
	rate := fmt.Sprintf("%.1fMiB/s", float64(p.BytesPerSecond)/mib)
	switch {
	case p.BytesPerSecond < mib:
		rate = fmt.Sprintf("%.0fKiB/s", float64(p.BytesPerSecond)/kib)
	case p.BytesPerSecond >= 10*mib:
		rate = fmt.Sprintf("%.0fMiB/s", float64(p.BytesPerSecond)/mib)
	}
	return fmt.Sprintf("%d%%, %s, %s", p.Copied*100/max(p.Total, 1), rate, left)
}
