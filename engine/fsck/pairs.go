// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// everything is beyond all keys.
var everything = bytes.Repeat([]byte{0xff}, 64)

// allPairs looks at each key and value by itself (fsck-1, fsck-2), and at results (fsck-3).
func (c *checker) allPairs() error {
	c.step("keys and values", 0)
	var slot string // of the last result
	var seq *uint32 // newest of that slot; nil: not known
	return c.each(c.View, []byte{0}, everything, func(p meta.Pair) error {
		c.report.Pairs++
		if err := meta.CheckPair(p.Key, p.Value); err != nil {
			var bad *meta.CorruptError
			if !errors.As(err, &bad) {
				return c.stop(err)
			}
			c.dirty = true
			f := Finding{Kind: Malformed, Detail: err.Error()}
			f.Inode, f.content = owner(p.Key)
			c.add(f)
			return nil
		}
		switch meta.Table(p.Key[0]) {
		case meta.Extents:
			c.report.Extents++
		case meta.Results:
			if s := meta.SlotOf(p.Key); s != slot || seq == nil {
				slot = s
				var err error
				if seq, err = c.newestOf(s); err != nil {
					return err
				}
			}
			if got, _, _ := meta.DecodeResult(p.Key, p.Value); seq != nil && int32(got-*seq) > 0 {
				c.add(Finding{Kind: Result, Detail: fmt.Sprintf("slot %q has a result of request %d, the newest is %d", slot, got, *seq)})
			}
		}
		c.numbers(p)
		return nil
	})
}

// owner returns the inode or content that a key is about, as far as its key tells.
func owner(k []byte) (ino, content uint64) {
	if len(k) > 1 && meta.Table(k[0]) == meta.Histories {
		k = k[1:]
	}
	if len(k) < 9 {
		return 0, 0
	}
	switch meta.Table(k[0]) {
	case meta.Cookies, meta.Inodes, meta.Names, meta.Targets, meta.Orphans, meta.Xattrs:
		return meta.Of(k), 0
	case meta.Extents:
		return 0, meta.Of(k)
	}
	return 0, 0
}

// newestOf returns the newest sequence number of a slot; nil: it does not parse, or there is none,
// which is a finding.
func (c *checker) newestOf(slot string) (*uint32, error) {
	key := meta.SlotKey(slot)
	value, ok, err := c.get(c.View, key)
	if err != nil {
		return nil, err
	}
	if !ok {
		c.add(Finding{Kind: Result, Detail: fmt.Sprintf("slot %q has results, and no newest request", slot)})
		return nil, nil
	}
	seq, err := meta.DecodeSeq(key, value)
	if err != nil {
		return nil, nil // allPairs tells it
	}
	return &seq, nil
}

// numbers checks that the numbers in a pair, which parses, were given already.
func (c *checker) numbers(p meta.Pair) {
	k := p.Key
	var got []uint64
	f := Finding{Kind: Number}
	f.Inode, f.content = owner(k)
	entry := func(d meta.Dirent) { got = append(got, meta.Of(k), d.Cookie, d.Handle.Ino) }
	switch meta.Table(k[0]) {
	case meta.Cookies:
		d, _ := meta.DecodeCookie(k, p.Value)
		entry(d)
	case meta.Names:
		d, _ := meta.DecodeName(k, p.Value, "")
		entry(d)
	case meta.Dead, meta.Extents, meta.Targets, meta.Orphans, meta.Xattrs:
		got = append(got, meta.Of(k))
	case meta.Waste:
		_, w, _ := meta.DecodeWasted(k, p.Value)
		got = append(got, meta.Of(k), w.Dir)
	case meta.Histories:
		got = append(got, meta.Of(k[1:]))
	case meta.Snapshots:
		s, _ := meta.DecodeSnapshot(k, p.Value)
		got = append(got, s.Number)
	case meta.Versions:
		got = append(got, c.versions.Number, c.versions.Changed, c.versions.Dropped)
	case meta.Inodes:
		n, _ := meta.DecodeInode(k, p.Value)
		got = append(got, n.Ino, n.Change, n.Content, n.Trash)
		if n.Handle != volume.Root && n.Gen != n.Ino>>40 {
			f.Detail = fmt.Sprintf("inode %d has generation %d, its number is of epoch %d", n.Ino, n.Gen, n.Ino>>40)
			c.add(f)
		}
	}
	for _, n := range got {
		if n >= c.Next {
			f.Detail = fmt.Sprintf("%s has number %#x, and the home would give %#x next", meta.Table(k[0]), n, c.Next)
			c.add(f)
		}
	}
}
