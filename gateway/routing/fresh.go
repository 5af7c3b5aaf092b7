// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"

	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// freshAttr are a file's attributes after an unstable write that this gateway sent to a home
// elsewhere. The local copy has not applied the write yet.
type freshAttr struct {
	attr  volume.Attr
	pos   journal.Position // where the record of the write ends
	epoch uint64           // of the write: in a later one, pos may be another record's
}

// freshAttrs are a gateway's newest writes, by file. Router.mu guards them.
type freshAttrs map[volume.Handle]freshAttr

// maxFresh is how many files are remembered before those are forgotten whose writes are applied
// here.
const maxFresh = 256

// drop forgets the write to h if the local copy, which has applied up to applied, has it. It also
// forgets the write if a later epoch began: then the copy has the write, or it is lost. epoch is
// the newest epoch known.
func (f freshAttrs) drop(h volume.Handle, applied journal.Position, epoch uint64) bool {
	w, ok := f[h]
	if !ok || applied.Less(w.pos) && epoch <= w.epoch {
		return false
	}
	delete(f, h)
	return true
}

// add remembers a write, unless a newer write to the file is known.
func (f freshAttrs) add(h volume.Handle, w freshAttr) {
	if old, ok := f[h]; !ok || old.epoch < w.epoch || old.epoch == w.epoch && old.pos.Less(w.pos) {
		f[h] = w
	}
}

// epoch returns the newest epoch known here. The caller holds mu.
func (v *Router) epoch() uint64 {
	_, epoch := v.cfg.View.Home(v.uuid)
	if own, leads := v.local.Leading(); leads {
		epoch = max(epoch, own)
	}
	return epoch
}

// freshAfter returns this gateway's own newest write to h that the local copy has not applied yet.
// The caller holds mu.
func (v *Router) freshAfter(h volume.Handle) (freshAttr, bool) {
	w, ok := v.fresh[h]
	if !ok || v.local == nil || v.fresh.drop(h, v.local.Engine.Applied(), v.epoch()) {
		return freshAttr{}, false
	}
	return w, true
}

// freshOf returns the attributes after this gateway's own newest write to h, while the local copy
// knows no later change of h. To wait for the write's commit would give the same answer.
func (v *Router) freshOf(h volume.Handle) (volume.Attr, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w, ok := v.freshAfter(h)
	if !ok {
		return volume.Attr{}, false
	}
	// The order matters: a local copy that may serve already has what others did.
	if v.local.MayServe() != nil || w.pos.Less(v.local.Engine.Touched(h.Ino)) {
		return volume.Attr{}, false
	}
	return w.attr, true
}

// awaitFresh waits until the local copy has this gateway's own newest write to h, and reports
// whether it had to wait. Clients read what they wrote, committed or not.
func (v *Router) awaitFresh(ctx context.Context, h volume.Handle) (waited bool) {
	v.mu.Lock()
	w, ok := v.fresh[h]
	if ok && v.local != nil {
		w, ok = v.freshAfter(h)
	}
	v.mu.Unlock()
	if !ok {
		return false
	}
	return v.catchUp(ctx, w.pos)
}

// wrote remembers a write whose attributes GetAttr can return before it is committed.
func (v *Router) wrote(h volume.Handle, w freshAttr) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fresh.add(h, w)
	switch {
	case len(v.fresh) <= maxFresh:
	case v.local == nil:
		clear(v.fresh) // the home answers instead, and shows uncommitted writes too
	default:
		applied, epoch := v.local.Engine.Applied(), v.epoch()
		for h := range v.fresh {
			v.fresh.drop(h, applied, epoch)
		}
	}
}
