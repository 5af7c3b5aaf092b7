// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// reapBatch bounds how many orphans one record deletes.
const reapBatch = 64

// Hold implements volume.Volume. It counts the holds of this gateway's clients only. The home asks
// Config.MayBeHeld about clients of other gateways.
func (e *Engine) Hold(h volume.Handle) error { return e.hold(h, false) }

// HoldElsewhere is Hold on behalf of another gateway, whose client already holds h there. So h may
// be without a name already.
func (e *Engine) HoldElsewhere(h volume.Handle) error { return e.hold(h, true) }

// Retain is Hold that does not check whether h exists. It is for a copy that does not know yet what
// is committed, when another gateway that knows it says that h exists.
func (e *Engine) Retain(h volume.Handle) {
	e.holds.Lock()
	defer e.holds.Unlock()
	e.holds.count[h]++
}

func (e *Engine) hold(h volume.Handle, elsewhere bool) error {
	p := place{op: "hold", ino: h.Ino}
	e.holds.Lock()
	defer e.holds.Unlock()
	if e.holds.dying[h] {
		return e.wrap(p, volume.ErrStale)
	}
	t, err := e.look()
	if err != nil {
		return e.wrap(p, err)
	}
	n, err := t.holdable(h)
	if cerr := t.view.Close(); err == nil {
		err = cerr
	}
	if err == nil && (n == nil || n.Handle != h ||
		n.Nlink == 0 && e.holds.count[h] == 0 && !elsewhere) {
		err = volume.ErrStale
	}
	if err != nil {
		return e.wrap(p, err)
	}
	e.holds.count[h]++
	return nil
}

// holdable returns the inode that h may be of; nil: there is none.
func (t *tree) holdable(h volume.Handle) (*meta.Inode, error) {
	if h.Snap == volume.SnapshotDir {
		return t.snapshotDir(h)
	}
	if err := t.enter(h.Snap); err != nil {
		return nil, err
	}
	return t.find(h.Ino)
}

// held reports whether a client of this gateway holds h.
func (e *Engine) held(h volume.Handle) bool {
	e.holds.Lock()
	defer e.holds.Unlock()
	return e.holds.count[h] > 0
}

// doom marks h for deletion and returns true if no client can hold h. Until undoom removes the
// mark, Hold refuses h with ErrStale. Otherwise the inode could vanish under a client that has just
// opened it.
func (e *Engine) doom(h volume.Handle) bool {
	e.holds.Lock()
	defer e.holds.Unlock()
	if e.holds.count[h] > 0 || e.cfg.MayBeHeld(h) {
		return false
	}
	e.holds.dying[h] = true
	return true
}

func (e *Engine) undoom(hs []volume.Handle) {
	if len(hs) == 0 {
		return
	}
	e.holds.Lock()
	defer e.holds.Unlock()
	for _, h := range hs {
		delete(e.holds.dying, h)
	}
}

// Release implements volume.Volume.
func (e *Engine) Release(h volume.Handle) {
	e.holds.Lock()
	defer e.holds.Unlock()
	if e.holds.count[h]--; e.holds.count[h] <= 0 {
		delete(e.holds.count, h)
	}
}

// Held returns those of hs that are held at this gateway.
func (e *Engine) Held(hs []volume.Handle) []volume.Handle {
	e.holds.Lock()
	defer e.holds.Unlock()
	var held []volume.Handle
	for _, h := range hs {
		if e.holds.count[h] > 0 {
			held = append(held, h)
		}
	}
	return held
}

// Orphans returns up to limit inodes without a name, from inode number from on.
func (e *Engine) Orphans(ctx context.Context, from uint64, limit int) ([]volume.Handle, error) {
	return read(ctx, e, place{op: "orphans"}, func(t *tree) ([]volume.Handle, error) {
		var found []volume.Handle
		lo, hi := meta.OrphanRange(from)
		for pair, err := range t.view.Range(lo, hi) {
			if err != nil {
				return nil, err
			}
			h, err := meta.DecodeOrphan(pair.Key, pair.Value)
			if err != nil {
				return nil, err
			}
			if found = append(found, h); len(found) == limit {
				break
			}
		}
		// An orphan may be shown as such only when the removal of its name is committed.
		for _, h := range found {
			t.reveal(h.Ino)
		}
		return found, nil
	})
}

// Reap deletes the orphans that no client holds, and returns how many. It works at the home only.
// If held is not nil, Reap asks it which of the orphans clients of other gateways hold, in addition
// to Config.MayBeHeld. held may use the network.
func (e *Engine) Reap(ctx context.Context, held func(context.Context, []volume.Handle) ([]volume.Handle, error)) (int, error) {
	reaped := 0
	for from := uint64(0); ; {
		batch, err := e.Orphans(ctx, from, reapBatch)
		if err != nil || len(batch) == 0 {
			return reaped, err
		}
		from = batch[len(batch)-1].Ino + 1
		var elsewhere []volume.Handle
		if held != nil {
			if elsewhere, err = held(ctx, batch); err != nil {
				return reaped, err
			}
		}
		batch = slices.DeleteFunc(batch, func(h volume.Handle) bool { return slices.Contains(elsewhere, h) })
		n, err := e.reap(ctx, batch)
		reaped += n
		if err != nil {
			return reaped, err
		}
	}
}

// reap deletes those of the orphans that no client holds, in one record, and returns how many.
func (e *Engine) reap(ctx context.Context, orphans []volume.Handle) (int, error) {
	var gone []volume.Handle
	_, err := change(ctx, e, volume.Request{}, place{op: "reap"}, noResult, false, func(t *tx) (struct{}, error) {
		for _, h := range orphans {
			n, err := t.find(h.Ino)
			if err != nil {
				return struct{}{}, err
			}
			if n == nil || n.Handle != h || n.Nlink != 0 || !e.doom(h) {
				continue
			}
			t.delete(meta.OrphanKey(n.Ino))
			if err := t.purge(n); err != nil {
				return struct{}{}, err
			}
		}
		gone = t.gone
		return struct{}{}, nil
	})
	if err != nil {
		return 0, err
	}
	return len(gone), nil
}

// purge deletes everything that belongs to n, which is marked for deletion.
func (t *tx) purge(n *meta.Inode) error {
	t.gone = append(t.gone, n.Handle)
	t.dirty = slices.DeleteFunc(t.dirty, func(d *meta.Inode) bool { return d == n })
	switch n.Type {
	case volume.Regular:
		// A rollback may give extents back to a content that has none now: it is dead then.
		if n.Used > 0 || t.shown(n.ContentID()) {
			t.discard(n.ContentID(), n.Used)
		}
	case volume.Symlink:
		t.delete(meta.TargetKey(n.Ino))
	}
	if n.Xattrs > 0 {
		if err := t.discardXattrs(n.Ino); err != nil {
			return err
		}
	}
	t.delete(meta.InodeKey(n.Ino))
	return t.account(-int64(n.Used), -1)
}
