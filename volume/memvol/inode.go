// SPDX-License-Identifier: Apache-2.0

package memvol

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weir-storage/weir/volume"
)

// inode is one file of any type.
type inode struct {
	attr   volume.Attr
	holds  int
	dir    *directory // of a directory
	target string     // of a symbolic link
	data   content    // of a regular file
	undo   *undo      // memvol-3
	verf   *[8]byte   // of a file that was created Exclusive
	xattrs map[string][]byte
	trash  *inode // of a directory: what was removed from it; nil: nothing was
}

// undo restores a file to its last committed data.
type undo struct {
	size, used uint64
	mtime      time.Time
	spans      []span
	pages      map[uint64]*page // as they were before the first unstable change; nil if absent
	results    []*result        // of the unstable writes, stable once the data is
}

// revert restores n to its last committed data.
func (n *inode) revert() {
	u := n.undo
	n.undo = nil
	n.attr.Size, n.attr.Used, n.attr.Mtime = u.size, u.used, u.mtime
	n.data.spans = u.spans
	for i, p := range u.pages {
		if p == nil {
			delete(n.data.pages, i)
		} else {
			n.data.pages[i] = p
		}
	}
}

// commit makes n's data stable.
func (n *inode) commit() {
	if n.undo == nil {
		return
	}
	for _, r := range n.undo.results {
		r.unstable = false
	}
	n.undo = nil
}

// saveFor remembers the pages that overlap [off, end) before they are changed by
// unstable data.
func (n *inode) saveFor(off, end uint64) {
	if n.undo == nil {
		n.undo = &undo{
			size: n.attr.Size, used: n.attr.Used, mtime: n.attr.Mtime,
			spans: slices.Clone(n.data.spans), pages: make(map[uint64]*page),
		}
	}
	for i := off / pageSize; i*pageSize < end; i++ {
		if _, saved := n.undo.pages[i]; saved {
			continue
		}
		var before *page
		if p := n.data.pages[i]; p != nil {
			before = new(page)
			*before = *p
		}
		n.undo.pages[i] = before
	}
}

// xattrNames returns the names of n's user attributes, sorted.
func (n *inode) xattrNames() []string { return slices.Sorted(maps.Keys(n.xattrs)) }

// directory is the content of a directory: its entries by name and by cookie. No
// cookie is used twice within a directory.
type directory struct {
	parent   *inode
	byName   map[string]*entry
	byCookie []*entry // ascending; those with a nil inode were removed
	dead     int      // how many of byCookie were removed
	cookie   uint64   // the last one used
}

type entry struct {
	name   string
	cookie uint64
	inode  *inode
}

func newDirectory() *directory {
	return &directory{byName: make(map[string]*entry), cookie: 2} // 1 and 2 are for "." and ".."
}

func (d *directory) find(name string) *inode {
	if e := d.byName[name]; e != nil {
		return e.inode
	}
	return nil
}

// put makes n the inode of name. An existing name keeps its cookie.
func (d *directory) put(name string, n *inode) {
	if e := d.byName[name]; e != nil {
		e.inode = n
		return
	}
	d.cookie++
	e := &entry{name: name, cookie: d.cookie, inode: n}
	d.byName[name] = e
	d.byCookie = append(d.byCookie, e)
}

func (d *directory) remove(name string) {
	d.byName[name].inode = nil
	delete(d.byName, name)
	d.dead++
	if d.dead > len(d.byCookie)/2 {
		d.byCookie = slices.DeleteFunc(d.byCookie, func(e *entry) bool { return e.inode == nil })
		d.dead = 0
	}
}

// list returns up to limit entries after a cookie, and whether they are the last.
func (d *directory) list(after uint64, limit int) ([]volume.Entry, bool) {
	i, found := slices.BinarySearchFunc(d.byCookie, after, func(e *entry, c uint64) int { return cmp.Compare(e.cookie, c) })
	if found {
		i++
	}
	var out []volume.Entry
	for _, e := range d.byCookie[i:] {
		if e.inode == nil {
			continue
		}
		if len(out) == limit {
			return out, false
		}
		out = append(out, volume.Entry{Name: e.name, Cookie: e.cookie, Attr: e.inode.attr})
	}
	return out, true
}
