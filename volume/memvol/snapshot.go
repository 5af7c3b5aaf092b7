// SPDX-License-Identifier: Apache-2.0

package memvol

import (
	"context"
	"maps"
	"slices"

	"github.com/weir-storage/weir/volume"
)

// snapshot is a copy of everything.
type snapshot struct {
	volume.Snapshot
	table map[uint64]*inode
}

var _ volume.Snapshotter = (*Volume)(nil)

// TakeSnapshot implements volume.Snapshotter.
func (v *Volume) TakeSnapshot(_ context.Context, r volume.Request, name string) (volume.Snapshot, error) {
	return change(v, r, place{op: "take snapshot", h: volume.Root, name: name}, func() (volume.Snapshot, error) {
		if err := volume.CheckSnapshotName(name); err != nil {
			return volume.Snapshot{}, err
		}
		if v.snapshotNamed(name) != nil {
			return volume.Snapshot{}, volume.ErrExist
		}
		v.lastSnap++
		s := &snapshot{volume.Snapshot{
			Name: name, Snap: v.lastSnap, Time: v.now(), Bytes: v.used, Inodes: uint64(len(v.table))}, copyOf(v.table, v.lastSnap)}
		v.snaps = append(v.snaps, s)
		return s.Snapshot, nil
	})
}

// Snapshots implements volume.Snapshotter.
func (v *Volume) Snapshots(context.Context) ([]volume.Snapshot, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	byName := map[string]volume.Snapshot{}
	for _, s := range v.snaps {
		byName[s.Name] = s.Snapshot
	}
	var out []volume.Snapshot
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out, nil
}

// DropSnapshot implements volume.Snapshotter.
func (v *Volume) DropSnapshot(_ context.Context, r volume.Request, name string) error {
	_, err := change(v, r, place{op: "drop snapshot", h: volume.Root, name: name}, func() (struct{}, error) {
		s := v.snapshotNamed(name)
		if s == nil {
			return struct{}{}, volume.ErrNotExist
		}
		v.snaps = slices.DeleteFunc(v.snaps, func(x *snapshot) bool { return x == s })
		return struct{}{}, nil
	})
	return err
}

// Rollback implements volume.Snapshotter.
func (v *Volume) Rollback(_ context.Context, r volume.Request, to, before string) error {
	_, err := change(v, r, place{op: "rollback", h: volume.Root, name: to}, func() (struct{}, error) {
		if err := volume.CheckSnapshotName(before); err != nil {
			return struct{}{}, err
		}
		s := v.snapshotNamed(to)
		switch {
		case s == nil:
			return struct{}{}, volume.ErrNotExist
		case v.snapshotNamed(before) != nil:
			return struct{}{}, volume.ErrExist
		}
		v.lastSnap++
		v.snaps = append(v.snaps, &snapshot{volume.Snapshot{
			Name: before, Snap: v.lastSnap, Time: v.now(), Bytes: v.used, Inodes: uint64(len(v.table)),
		}, copyOf(v.table, v.lastSnap)})
		v.table, v.used = copyOf(s.table, 0), s.Bytes
		for ino, n := range v.table {
			if n.attr.Nlink == 0 {
				v.used -= n.attr.Used
				delete(v.table, ino)
				continue
			}
			n.attr.Change = v.nextChange()
		}
		return struct{}{}, nil
	})
	return err
}

func (v *Volume) snapshotNamed(name string) *snapshot {
	for _, s := range v.snaps {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// past returns the inode of h in a snapshot.
func (v *Volume) past(h volume.Handle) (*inode, error) {
	if v.changing {
		return nil, volume.ErrReadOnly
	}
	for _, s := range v.snaps {
		if s.Snap == h.Snap {
			if n := s.table[h.Ino]; n != nil && n.attr.Gen == h.Gen && n.attr.Nlink > 0 {
				return n, nil
			}
		}
	}
	return nil, volume.ErrStale
}

// copyOf returns a copy of all inodes, with handles of a snapshot.
func copyOf(table map[uint64]*inode, snap uint32) map[uint64]*inode {
	out := map[uint64]*inode{}
	for ino, n := range table {
		c := &inode{attr: n.attr, target: n.target, xattrs: maps.Clone(n.xattrs), verf: n.verf}
		c.attr.Snap = snap
		c.data = content{pages: map[uint64]*page{}, spans: slices.Clone(n.data.spans)}
		for i, p := range n.data.pages {
			own := *p
			c.data.pages[i] = &own
		}
		out[ino] = c
	}
	for ino, n := range table {
		if n.dir == nil {
			continue
		}
		d := newDirectory()
		d.cookie = n.dir.cookie
		if n.dir.parent != nil {
			d.parent = out[n.dir.parent.attr.Ino]
		}
		for _, e := range n.dir.byCookie {
			if e.inode != nil {
				c := &entry{name: e.name, cookie: e.cookie, inode: out[e.inode.attr.Ino]}
				d.byName[e.name] = c
				d.byCookie = append(d.byCookie, c)
			}
		}
		out[ino].dir = d
		if n.trash != nil {
			out[ino].trash = out[n.trash.attr.Ino]
		}
	}
	return out
}
