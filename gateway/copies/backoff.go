// SPDX-License-Identifier: Apache-2.0

package copies

import "time"

// backoff is how long to wait before a copy that failed is opened again. A disk that is full or
// ails must not keep the gateway busy, and the copy goes on by itself when the disk is well.
type backoff struct {
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

func (b *backoff) opened(now time.Time) { b.since = now }

// failed notes that the copy failed, and returns how long it is not opened.
func (b *backoff) failed(now time.Time) time.Duration {
	if b.next == 0 || now.Sub(b.since) > backoffForget {
		b.next = backoffFirst
	}
	wait := b.next
	b.until, b.next = now.Add(wait), min(2*b.next, backoffMost)
	return wait
}

// waits reports whether the copy is not to be opened yet.
func (b *backoff) waits(now time.Time) bool {
	return now.Before(b.until) && b.until.Sub(now) <= backoffMost
}
