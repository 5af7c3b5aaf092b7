// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/weir-storage/weir/engine/segment"

// Touched returns the end of the newest record that changes the inode and is not applied yet. It
// returns the zero position if there is none.
func (e *Engine) Touched(ino uint64) segment.Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	pos := e.names[ino]
	if d := e.data[ino]; pos.Less(d) {
		pos = d
	}
	return pos
}

// Uncommitted reports whether a record that changes the inode is in the log and not known to be
// committed. Such a change may still be undone by a takeover.
func (e *Engine) Uncommitted(ino uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.commit.Less(e.names[ino]) || e.commit.Less(e.data[ino])
}
