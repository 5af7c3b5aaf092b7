// SPDX-License-Identifier: Apache-2.0

package mirror

import "sync"

// Backlog keeps news of volumes until somebody has time for them, the latest of each volume. The
// zero Backlog is empty. Methods may be called from many goroutines.
type Backlog struct {
	mu   sync.Mutex
	list map[string]News
}

// Add puts news into the backlog.
func (b *Backlog) Add(n News) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.list == nil {
		b.list = map[string]News{}
	}
	b.list[n.Volume] = n
}

// Take empties the backlog, and returns what was in it by the volumes' UUIDs.
func (b *Backlog) Take() map[string]News {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.list
	b.list = nil
	return out
}
