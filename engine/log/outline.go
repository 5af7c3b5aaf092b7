// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// outlineName is the file that has the headers of an outline's segments, one after the other.
const outlineName = "outline"

// OpenOutline opens the log of a gateway that has no copy of the volume, but follows it (ADR 22).
// An outline knows the headers of the segments, and none of their records: ReadBlocks and what else
// reads blocks goes to the read cache and the Sources. Of the headers, those that are on the disk
// are known. Outline adds to it, and nothing else does.
//
// Errors: ErrDiverged if what is there does not reach KnownApplied. Then the metadata are of
// another log, or are ahead of this one, and the owner begins both anew.
func OpenOutline(cfg Config) (*Log, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	l := &Log{cfg: cfg, changed: make(chan struct{}), mark: &watermark{}, outline: &outline{}}
	l.files = l.newFiles()
	f, err := cfg.Dir.Open(outlineName)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = cfg.Dir.Create(outlineName); err == nil {
			err = cfg.Dir.Sync() // or its headers would be lost with its name
		}
	}
	if err != nil {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		return nil, fmt.Errorf("open outline in %s: %w", cfg.Dir.Path(), err)
	}
	l.outline.file = f
	if err := l.readHeaders(); err != nil {
		return nil, errors.Join(fmt.Errorf("open outline in %s: %w", cfg.Dir.Path(), err), f.Close())
	}
	known := cfg.KnownApplied
	if s, ok := l.find(known.Seq); known != (Position{}) && (!ok || s.closed && s.len < known.Off) {
		return nil, errors.Join(fmt.Errorf("open outline in %s: it ends at %v, before %v: %w", cfg.Dir.Path(), l.end, known, ErrDiverged),
			f.Close())
	} else if ok && !s.closed {
		s.len = max(s.len, known.Off)
		l.end = s.end()
	}
	return l, nil
}

// BeginOutline makes an outline that nobody has open, and that has nothing, one that knows the
// headers of the given segments, which a checkpoint lists. They are consecutive, from the first one
// on. They are durable when it returns.
func BeginOutline(dir cachepool.Dir, volume segment.VolumeID, segments []SegmentInfo) error {
	var b []byte
	for _, in := range segments {
		h := segment.Header{Volume: volume, Seq: in.Seq, Epoch: in.Epoch, Key: in.Key, Salt: in.Salt, Prev: in.Prev}
		b = segment.AppendHeader(b, h)
	}
	if err := cachepool.Replace(dir, outlineName+".tmp", outlineName, b); err != nil {
		return fmt.Errorf("begin outline in %s: %w", dir.Path(), err)
	}
	return nil
}

// RemoveOutline removes what an outline, which nobody has open, has in a folder.
func RemoveOutline(dir cachepool.Dir) error {
	if err := dir.Remove(outlineName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove outline in %s: %w", dir.Path(), err)
	}
	return dir.Sync()
}

// outline is what only an outline has. Log.writer guards it.
type outline struct {
	file  cachepool.File
	bytes int64 // of whole headers in file
}

// readHeaders reads the outline's file, up to what a crash left unfinished.
func (l *Log) readHeaders() error {
	size, err := l.outline.file.Size()
	if err != nil {
		return err
	}
	b := make([]byte, size)
	if err := readFull(l.outline.file, b, 0); err != nil {
		return err
	}
	for len(b) >= segment.HeaderSize {
		h, err := segment.DecodeHeader(b)
		if err != nil || !l.follows(h) {
			break
		}
		l.addOutline(h)
		l.outline.bytes += segment.HeaderSize
		b = b[segment.HeaderSize:]
	}
	return nil
}

// follows reports whether a segment may come after those that are known.
func (l *Log) follows(h segment.Header) bool {
	last := l.last()
	if h.Volume != l.cfg.Volume || h.Epoch == 0 {
		return false
	}
	if last == nil {
		return h.Seq == 1
	}
	return h.Seq == last.header.Seq+1 && h.Epoch >= last.header.Epoch && h.Prev.Len >= last.len && h.Prev.Len <= segment.MaxOffset
}

// addOutline adds a segment that follows. The caller holds mu, or nobody else has l yet.
func (l *Log) addOutline(h segment.Header) {
	if last := l.last(); last != nil {
		last.closed, last.len, last.hash = true, h.Prev.Len, h.Prev.Hash
	}
	l.addSeg(seg{header: h, len: segment.HeaderSize})
	l.end = l.last().end()
}

// Outline takes in frames that begin at from: headers as they are, and records without their
// blocks, see segment.Outline. It returns them as entries, and where they end. Headers are durable
// when it returns. What it knows already it returns again. The caller passes only what is
// committed.
//
// Errors: ErrDiverged if a header does not follow; segment.ErrCorrupt. The entries before are
// valid.
func (l *Log) Outline(from Position, frames [][]byte) (entries []Entry, next Position, err error) {
	l.writer.Lock()
	defer l.writer.Unlock()
	next = from
	for _, frame := range frames {
		var e Entry
		if bytes.HasPrefix(frame, []byte("WEIR")) {
			e, err = l.outlineHeader(frame)
		} else {
			e, err = l.outlineRecord(next, frame)
		}
		if err != nil {
			return entries, next, fmt.Errorf("outline after %v: %w", next, err)
		}
		entries, next = append(entries, e), e.End
	}
	return entries, next, nil
}

func (l *Log) outlineHeader(frame []byte) (Entry, error) {
	h, err := segment.DecodeHeader(frame)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{End: Position{Seq: h.Seq, Off: segment.HeaderSize}, Header: &h}
	l.mu.Lock()
	err = l.usable()
	known, ok := l.find(h.Seq)
	if ok && known.header == h {
		l.mu.Unlock()
		return e, err
	}
	fits := !ok && l.follows(h)
	l.mu.Unlock()
	switch {
	case err != nil:
		return Entry{}, err
	case !l.reads(h):
		return Entry{}, fmt.Errorf("segment %d is sealed with data key %d: %w", h.Seq, h.Key, ErrNoKey)
	case !fits:
		return Entry{}, fmt.Errorf("segment %d of epoch %d does not follow: %w", h.Seq, h.Epoch, ErrDiverged)
	}
	if _, err := l.outline.file.WriteAt(frame[:segment.HeaderSize], l.outline.bytes); err != nil {
		return Entry{}, err
	}
	if err := l.outline.file.Sync(); err != nil {
		return Entry{}, err
	}
	l.outline.bytes += segment.HeaderSize
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addOutline(h)
	return e, nil
}

func (l *Log) outlineRecord(at Position, frame []byte) (Entry, error) {
	l.mu.Lock()
	err := l.usable()
	var s seg
	if sp, ok := l.find(at.Seq); ok {
		s = *sp
	} else if err == nil {
		err = fmt.Errorf("a record where a segment must begin: %w", ErrDiverged)
	}
	l.mu.Unlock()
	if err != nil {
		return Entry{}, err
	}
	o, err := l.opener(s.header)
	if err != nil {
		return Entry{}, err
	}
	r, size, err := o.DecodeOutline(frame, at.Off)
	if err != nil {
		return Entry{}, err
	}
	end := Position{Seq: at.Seq, Off: at.Off + uint64(size)}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch sp, _ := l.find(at.Seq); {
	case sp.closed && sp.len < end.Off:
		return Entry{}, fmt.Errorf("segment %d ends at %d: %w", at.Seq, sp.len, ErrDiverged)
	case !sp.closed && sp.len < end.Off:
		sp.len = end.Off
		l.end = end
	}
	return Entry{End: end, Record: r}, nil
}

// closeOutline is Close of an outline.
func (l *Log) closeOutline() error {
	l.writer.Lock()
	defer l.writer.Unlock()
	l.mu.Lock()
	was := l.closed
	l.closed = true
	l.mu.Unlock()
	if was {
		return nil
	}
	return errors.Join(l.outline.file.Close(), l.files.closeAll())
}

// named reports whether other gateways can be asked for a segment's blocks: a log knows only closed
// segments by a name. The caller of an outline asks for what is committed, wherever it is.
func (l *Log) named(s *seg) bool { return s.closed || l.outline != nil }

// nameOf returns the name under which others have a segment, see named.
func (l *Log) nameOf(s *seg) string {
	if !s.closed {
		return segment.OpenName(s.header.Volume, s.header.Seq, s.header.Salt)
	}
	return s.name()
}

// HeaderOf returns the header of a segment, closed or not.
func (l *Log) HeaderOf(seq uint64) (segment.Header, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.find(seq)
	if !ok {
		return segment.Header{}, false
	}
	return s.header, true
}

// Has reports whether a position lies in the log.
func (l *Log) Has(p Position) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.normal(p)
	return err == nil
}

// Find returns a segment by its name, closed or open; false: this log has no such segment. Of one
// that is open by that name and closed here, Name is that of the closed one.
func (l *Log) Find(name string) (SegmentInfo, bool) {
	volume, seq, hash, err := segment.ParseName(name)
	var salt [32]byte
	open := err != nil
	if open {
		volume, seq, salt, err = segment.ParseOpenName(name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.find(seq)
	if err != nil || !ok || volume != l.cfg.Volume || open && s.header.Salt != salt || !open && (!s.closed || s.hash != hash) {
		return SegmentInfo{}, false
	}
	info := s.info()
	if !s.closed {
		info.Name = name
	}
	return info, true
}

// Frames returns the frames of the log from a position on, as Read does, but each for itself and
// records without their blocks, as Outline takes them. It stops at upTo.
func Frames(frames []byte, from, upTo Position) (out [][]byte, end Position, err error) {
	end = from
	for len(frames) > 0 {
		f, err := segment.Next(frames)
		if err != nil {
			return nil, from, err
		}
		after := Position{Seq: end.Seq, Off: end.Off + uint64(len(f.Bytes))}
		var one []byte
		if f.IsHeader {
			h, err := segment.DecodeHeader(f.Bytes)
			if err != nil {
				return nil, from, err
			}
			after, one = Position{Seq: h.Seq, Off: segment.HeaderSize}, slices.Clone(f.Bytes)
		} else if one, err = segment.Outline(f.Bytes); err != nil {
			return nil, from, err
		}
		if upTo.Less(after) {
			break
		}
		out, end, frames = append(out, one), after, frames[len(f.Bytes):]
	}
	return out, end, nil
}
