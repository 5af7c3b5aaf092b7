// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/weir-storage/weir/engine/segment"

// Touched returns where the newest record that changes the inode and is not applied yet ends, or the zero position.
func (e *Engine) Touched(ino uint64) segment.Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	pos := e.names[ino]
	if d := e.data[ino]; pos.Less(d) {
		pos = d
	}
	return pos
}

// Uncommitted tells whether a record that changes the inode is in the log and not known to be
// committed. Such a change may still be taken back.
func (e *Engine) Uncommitted(ino uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.commit.Less(e.names[ino]) || e.commit.Less(e.data[ino])
}
