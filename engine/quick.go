// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// quickly answers a lookup of name in the directory h, or without a name asks for the attributes of
// h. It does so at the home only, about the present, if all that the answer needs is among the
// rows, and nothing of it is in the overlay or uncommitted. It makes no view and no copy of what it
// finds. false: read has to look, which also finds out what is wrong.
//
// With mu held, the rows have what the newest view would find: what is applied to a key is in the
// overlay until the key's row was replaced or removed (pending.go).
func (e *Engine) quickly(ctx context.Context, r volume.Request, h volume.Handle, name string) (a volume.Attr, ok bool) {
	if _, earlier := journal.ToldBy(ctx); earlier || h.Snap != 0 {
		return a, false
	}
	e.mu.Lock()
	epoch := e.epoch
	ok = e.leading && e.failed == nil && !e.closed && e.rolling.Load() == 0 && e.known(r, h, name, &a)
	e.mu.Unlock()
	// As in read, the promise is asked for after the look, and then whether the role is the same.
	if !ok || e.mayServe() != nil || !e.leads(epoch) {
		return volume.Attr{}, false
	}
	return a, true
}

// known looks for the answer of quickly. The caller holds mu.
func (e *Engine) known(r volume.Request, h volume.Handle, name string, a *volume.Attr) bool {
	n := e.rows.inode(e.overlay, h.Ino)
	if n == nil || n.Gen != h.Gen || n.Nlink == 0 || !e.shown(n.Ino) {
		return false
	}
	if name == "" {
		*a = n.Attr
		return true
	}
	if n.Type != volume.Directory || !volume.Permits(n.Attr, r.Caller, volume.Exec) {
		return false
	}
	target, ok := e.rows.target(e.overlay, h.Ino, name)
	if !ok {
		return false
	}
	n = e.rows.inode(e.overlay, target.Ino)
	if n == nil || n.Handle != target || !e.shown(n.Ino) {
		return false
	}
	*a = n.Attr
	return true
}

// shown reports that all about an inode that is in the log is committed. The caller holds mu.
func (e *Engine) shown(ino uint64) bool {
	return !e.commit.Less(e.names[ino]) && !e.commit.Less(e.data[ino])
}
