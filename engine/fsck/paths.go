// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"fmt"
	"path"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// snapshotDir is the name of the directory of snapshots, below which users see them.
const snapshotDir = ".snapshots"

// trashDir is the name of a directory's trash.
const trashDir = ".trash"

// paths gives the findings their paths, as users see them. It walks over the names once for each
// state in which something was found. What cannot be read keeps its inode only.
func (c *checker) paths() error {
	c.step("paths", 0)
	done := map[uint32]bool{}
	for i := range c.report.Findings {
		snap := c.report.Findings[i].snap
		if done[snap] {
			continue
		}
		done[snap] = true
		if err := c.pathsIn(snap, ""); err != nil {
			return err
		}
	}
	// A content that no file has is in a snapshot, if anywhere.
	for i := len(c.kept) - 1; i >= 0; i-- {
		for j := range c.report.Findings {
			if f := &c.report.Findings[j]; f.content != 0 && f.Inode == 0 && f.snap == 0 {
				if err := c.pathsIn(0, c.kept[i].Name); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

// pathsIn finds the paths of the findings of a state. If in is not empty, it looks for those
// contents in the snapshot of that name that were not found yet.
func (c *checker) pathsIn(snap uint32, in string) error {
	view, prefix := c.View, "/"
	for _, s := range c.kept {
		if in != "" && s.Name == in && !s.Moment || in == "" && snap != 0 && s.Gen == snap {
			view = c.View.At(s)
			prefix = path.Join("/", snapshotDir, s.Name)
			if s.Moment {
				prefix = path.Join("/", snapshotDir, fmt.Sprintf("@%d", s.Time.Unix()))
			}
		}
	}
	inodes := map[uint64]*place{}
	contents := map[uint64]uint64{}
	for i := range c.report.Findings {
		f := &c.report.Findings[i]
		switch {
		case f.snap != snap || f.Path != "" || in != "" && (f.content == 0 || f.Inode != 0):
		case f.Inode != 0:
			inodes[f.Inode] = nil
		case f.content != 0:
			contents[f.content] = 0
		}
	}
	if len(contents) > 0 {
		if err := c.filesOf(view, contents); err != nil {
			return err
		}
		for _, ino := range contents {
			if ino != 0 {
				inodes[ino] = nil
			}
		}
	}
	delete(inodes, 0)
	if len(inodes) == 0 {
		return nil
	}
	if err := c.nameOf(view, inodes); err != nil {
		return err
	}
	for i := range c.report.Findings {
		f := &c.report.Findings[i]
		if f.snap != snap || f.Path != "" {
			continue
		}
		if f.Inode == 0 && f.content != 0 {
			f.Inode = contents[f.content]
		}
		if p, ok := full(f.Inode, inodes); ok && f.Inode != 0 {
			f.Path = path.Join(prefix, p, f.below)
		} else if f.below != "" {
			f.Detail = fmt.Sprintf("name %q: %s", f.below, f.Detail)
		}
	}
	return nil
}

// filesOf finds the inodes of contents.
func (c *checker) filesOf(view *meta.View, contents map[uint64]uint64) error {
	lo, hi := meta.AllOf(meta.Inodes)
	return c.each(view, lo, hi, func(p meta.Pair) error {
		if meta.CheckPair(p.Key, p.Value) != nil {
			return nil
		}
		n, err := meta.DecodeInode(p.Key, p.Value)
		if err != nil || n.Type != volume.Regular {
			return err
		}
		if _, ok := contents[n.ContentID()]; ok {
			contents[n.ContentID()] = n.Ino
		}
		return nil
	})
}

// place is a name in a directory.
type place struct {
	dir  uint64
	name string
}

// nameOf finds a name of each inode, and of the directories that lead to them.
func (c *checker) nameOf(view *meta.View, inodes map[uint64]*place) error {
	lo, hi := meta.AllOf(meta.Names)
	err := c.each(view, lo, hi, func(p meta.Pair) error {
		if meta.CheckPair(p.Key, p.Value) != nil {
			return nil
		}
		d, err := meta.DecodeName(p.Key, p.Value, meta.XattrName(p.Key))
		if at, ok := inodes[d.Handle.Ino]; ok && at == nil && err == nil {
			inodes[d.Handle.Ino] = &place{dir: meta.Of(p.Key), name: d.Name}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for ino, at := range inodes {
		if at != nil || ino == volume.Root.Ino {
			continue
		}
		if inodes[ino], err = c.parentOf(view, ino); err != nil { // a trash
			return err
		}
	}
	var dirs []uint64
	for _, at := range inodes {
		if at != nil {
			dirs = append(dirs, at.dir)
		}
	}
	for _, dir := range dirs {
		for dir != volume.Root.Ino {
			if _, ok := inodes[dir]; ok {
				break
			}
			at, err := c.parentOf(view, dir)
			if err != nil {
				return err
			}
			if inodes[dir] = at; at == nil {
				break
			}
			dir = at.dir
		}
	}
	return nil
}

// parentOf finds the name of a directory in its parent; nil: it has none there.
func (c *checker) parentOf(view *meta.View, dir uint64) (at *place, err error) {
	key := meta.InodeKey(dir)
	value, ok, err := c.get(view, key)
	if err != nil || !ok {
		return nil, err
	}
	n, err := meta.DecodeInode(key, value)
	if err != nil {
		return nil, nil // allPairs tells it
	}
	if n.Type != volume.Directory {
		return nil, nil
	}
	upKey := meta.InodeKey(n.Parent.Ino)
	if value, ok, err = c.get(view, upKey); err != nil {
		return nil, err
	}
	if up, derr := meta.DecodeInode(upKey, value); ok && derr == nil && up.Trash == dir {
		return &place{dir: up.Ino, name: trashDir}, nil
	}
	lo, hi := meta.NameRange(n.Parent.Ino)
	err = c.each(view, lo, hi, func(p meta.Pair) error {
		if at != nil || meta.CheckPair(p.Key, p.Value) != nil {
			return nil
		}
		d, err := meta.DecodeName(p.Key, p.Value, meta.XattrName(p.Key))
		if err == nil && d.Handle.Ino == dir {
			at = &place{dir: n.Parent.Ino, name: d.Name}
		}
		return nil
	})
	return at, err
}

// full returns the path of an inode below the root.
func full(ino uint64, inodes map[uint64]*place) (string, bool) {
	out := ""
	for range 4096 { // a circle ends, too
		if ino == volume.Root.Ino {
			return out, true
		}
		at := inodes[ino]
		if at == nil {
			return "", false
		}
		out = path.Join(at.name, out)
		ino = at.dir
	}
	return "", false
}
