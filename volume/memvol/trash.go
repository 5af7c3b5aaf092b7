// SPDX-License-Identifier: Apache-2.0

package memvol

import (
	"fmt"
	"time"

	"github.com/weir-storage/weir/volume"
)

// wasted reports whether n is a directory in the trash.
func (n *inode) wasted() bool {
	for d := n; d.dir != nil && d.dir.parent != d; d = d.dir.parent {
		if d.dir.parent.trash == d {
			return true
		}
	}
	return false
}

// part takes one name in d from n, into the trash or for good. The entry is removed already.
func (v *Volume) part(d, n *inode, name string, number uint64, now time.Time) {
	if s := n.trash; s != nil { // n is an empty directory
		n.trash = nil
		if len(s.dir.byName) > 0 {
			v.unlink(d, n, number, now)
			v.waste(d, s, name, number, now)
			return
		}
		s.attr.Nlink = 0
		v.dropIfGone(s)
	}
	if !v.trash || n.dir == nil && n.attr.Nlink > 1 || d.wasted() {
		v.unlink(d, n, number, now)
		return
	}
	if n.dir != nil {
		d.attr.Nlink--
	}
	v.waste(d, n, name, number, now)
}

// waste makes an entry of d's trash for n.
func (v *Volume) waste(d, n *inode, name string, number uint64, now time.Time) {
	s := d.trash
	if s == nil {
		v.lastIno++
		s = &inode{attr: d.attr, dir: newDirectory()}
		s.dir.parent = d
		s.attr.Handle, s.attr.Nlink = volume.Handle{Ino: v.lastIno, Gen: v.epoch}, 2
		s.attr.Atime, s.attr.Btime = now, now
		v.table[s.attr.Ino], d.trash = s, s
	}
	if s.dir.find(name) != nil {
		name = fmt.Sprintf("%s~%s-%x", name[:min(len(name), 200)], now.Format("2006-01-02T15-04-05Z"), number)
	}
	if n.dir != nil {
		n.dir.parent = s
		s.attr.Nlink++
	}
	n.attr.Ctime, n.attr.Change = now, number
	s.dir.put(name, n)
	s.changed(number, now)
}
