// SPDX-License-Identifier: Apache-2.0

package log

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// Truncate drops everything after to, with its epochs, and settles a doubt. When it returns, that
// is durable, and so is everything that is left. A crash meanwhile leaves the log ending at to or
// later. to must be the end of a frame, or the start of a segment. Afterwards the log can grow by
// Ingest or BeginEpoch. Errors: ErrGap; ErrNotLocal if to lies inside a segment whose file is not
// here, which Heal fetches; ErrPoisoned for a failure after files were touched.
func (l *Log) Truncate(to Position) error {
	l.writer.Lock()
	defer l.writer.Unlock()
	l.mu.Lock()
	err := l.usable()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	asked := to
	if to, err = l.normal(to); err == nil {
		err = l.checkCut(to)
	}
	if err != nil {
		return fmt.Errorf("truncate log to %v: %w", asked, err)
	}
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.sealer != nil {
		l.sealer.Stop()
		l.sealer = nil
	}
	// What is cut now must not be taken for lost at the next Open.
	l.mu.Lock()
	m := mark{durable: segment.Earlier(l.mark.durable, to), committed: segment.Earlier(l.committed, to)}
	l.mu.Unlock()
	if err := l.mark.begin(l.cfg.Dir, m); err != nil {
		return l.fail("keep the watermark", err)
	}
	if err := l.cutZeros(); err != nil { // what is dropped takes the room that its records take
		return err
	}
	if l.cur != nil {
		if err := l.cur.wait(-1); err != nil { // or it would come to a file that was cut
			return l.fail("write "+fileName(l.cur.seq), err)
		}
	}
	dropped := l.shorten(to)
	if err := l.removeFiles(dropped); err != nil {
		return err
	}
	if to == (Position{}) {
		if err := l.removeTable(); err != nil {
			return err
		}
	}
	if last := l.last(); last != nil && last.local {
		if err := l.forgetAfter(last.header.Seq - 1); err != nil { // before its file changes
			return err
		}
		l.hash = nil
		if err := l.reopenLast(); err != nil {
			return l.fail("truncate", err)
		}
	}
	err = l.cfg.Dir.Sync()
	if err == nil {
		err = l.forgetPoison()
	}
	if err != nil {
		return l.fail("fsync directory", err)
	}
	if err := l.advance(l.end); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.poison != nil {
		return l.poison
	}
	l.durable, l.want, l.doubt, l.settled = l.end, l.end, nil, true
	l.announce()
	return nil
}

// checkCut checks that a frame ends at to. The caller holds writer.
func (l *Log) checkCut(to Position) error {
	if to == (Position{}) || to == l.end || to == (Position{Seq: l.base.Seq, Off: l.base.Len}) {
		return nil
	}
	s, ok := l.find(to.Seq)
	if !ok {
		return fmt.Errorf("%w: the log begins with segment %d", ErrNotLocal, l.base.Seq+1)
	}
	if to == s.end() {
		return nil
	}
	l.mu.Lock()
	local := s.local
	l.mu.Unlock()
	if !local {
		return fmt.Errorf("%w: segment %d", ErrNotLocal, to.Seq)
	}
	h, err := l.files.acquire(to.Seq)
	if err != nil {
		return err
	}
	defer l.files.release(h)
	got, err := segment.Scan(io.NewSectionReader(h, 0, int64(to.Off)), nil)
	if err != nil {
		return err
	}
	if got.Valid != to.Off {
		return fmt.Errorf("no frame ends there; one ends at %d: %w", got.Valid, got.Why)
	}
	return nil
}

// shorten publishes the new end and returns the segments that are dropped. From then on readers
// never see more, and notice that they may have read while files changed.
func (l *Log) shorten(to Position) []seg {
	l.mu.Lock()
	defer l.mu.Unlock()
	keep := 0
	for keep < len(l.segs) && l.segs[keep].header.Seq <= to.Seq {
		keep++
	}
	dropped := slices.Clone(l.segs[keep:])
	l.setSegs(l.segs[:keep])
	if last := l.last(); last != nil {
		l.update(last, func(s *seg) { s.len = to.Off })
	}
	l.end = to
	if to == (Position{}) {
		l.base = segment.Link{}
	}
	if len(l.segs) == 0 {
		l.end = Position{Seq: l.base.Seq, Off: l.base.Len}
	}
	l.durable, l.committed = segment.Earlier(l.durable, l.end), segment.Earlier(l.committed, l.end)
	l.want = l.durable
	l.gen++
	l.tail.reset()
	if len(dropped) > 0 && l.cur != nil {
		l.files.release(l.cur)
		l.cur = nil
	}
	l.unsynced, l.hash = 0, nil
	return dropped
}

// removeFiles removes the files of dropped segments and strays, last first. Each removal is durable
// before the next, so that a crash leaves no hole. The caller holds writer, tableMu and syncMu.
func (l *Log) removeFiles(dropped []seg) error {
	var were []tableEntry
	for i := range dropped {
		if dropped[i].local {
			l.strays = append(l.strays, cachepool.FileInfo{Name: fileName(dropped[i].header.Seq), Size: int64(dropped[i].len)})
		}
		if dropped[i].noted {
			were = append(were, entryOf(&dropped[i]))
		}
	}
	l.notes.beyond = append(were, l.notes.beyond...)
	slices.SortFunc(l.strays, func(a, b cachepool.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	files := l.strays
	var seqs []uint64 // of files
	for _, f := range files {
		if seq, ok := parseFileName(f.Name); ok {
			seqs = append(seqs, seq)
		}
	}
	for {
		// The table goes first, since every local file that it lists must exist.
		for after, ok := l.forgettable(seqs); ok; after, ok = l.forgettable(seqs) {
			if err := l.forgetAfter(after); err != nil {
				return err
			}
		}
		if len(files) == 0 {
			break
		}
		f := files[len(files)-1]
		files = files[:len(files)-1]
		if seq, ok := parseFileName(f.Name); ok {
			l.files.drop(seq)
			seqs = seqs[:len(seqs)-1]
		}
		if err := l.cfg.Dir.Remove(f.Name); err != nil {
			return l.fail("remove "+f.Name, err)
		}
		if err := l.cfg.Dir.Sync(); err != nil {
			return l.fail("fsync directory", err)
		}
		l.cfg.Room.Release(f.Size)
	}
	l.strays = nil
	return nil
}

// forgettable returns the segment after which the table may forget all now; false: there is
// nothing. Given are the files that are to be removed, in order. A segment that has a file is one
// without its entry too, so a run of files at the end may lose theirs at once. Of what was evicted
// the log knows by the entry alone: it goes when no file is left behind it, or Open would find a
// hole.
func (l *Log) forgettable(files []uint64) (after uint64, ok bool) {
	b, n := l.notes.beyond, len(files)
	if len(b) == 0 {
		return 0, false
	}
	last := b[len(b)-1].seq
	if n == 0 || files[n-1] < last {
		after = l.end.Seq
		if n > 0 {
			after = max(after, files[n-1])
		}
		return after, true
	}
	for n--; n > 0 && files[n-1] == files[n]-1; n-- {
	}
	return max(l.end.Seq, files[n]-1), files[n] <= last
}

// rehash returns the hash of the first n bytes of r.
func rehash(r io.ReaderAt, n uint64) (segment.Hash, error) {
	h := blake3.New()
	got, err := io.Copy(h, io.NewSectionReader(r, 0, int64(n)))
	if err == nil && uint64(got) != n {
		err = io.ErrUnexpectedEOF
	}
	return sum(h), err
}
