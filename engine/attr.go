// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// SetAttr implements volume.Changer.
func (e *Engine) SetAttr(ctx context.Context, r volume.Request, h volume.Handle, set volume.SetAttr) (volume.Attr, error) {
	p := place{op: "setattr", ino: h.Ino}
	var ahead *counted
	if set.Size != nil && *set.Size > 0 && *set.Size <= volume.MaxSize {
		ahead = e.countAhead(ctx, h, *set.Size, endOfFile)
	}
	return change(ctx, e, r, p, attrResult, false, func(t *tx) (volume.Attr, error) {
		if set.Mode != nil && *set.Mode > 0o7777 {
			return volume.Attr{}, volume.ErrInvalid
		}
		if set.Size != nil && *set.Size > volume.MaxSize {
			return volume.Attr{}, volume.ErrTooBig
		}
		n, err := t.inode(h)
		if err != nil {
			return volume.Attr{}, err
		}
		if set.Size != nil && n.Type != volume.Regular {
			_, err := t.file(h)
			return volume.Attr{}, err
		}
		if wasted, err := t.wasted(n); err != nil || wasted || e.readOnly.Load() {
			return volume.Attr{}, cmp.Or(err, volume.ErrReadOnly)
		}
		if err := volume.CheckSetAttr(n.Attr, r.Caller, set); err != nil {
			return volume.Attr{}, err
		}
		if err := t.setAttr(n, r.Caller, set, ahead); err != nil {
			return volume.Attr{}, err
		}
		return n.Attr, nil
	})
}

// setAttr applies set to n. The caller has already checked that the change is allowed. ahead is
// what was counted before of what goes; nil: nothing was.
func (t *tx) setAttr(n *meta.Inode, c volume.Caller, set volume.SetAttr, ahead *counted) error {
	if set.Empty() {
		return nil
	}
	if set.Size != nil && *set.Size < n.Size {
		if err := t.punch(n, *set.Size, n.Size, ahead); err != nil {
			return err
		}
	}
	number, err := t.number()
	if err != nil {
		return err
	}
	volume.ApplySetAttr(&n.Attr, c, set, t.now)
	n.Change = number
	t.changed(n)
	return t.likewise(n, number)
}

// SetXattr implements volume.Changer.
func (e *Engine) SetXattr(ctx context.Context, r volume.Request, h volume.Handle,
	name string, value []byte, mode volume.XattrMode) (volume.DirChange, error) {
	p := place{"setxattr", h.Ino, name}
	return change(ctx, e, r, p, dirResult, false, func(t *tx) (volume.DirChange, error) {
		var none volume.DirChange
		if err := volume.CheckXattrName(name); err != nil {
			return none, err
		}
		if mode > volume.XattrReplace {
			return none, volume.ErrInvalid
		}
		if len(value) > volume.MaxXattr {
			return none, volume.ErrXattrTooBig
		}
		n, exists, err := t.xattr(r, h, name)
		switch {
		case err != nil:
			return none, err
		case exists && mode == volume.XattrCreate:
			return none, volume.ErrExist
		case !exists && mode == volume.XattrReplace:
			return none, volume.ErrNoXattr
		}
		key := meta.XattrKey(h.Ino, name)
		t.set(key, meta.EncodeBytes(key, value))
		if !exists {
			n.Xattrs++
		}
		return t.xattrChanged(n)
	})
}

// RemoveXattr implements volume.Changer.
func (e *Engine) RemoveXattr(ctx context.Context, r volume.Request, h volume.Handle, name string) (volume.DirChange, error) {
	p := place{"removexattr", h.Ino, name}
	return change(ctx, e, r, p, dirResult, false, func(t *tx) (volume.DirChange, error) {
		var none volume.DirChange
		if err := volume.CheckXattrName(name); err != nil {
			return none, err
		}
		n, exists, err := t.xattr(r, h, name)
		if err != nil {
			return none, err
		}
		if !exists {
			return none, volume.ErrNoXattr
		}
		t.delete(meta.XattrKey(h.Ino, name))
		n.Xattrs--
		return t.xattrChanged(n)
	})
}

// xattr returns the inode of h and reports whether it has the extended attribute name. It fails if
// the caller may not change the extended attributes of h.
func (t *tx) xattr(r volume.Request, h volume.Handle, name string) (*meta.Inode, bool, error) {
	n, err := t.inode(h)
	if err != nil {
		return nil, false, err
	}
	if t.engine.readOnly.Load() {
		return nil, false, volume.ErrReadOnly
	}
	if err := volume.CheckXattr(n.Attr, r.Caller, true); err != nil {
		return nil, false, err
	}
	_, exists, err := t.bytes(meta.XattrKey(h.Ino, name))
	return n, exists, err
}

func (t *tx) xattrChanged(n *meta.Inode) (volume.DirChange, error) {
	number, err := t.number()
	if err != nil {
		return volume.DirChange{}, err
	}
	before := n.Change
	n.Ctime, n.Change = t.now, number
	t.changed(n)
	return volume.DirChange{Before: before, After: number}, nil
}
