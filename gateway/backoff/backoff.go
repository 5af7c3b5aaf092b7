// SPDX-License-Identifier: Apache-2.0

// Package backoff says how long to wait before something is tried again that failed.
package backoff

import "time"

// Backoff is how long to wait before a copy that failed is opened, or moved, again. A disk that is
// full or ails must not keep the gateway busy, and the copy goes on by itself when the disk is
// well. The zero Backoff is of one that has not failed. One goroutine at a time may use it.
type Backoff struct {
	since time.Time // when the copy was opened
	until time.Time // it is not opened before
	next  time.Duration
}

// How long to wait. A copy that stayed open for longer than backoffForget did not fail again.
const (
	backoffFirst  = 2 * time.Second
	backoffMost   = time.Minute
	backoffForget = 5 * time.Minute
)

// Opened notes that it went well.
func (b *Backoff) Opened(now time.Time) { b.since = now }

// Failed notes that the copy failed, and returns how long it is not opened.
func (b *Backoff) Failed(now time.Time) time.Duration {
	if b.next == 0 || now.Sub(b.since) > backoffForget {
		b.next = backoffFirst
	}
	wait := b.next
	b.until, b.next = now.Add(wait), min(2*b.next, backoffMost)
	return wait
}

// Waits reports whether the copy is not to be opened yet.
func (b *Backoff) Waits(now time.Time) bool {
	return now.Before(b.until) && b.until.Sub(now) <= backoffMost
}
