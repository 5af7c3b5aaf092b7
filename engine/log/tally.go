// SPDX-License-Identifier: Apache-2.0

package log

import (
	"github.com/weir-storage/weir/cachepool/readcache"
)

// tally is what is asked of all segments again and again, kept up as they change. Log.mu guards it.
type tally struct {
	local    uint64 // bytes of files
	unstored uint64 // bytes of segments that wait for an upload
	absent   uint64 // bytes of segments that are neither here nor in the site's store
	stored   uint64 // bytes of segments that are in the site's store
	// No segment before these sequences waits for an upload, could be evicted, or is missing.
	waits, evictable, lacks uint64
	base                    Position         // end of the last dropped segment
	salts                   map[[8]byte]bool // the first bytes of each
}

// waits reports whether s is to be uploaded: no store has it, and it does not change any more.
func (s *seg) waits() bool { return s.closed && s.local && !s.uploaded && !s.mending }

// evictable reports whether the file of s is not the only copy.
func (s *seg) evictable() bool { return s.local && s.uploaded }

// absent reports whether this copy does not have s: neither here nor in the site's store.
func (s *seg) absent() bool { return s.closed && !s.local && !s.uploaded && !s.dropped }

func (t *tally) add(s *seg) {
	if end := s.end(); s.dropped && t.base.Less(end) {
		t.base = end
	}
	if s.absent() {
		t.absent += s.len
		t.lacks = min(t.lacks, s.header.Seq)
	}
	if s.local {
		t.local += s.len
	}
	if s.uploaded {
		t.stored += s.len
	}
	if s.waits() {
		t.unstored += s.len
		t.waits = min(t.waits, s.header.Seq)
	}
	if s.evictable() {
		t.evictable = min(t.evictable, s.header.Seq)
	}
}

func (t *tally) remove(s *seg) {
	if s.absent() {
		t.absent -= s.len
	}
	if s.local {
		t.local -= s.len
	}
	if s.uploaded {
		t.stored -= s.len
	}
	if s.waits() {
		t.unstored -= s.len
	}
}

func (t *tally) salt(s *seg) {
	if t.salts == nil {
		t.salts = map[[8]byte]bool{}
	}
	t.salts[[8]byte(s.header.Salt[:])] = true
}

// update changes a segment of the log. The caller holds mu.
func (l *Log) update(s *seg, change func(*seg)) {
	l.tally.remove(s)
	change(s)
	l.tally.add(s)
}

// sealedUnder returns the segment that has a salt.
func (l *Log) sealedUnder(salt [32]byte) (seq uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.tally.salts[[8]byte(salt[:])] {
		return 0, false
	}
	for i := range l.segs {
		if l.segs[i].header.Salt == salt {
			return l.segs[i].header.Seq, true
		}
	}
	return 0, false
}

// from returns the index of the first segment that may lie at or after seq. The caller holds mu.
func (l *Log) from(seq uint64) int {
	if len(l.segs) == 0 || seq <= l.segs[0].header.Seq {
		return 0
	}
	return int(min(seq-l.segs[0].header.Seq, uint64(len(l.segs))))
}

// Unstored returns the first segments after segment number after that are closed, are here, were
// not noted as stored, and end at or before upTo; limit is the most that it returns. The caller
// owns the result.
func (l *Log) Unstored(after uint64, upTo Position, limit int) (out []SegmentInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.from(l.tally.waits)
	for ; first < len(l.segs) && l.segs[first].closed && !l.segs[first].waits(); first++ {
		l.tally.waits = l.segs[first].header.Seq + 1
	}
	for i := max(first, l.from(after+1)); i < len(l.segs) && len(out) < limit; i++ {
		s := &l.segs[i]
		if !s.closed || upTo.Less(s.end()) {
			break
		}
		if s.waits() {
			out = append(out, s.info())
		}
	}
	return out
}

// Absent returns the first segments after segment number after that this copy does not have: a
// copy that began with a checkpoint fetches them. limit is the most that it returns. The caller
// owns the result.
func (l *Log) Absent(after uint64, limit int) (out []SegmentInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.from(l.tally.lacks)
	for ; first < len(l.segs) && l.segs[first].closed && !l.segs[first].absent(); first++ {
		l.tally.lacks = l.segs[first].header.Seq + 1
	}
	for i := max(first, l.from(after+1)); i < len(l.segs) && len(out) < limit; i++ {
		if s := &l.segs[i]; s.absent() {
			out = append(out, s.info())
		}
	}
	return out
}

// AbsentBytes returns the length of all segments that Absent would return, without what of one of
// them is being fetched and is here already. It is 0 only if there is none.
func (l *Log) AbsentBytes() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tally.absent == 0 {
		return 0
	}
	return l.tally.absent - min(l.fetched, l.tally.absent-1)
}

// StoredBytes returns the length of all segments that were noted as stored.
func (l *Log) StoredBytes() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tally.stored
}

// Bare reports whether this copy has nothing of the log: no file with records, and nothing in the
// site's store.
func (l *Log) Bare() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.segs {
		if s := &l.segs[i]; !s.absent() && !s.dropped {
			return false
		}
	}
	return true
}

// Base returns the end of the last segment that was dropped: what lies before it can not be read in
// order any more, though some of it is there. Zero: nothing was dropped.
func (l *Log) Base() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tally.base
}

// UnstoredBytes returns the length of all segments that Unstored would return.
func (l *Log) UnstoredBytes(upTo Position) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.tally.unstored
	for i := len(l.segs) - 1; i >= 0 && upTo.Less(l.segs[i].end()); i-- {
		if l.segs[i].waits() {
			n -= l.segs[i].len
		}
	}
	return n
}

// Sealed returns the end of the last closed segment that ends at or before upTo; zero: there is
// none.
func (l *Log) Sealed(upTo Position) Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.segs) - 1; i >= 0; i-- {
		if s := &l.segs[i]; s.closed && !upTo.Less(s.end()) {
			return s.end()
		}
	}
	return Position{}
}

// Evictable returns the files of segments that were noted as stored and end at or before upTo,
// oldest first. settled is false if more such files end after upTo. The caller owns files.
func (l *Log) Evictable(upTo Position) (files []readcache.File, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.from(l.tally.evictable)
	for ; first < len(l.segs) && l.segs[first].closed && !l.segs[first].local; first++ {
		l.tally.evictable = l.segs[first].header.Seq + 1
	}
	for i := first; i < len(l.segs); i++ {
		s := &l.segs[i]
		if !s.evictable() {
			continue
		}
		if upTo.Less(s.end()) {
			return files, false
		}
		files = append(files, readcache.File{Segment: readcache.Segment{Seq: s.header.Seq, Hash: s.hash}, Len: int64(s.len)})
	}
	return files, true
}
