// SPDX-License-Identifier: Apache-2.0

package memvol

import (
	"context"
	"slices"

	"github.com/weir-storage/weir/volume"
)

// SetAttr implements volume.Changer.
func (v *Volume) SetAttr(_ context.Context, r volume.Request, h volume.Handle, set volume.SetAttr) (volume.Attr, error) {
	return change(v, r, place{op: "setattr", h: h}, func() (volume.Attr, error) {
		if err := volume.CheckSetAttrArgs(set); err != nil {
			return volume.Attr{}, err
		}
		n, err := v.get(h)
		if err != nil {
			return volume.Attr{}, err
		}
		if set.Size != nil {
			if _, err := v.file(h); err != nil {
				return volume.Attr{}, err
			}
		}
		if v.readOnly || n.wasted() {
			return volume.Attr{}, volume.ErrReadOnly
		}
		if err := volume.CheckSetAttr(n.attr, r.Caller, set); err != nil {
			return volume.Attr{}, err
		}
		v.setAttr(n, r.Caller, set)
		return n.attr, nil
	})
}

// setAttr makes a change that was checked. It commits n's data first, since
// attributes are always stable and revert must not undo them.
func (v *Volume) setAttr(n *inode, c volume.Caller, set volume.SetAttr) {
	if set.Empty() {
		return
	}
	n.commit()
	if set.Size != nil && *set.Size < n.attr.Size {
		removed := n.data.punch(*set.Size, n.attr.Size)
		n.attr.Used -= removed
		v.used -= removed
	}
	volume.ApplySetAttr(&n.attr, c, set, v.now())
	n.attr.Change = v.nextChange()
	if s := n.trash; s != nil {
		s.attr.Mode, s.attr.UID, s.attr.GID, s.attr.Change = n.attr.Mode, n.attr.UID, n.attr.GID, v.nextChange()
	}
}

// Write implements volume.Changer.
func (v *Volume) Write(_ context.Context, r volume.Request, h volume.Handle, off uint64, data []byte, stable bool) (volume.Written, error) {
	return change(v, r, place{op: "write", h: h}, func() (volume.Written, error) {
		var none volume.Written
		if len(data) > volume.MaxIO {
			return none, volume.ErrInvalid
		}
		if off > volume.MaxSize || uint64(len(data)) > volume.MaxSize-off {
			return none, volume.ErrTooBig
		}
		n, err := v.file(h)
		switch {
		case err != nil:
			return none, err
		case v.readOnly:
			return none, volume.ErrReadOnly
		case !volume.PermitsIO(n.attr, r.Caller, true):
			return none, volume.ErrAccess
		case len(data) == 0:
			return volume.Written{Attr: n.attr, Verifier: v.verifier()}, nil
		}
		end := off + uint64(len(data))
		if uint64(len(data))-n.data.recorded(off, end) > v.bytes-v.used {
			return none, volume.ErrNoSpace
		}
		if stable {
			n.commit() // a stable write may make older data of its file stable
		} else {
			n.saveFor(off, end)
			if v.running != nil {
				v.running.unstable = true
				n.undo.results = append(n.undo.results, v.running)
			}
		}
		grown := n.data.write(off, data)
		n.attr.Used += grown
		v.used += grown
		volume.ApplyWrite(&n.attr, r.Caller, end, v.now())
		n.attr.Change = v.nextChange()
		return volume.Written{Attr: n.attr, Verifier: v.verifier()}, nil
	})
}

// Commit implements volume.Changer.
func (v *Volume) Commit(_ context.Context, r volume.Request, h volume.Handle) (volume.Verifier, error) {
	return change(v, r, place{op: "commit", h: h}, func() (volume.Verifier, error) {
		n, err := v.file(h)
		if err != nil {
			return volume.Verifier{}, err
		}
		n.commit()
		return v.verifier(), nil
	})
}

// Punch implements volume.Changer.
func (v *Volume) Punch(_ context.Context, r volume.Request, h volume.Handle, off, size uint64) (volume.Attr, error) {
	return change(v, r, place{op: "punch", h: h}, func() (volume.Attr, error) {
		if off+size < off {
			return volume.Attr{}, volume.ErrInvalid
		}
		n, err := v.file(h)
		switch {
		case err != nil:
			return volume.Attr{}, err
		case v.readOnly:
			return volume.Attr{}, volume.ErrReadOnly
		case !volume.PermitsIO(n.attr, r.Caller, true):
			return volume.Attr{}, volume.ErrAccess
		case size == 0 || off >= n.attr.Size:
			return n.attr, nil
		}
		n.commit()
		removed := n.data.punch(off, min(off+size, n.attr.Size))
		n.attr.Used -= removed
		v.used -= removed
		volume.ApplyWrite(&n.attr, r.Caller, 0, v.now())
		n.attr.Change = v.nextChange()
		return n.attr, nil
	})
}

// SetXattr implements volume.Changer.
func (v *Volume) SetXattr(_ context.Context, r volume.Request, h volume.Handle, name string, value []byte,
	mode volume.XattrMode) (volume.DirChange, error) {
	return change(v, r, place{"setxattr", h, name}, func() (volume.DirChange, error) {
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
		n, err := v.get(h)
		if err != nil {
			return none, err
		}
		if v.readOnly {
			return none, volume.ErrReadOnly
		}
		if err := volume.CheckXattr(n.attr, r.Caller, true); err != nil {
			return none, err
		}
		_, exists := n.xattrs[name]
		switch {
		case exists && mode == volume.XattrCreate:
			return none, volume.ErrExist
		case !exists && mode == volume.XattrReplace:
			return none, volume.ErrNoXattr
		}
		if n.xattrs == nil {
			n.xattrs = make(map[string][]byte)
		}
		n.xattrs[name] = slices.Clone(value)
		return v.xattrChanged(n), nil
	})
}

// RemoveXattr implements volume.Changer.
func (v *Volume) RemoveXattr(_ context.Context, r volume.Request, h volume.Handle, name string) (volume.DirChange, error) {
	return change(v, r, place{"removexattr", h, name}, func() (volume.DirChange, error) {
		var none volume.DirChange
		if err := volume.CheckXattrName(name); err != nil {
			return none, err
		}
		n, err := v.get(h)
		if err != nil {
			return none, err
		}
		if v.readOnly {
			return none, volume.ErrReadOnly
		}
		if err := volume.CheckXattr(n.attr, r.Caller, true); err != nil {
			return none, err
		}
		if _, ok := n.xattrs[name]; !ok {
			return none, volume.ErrNoXattr
		}
		delete(n.xattrs, name)
		return v.xattrChanged(n), nil
	})
}

func (v *Volume) xattrChanged(n *inode) volume.DirChange {
	before := n.attr.Change
	n.attr.Ctime, n.attr.Change = v.now(), v.nextChange()
	return volume.DirChange{Before: before, After: n.attr.Change}
}
