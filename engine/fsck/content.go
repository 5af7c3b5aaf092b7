// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"fmt"
	"hash/maphash"
	"sort"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// file checks the extents of an inode (fsck-7, fsck-8).
func (s *state) file(n *meta.Inode) error {
	if n.Type != volume.Regular {
		if n.Used != 0 || n.Content != 0 {
			s.bad(Extents, n.Ino, "it is no file, and says that it uses %d bytes, with content %d", n.Used, n.Content)
		}
		return nil
	}
	content := n.ContentID()
	r := run{Finding: Finding{Inode: n.Ino}, size: n.Size, whole: true}
	if content == n.Ino {
		if err := s.looseUpTo(n.Ino); err != nil {
			return err
		}
		_, whole, err := s.extents.each(n.Ino, func(p meta.Pair) error { return s.extent(&r, p) })
		if err != nil {
			return err
		}
		r.whole = whole
	} else {
		lo, hi := meta.AllExtents(content)
		err := s.each(s.view, lo, hi, func(p meta.Pair) error {
			if meta.CheckPair(p.Key, p.Value) != nil {
				r.whole = false
				return nil
			}
			return s.extent(&r, p)
		})
		if err != nil {
			return err
		}
		if r.n > 0 {
			s.given.add(maphash.Comparable(s.seed, content))
		}
	}
	s.whole = s.whole && r.whole
	s.used.Bytes += r.sum
	if r.whole && r.sum != n.Used {
		s.bad(Extents, n.Ino, "its extents have %d bytes, its inode says %d", r.sum, n.Used)
	}
	return nil
}

// run is the extents of one content, while they are walked over.
type run struct {
	Finding
	size         uint64 // of the file
	n, sum, last uint64
	whole, told  bool
}

// extent checks one extent, which parses.
func (s *state) extent(r *run, p meta.Pair) error {
	x, err := meta.DecodeExtent(p.Key, p.Value)
	if err != nil {
		return err
	}
	f := r.Finding
	f.Kind = Extents
	switch {
	case r.n > 0 && x.Off < r.last:
		f.Detail = fmt.Sprintf("extents overlap at byte %d: one begins there, the one before ends at %d", x.Off, r.last)
	case x.End() > r.size:
		f.Detail = fmt.Sprintf("an extent ends at byte %d of a file of %d bytes", x.End(), r.size)
	}
	if f.Detail != "" && !r.told {
		s.add(f)
		r.told = true
	}
	r.n, r.sum, r.last = r.n+1, r.sum+uint64(x.Len), max(r.last, x.End())
	if why := s.lies(&x); why != "" {
		f := r.Finding
		f.Kind, f.Detail = Block, fmt.Sprintf("bytes %d to %d: %s", x.Off, x.End(), why)
		f.From, f.To, f.Block = x.Off, x.End(), x.Ref
		s.add(f)
	}
	return nil
}

// lies returns why an extent's block is not in the log; empty: it is there.
func (c *checker) lies(x *meta.Extent) string {
	if n, moved := c.packs.moved[x.Ref.Seq]; moved {
		if why := c.packs.lies(n, x); why != "" {
			return why
		}
	} else if c.condemned[x.Ref.Seq] {
		return fmt.Sprintf("segment %d was condemned, and goes or is gone", x.Ref.Seq)
	}
	if c.Segments == nil {
		return ""
	}
	end := x.Ref.Off + uint64(x.Ref.Len)
	length, ok := c.Segments(x.Ref.Seq)
	applied := c.state.Position
	switch {
	case !ok:
		return fmt.Sprintf("the log has no segment %d", x.Ref.Seq)
	case end > length:
		return fmt.Sprintf("the block ends at byte %d of segment %d, which has %d", end, x.Ref.Seq, length)
	case x.Ref.Seq > applied.Seq || x.Ref.Seq == applied.Seq && end > applied.Off:
		return fmt.Sprintf("the block ends at %d/%d, and only what is before %s was applied", x.Ref.Seq, end, applied)
	}
	return ""
}

// looseUpTo steps beyond the extents of contents before of, which are of no inode of their number.
// In the present each of them is another inode's, or dead.
func (s *state) looseUpTo(of uint64) error {
	for s.extents.of < of {
		content := s.extents.of
		r := run{Finding: Finding{content: content}, size: ^uint64(0), told: s.snap.Gen != 0}
		_, _, err := s.extents.each(content, func(p meta.Pair) error {
			if s.snap.Gen != 0 {
				return nil
			}
			return s.extent(&r, p)
		})
		if err != nil {
			return err
		}
		if s.snap.Gen != 0 {
			continue
		}
		_, dead, err := s.get(s.view, meta.DeadKey(content))
		if err != nil {
			return err
		}
		if !dead {
			s.loose.add(maphash.Comparable(s.seed, content))
		}
	}
	return nil
}

// claim is how many inodes have a content.
type claim struct {
	content uint64
	inodes  uint32
	dead    bool
}

// contents checks that each content with extents is of one inode, or dead (fsck-10).
func (s *state) contents() error {
	s.step("contents", 0)
	lo, hi := meta.AllDead()
	err := s.each(s.view, lo, hi, func(p meta.Pair) error {
		key := meta.InodeKey(meta.Of(p.Key))
		value, ok, err := s.get(s.view, key)
		if err != nil || !ok {
			return err
		}
		n, err := meta.DecodeInode(key, value)
		if err == nil && n.Type == volume.Regular && n.ContentID() == n.Ino {
			s.bad(Content, n.Ino, "the file's content %d is said to be dead", n.Ino)
		}
		return nil
	})
	if err != nil || s.loose == s.given {
		return err
	}
	for from, more := uint64(0), true; more; {
		var claims []claim
		if claims, more, err = s.claims(from); err != nil {
			return err
		}
		if len(claims) == 0 {
			break
		}
		from = claims[len(claims)-1].content + 1
		if err := s.claimed(claims); err != nil {
			return err
		}
	}
	return nil
}

// claims returns contents that have extents, from one on, and reports whether there are more.
func (s *state) claims(from uint64) (out []claim, more bool, err error) {
	lo, _ := meta.AllExtents(from)
	_, hi := meta.AllOf(meta.Extents)
	for len(out) < s.Entries {
		next := ^uint64(0)
		for p, err := range s.view.Range(lo, hi) {
			if err != nil {
				return nil, false, s.stop(err)
			}
			if len(p.Key) >= 9 {
				next = meta.Of(p.Key)
			}
			break
		}
		if next == ^uint64(0) {
			return out, false, nil
		}
		_, dead, err := s.get(s.view, meta.DeadKey(next))
		if err != nil {
			return nil, false, err
		}
		out = append(out, claim{content: next, dead: dead})
		_, lo = meta.AllExtents(next)
	}
	return out, true, nil
}

// claimed counts the inodes of contents, which are sorted.
func (s *state) claimed(claims []claim) error {
	lo, hi := meta.AllOf(meta.Inodes)
	err := s.each(s.view, lo, hi, func(p meta.Pair) error {
		if meta.CheckPair(p.Key, p.Value) != nil {
			return nil
		}
		n, err := meta.DecodeInode(p.Key, p.Value)
		if err != nil || n.Type != volume.Regular {
			return err
		}
		i := sort.Search(len(claims), func(i int) bool { return claims[i].content >= n.ContentID() })
		if i == len(claims) || claims[i].content != n.ContentID() {
			return nil
		}
		switch claims[i].inodes++; {
		case claims[i].inodes > 1:
			s.bad(Content, n.Ino, "the file's content %d is also another file's", n.ContentID())
		case claims[i].dead && n.Content != 0:
			s.bad(Content, n.Ino, "the file's content %d is said to be dead", n.ContentID())
		}
		return nil
	})
	if err != nil || s.dirty {
		return err // the inode that has it may be one that does not parse
	}
	for _, c := range claims {
		if c.inodes == 0 && !c.dead {
			s.bad(Leftover, 0, "content %d has extents, is of no file and is not said to be dead", c.content)
		}
	}
	return nil
}
