// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"bytes"
	"fmt"
	"sort"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// allSnapshots checks that snapshots, names and what they have in common agree (fsck-11).
func (c *checker) allSnapshots() error {
	c.step("snapshots", uint64(len(c.kept)))
	bad := func(format string, args ...any) {
		c.add(Finding{Kind: Snapshot, Detail: fmt.Sprintf(format, args...)})
	}
	v := &c.versions
	names := map[string]uint32{} // there are at most some thousand
	lo, hi := meta.AllNamed()
	err := c.each(c.View, lo, hi, func(p meta.Pair) error {
		if meta.CheckPair(p.Key, p.Value) == nil {
			gen, _ := meta.DecodeNamed(p.Key, p.Value)
			names[string(p.Key[1:len(p.Key)-5])] = gen
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.dirty && len(c.kept) == 0 && v.Last == 0 {
		return nil // what they have in common does not parse, perhaps
	}
	for i, s := range c.kept {
		c.progress.Done++
		if s.Gen == 0 || s.Gen > v.Last {
			bad("snapshot %d %q is there, and the last one taken is %d", s.Gen, s.Name, v.Last)
		}
		if i > 0 && s.Number < c.kept[i-1].Number {
			bad("snapshot %d %q has number %#x, one before has %#x", s.Gen, s.Name, s.Number, c.kept[i-1].Number)
		}
		if i > 0 && s.Time.Before(c.kept[i-1].Time) {
			bad("snapshot %d %q is of %v, one before is of %v", s.Gen, s.Name, s.Time, c.kept[i-1].Time)
		}
		if s.Moment {
			if s.Name != "" {
				bad("moment %d has the name %q", s.Gen, s.Name)
			}
			continue
		}
		c.report.Snapshots++
		if err := volume.CheckSnapshotName(s.Name); err != nil {
			bad("snapshot %d has the name %q: %v", s.Gen, s.Name, err)
		}
		if gen, ok := names[s.Name]; !ok || gen != s.Gen {
			bad("snapshot %d %q is not found by its name: that leads to %d", s.Gen, s.Name, gen)
		} else {
			delete(names, s.Name)
		}
	}
	for name, gen := range names {
		if s := c.snapshot(gen); s == nil || s.Name != name {
			bad("the name %q leads to snapshot %d, which is not there or has another name", name, gen)
		}
	}
	newest, number := uint32(0), uint64(0)
	if n := len(c.kept); n > 0 {
		newest, number = c.kept[n-1].Gen, c.kept[n-1].Number
	}
	if !c.dirty && (v.Newest != newest || v.Number != number) {
		bad("the newest snapshot is %d with number %#x, the volume says %d with %#x", newest, number, v.Newest, v.Number)
	}
	if v.Rolling != 0 && c.snapshot(v.Rolling) == nil {
		bad("the volume is being made what it was in snapshot %d, which is not there", v.Rolling)
	}
	return nil
}

// snapshot returns a snapshot that is kept, or nil.
func (c *checker) snapshot(gen uint32) *meta.Snapshot {
	i := sort.Search(len(c.kept), func(i int) bool { return c.kept[i].Gen >= gen })
	if i < len(c.kept) && c.kept[i].Gen == gen {
		return &c.kept[i]
	}
	return nil
}

// after returns the first snapshot that is kept of those in (before, upTo], or nil.
func (c *checker) after(before, upTo uint32) *meta.Snapshot {
	i := sort.Search(len(c.kept), func(i int) bool { return c.kept[i].Gen > before })
	if i < len(c.kept) && c.kept[i].Gen <= upTo {
		return &c.kept[i]
	}
	return nil
}

// cleaned reports whether nothing may be left of snapshots that were dropped.
func (c *checker) cleaned() bool { return !c.dirty && c.versions.Dropped == 0 }

// history checks the entries of the history (fsck-12).
func (c *checker) history() error {
	c.step("history", 0)
	var last []byte
	var before uint32
	lo, hi := meta.AllHistory(nil)
	return c.each(c.View, lo, hi, func(p meta.Pair) error {
		if meta.CheckPair(p.Key, p.Value) != nil {
			return nil // allPairs tells it
		}
		k, gen, err := meta.SplitHistory(p.Key)
		if err != nil {
			return c.stop(err)
		}
		if meta.Table(k[0]) == meta.Extents {
			if value, exists, err := meta.DecodeHistory(p.Key, p.Value); err == nil && exists {
				if x, err := meta.DecodeExtent(k, value); err == nil {
					c.held += uint64(x.Len)
				}
			}
		}
		if !bytes.Equal(k, last) {
			last, before = k, 0
		}
		needed := c.after(before, gen)
		before = gen
		f := Finding{Kind: History}
		f.Inode, f.content = owner(k)
		s := c.snapshot(gen)
		switch {
		case gen > c.versions.Last && !c.dirty:
			f.Detail = fmt.Sprintf("the history has what %s was in snapshot %d, and the last one taken is %d",
				meta.Table(k[0]), gen, c.versions.Last)
		case s != nil && !meta.Seen(k, s.Number):
			f.Detail = fmt.Sprintf("the history has what %s was in snapshot %d %q, which was taken before it was made",
				meta.Table(k[0]), gen, s.Name)
		case needed == nil && c.cleaned():
			f.Kind = Leftover
			f.Detail = fmt.Sprintf("the history has what %s was in snapshot %d, and no snapshot needs it", meta.Table(k[0]), gen)
		default:
			return nil
		}
		c.add(f)
		return nil
	})
}

// dead checks the contents that no inode has any more (fsck-12). That none has them is checked with
// the inodes.
func (c *checker) dead() error {
	c.step("dead contents", 0)
	lo, hi := meta.AllDead()
	return c.each(c.View, lo, hi, func(p meta.Pair) error {
		if meta.CheckPair(p.Key, p.Value) != nil {
			return nil
		}
		content, d, _ := meta.DecodeDead(p.Key, p.Value)
		gen := d.Gen
		c.held += d.Bytes
		if gen > c.versions.Last && !c.dirty {
			c.add(Finding{Kind: Content, content: content,
				Detail: fmt.Sprintf("content %d is dead since snapshot %d, and the last one taken is %d", content, gen, c.versions.Last)})
		}
		i := sort.Search(len(c.kept), func(i int) bool { return c.kept[i].Number >= content })
		if (i == len(c.kept) || c.kept[i].Gen > gen) && c.cleaned() {
			c.add(Finding{Kind: Leftover, Detail: fmt.Sprintf("content %d is dead, and no snapshot shows it", content)})
		}
		return nil
	})
}
