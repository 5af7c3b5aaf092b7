// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
)

// Lost is what of a volume's data is in segments that nobody has any more.
type Lost struct {
	Files map[uint64]uint64 // bytes by inode, of what the volume shows now
	Past  uint64            // bytes that only snapshots show
	Need  map[uint64]uint64 // bytes by segment
}

// LostIn finds the data that lie in segments for which gone says so. It looks at all that is
// applied. It needs no journal.
func (e *Engine) LostIn(gone func(seq uint64) bool) (Lost, error) {
	l := Lost{Files: map[uint64]uint64{}, Need: map[uint64]uint64{}}
	view := e.store.Live(nil)
	contents := map[uint64]uint64{}
	note := func(key, value []byte) (lost uint64, err error) {
		x, err := meta.DecodeExtent(key, value)
		if err != nil || !gone(x.Ref.Seq) {
			return 0, err
		}
		l.Need[x.Ref.Seq] += uint64(x.Len)
		return uint64(x.Len), nil
	}
	err := each(view, meta.Extents, func(key, value []byte) error {
		n, err := note(key, value)
		if n > 0 {
			contents[meta.Of(key)] += n
		}
		return err
	})
	if err != nil {
		return l, err
	}
	lo, hi := meta.AllHistory(nil)
	for p, err := range view.Range(lo, hi) {
		if err != nil {
			return l, err
		}
		key, _, err := meta.SplitHistory(p.Key)
		if err != nil {
			return l, err
		}
		if meta.Table(key[0]) != meta.Extents {
			continue
		}
		value, exists, err := meta.DecodeHistory(p.Key, p.Value)
		if err == nil && exists {
			var n uint64
			n, err = note(key, value)
			l.Past += n
		}
		if err != nil {
			return l, err
		}
	}
	if len(contents) == 0 {
		return l, nil
	}
	err = each(view, meta.Inodes, func(key, value []byte) error {
		n, err := meta.DecodeInode(key, value)
		if err == nil && contents[n.ContentID()] > 0 {
			l.Files[n.Ino] = contents[n.ContentID()]
			delete(contents, n.ContentID())
		}
		return err
	})
	for _, n := range contents {
		l.Past += n
	}
	return l, err
}

// each calls f with all pairs of a table whose keys begin with a number.
func each(view *meta.View, t meta.Table, f func(key, value []byte) error) error {
	lo, hi := meta.After(t, 0)
	for p, err := range view.Range(lo, hi) {
		if err == nil {
			err = f(p.Key, p.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Entries keeps of a record's operations those that PathsOf needs.
func Entries(ops []segment.Op) (out []segment.Op) {
	for _, op := range ops {
		if op.Kind == segment.Set && len(op.Key) > 0 && meta.Table(op.Key[0]) == meta.Cookies {
			out = append(out, op)
		}
	}
	return out
}

// PathsOf returns a path of each of these inodes, for people. later are operations that are not
// applied, in order. An inode without a name gets a word that says so. It needs no journal.
func (e *Engine) PathsOf(inodes map[uint64]uint64, later []segment.Op) (map[uint64]string, error) {
	type link struct {
		dir  uint64
		name string
	}
	links, dirs := map[uint64]link{}, map[uint64]bool{}
	view := e.store.Live(nil)
	err := each(view, meta.Inodes, func(key, value []byte) error {
		n, err := meta.DecodeInode(key, value)
		if err == nil && n.Parent.Ino != 0 {
			dirs[n.Ino] = true
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	take := func(key, value []byte, all bool) error {
		d, err := meta.DecodeCookie(key, value)
		if err == nil && (all || dirs[d.Handle.Ino] || inodes[d.Handle.Ino] > 0) {
			links[d.Handle.Ino] = link{meta.Of(key), d.Name}
		}
		return err
	}
	err = each(view, meta.Cookies, func(key, value []byte) error { return take(key, value, false) })
	for _, op := range later {
		if err == nil {
			err = take(op.Key, op.Value, true)
		}
	}
	out := map[uint64]string{}
	for ino := range inodes {
		path := ""
		for at, steps := ino, 0; at != 1; steps++ {
			l, ok := links[at]
			if !ok || steps > maxDepth {
				path = fmt.Sprintf("/… (inode %d has no name here)%s", at, path)
				break
			}
			path = "/" + l.name + path
			at = l.dir
		}
		out[ino] = strings.ToValidUTF8(path, "?")
		if path == "" {
			out[ino] = "/"
		}
	}
	return out, err
}

// maxDepth ends the search in directories that are damaged.
const maxDepth = 4096
