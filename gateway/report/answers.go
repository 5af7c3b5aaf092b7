// SPDX-License-Identifier: Apache-2.0

package report

import (
	"sync/atomic"
	"time"
)

// Answers is when the registry answered last, while it was watched. A view keeps what it has when
// the registry is silent, heartbeats too: how old that is has to be known (report-3). Its methods
// may be called from many goroutines.
type Answers struct {
	watched atomic.Bool
	last    atomic.Int64 // in nanoseconds since 1970
}

// Begin begins to count. Call it once, first.
func (a *Answers) Begin(now time.Time) { a.last.Store(now.UnixNano()) }

// Watched says whether there is a watch that has had everything since it began.
func (a *Answers) Watched(is bool) { a.watched.Store(is) }

// Note notes that the registry answered a quorum read.
func (a *Answers) Note(now time.Time) {
	if a.watched.Load() {
		a.last.Store(now.UnixNano())
	}
}

// Silent is for how long the registry has been silent.
func (a *Answers) Silent(now time.Time) time.Duration {
	return max(0, time.Duration(now.UnixNano()-a.last.Load()))
}
