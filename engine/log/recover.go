// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// Open opens the log in cfg.Dir, which may be empty, and recovers it. It keeps the valid prefix,
// makes it durable, and cuts a torn tail. A tail is torn only above the watermark: what is missing
// below it was told to be durable, and is lost. Open reads the end of the log from the disk, not
// from what an earlier process left in memory. It reports anything else that is wrong in Recovered,
// and then changes nothing on the pool. It returns an error only if something keeps it from finding
// out.
//
// Open reads the last segment whole, and each one that the segment table does not list: a crash may
// have taken the note of the last ones. Of one that is listed it compares the header and the length
// with the table. The contents of that are verified when they are read, and by Heal, which comes
// before each upload. The last segment counts as closed only when the next one follows.
func Open(cfg Config) (*Log, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	l := &Log{cfg: cfg, changed: make(chan struct{}), tail: tail{max: cfg.TailBytes}, ahead: cfg.Dir.Ahead()}
	l.files = l.newFiles()
	if err := l.recover(); err != nil {
		err = fmt.Errorf("open log in %s: %w", cfg.Dir.Path(), err)
		if l.mark != nil {
			err = errors.Join(err, l.mark.close())
		}
		err = errors.Join(err, l.closeTable())
		return nil, errors.Join(err, l.files.closeAll())
	}
	return l, nil
}

func (l *Log) recover() error {
	local, sizes, err := l.listFiles()
	if err != nil {
		return err
	}
	doubt := func(format string, args ...any) {
		if l.doubt == nil {
			l.doubt = fmt.Errorf(format, args...)
		}
	}
	l.mark, err = openWatermark(l.cfg.Dir)
	if errors.Is(err, errWatermark) {
		l.mark = &watermark{}
		doubt("%w", err)
	} else if err != nil {
		return err
	}
	t, f, slots, err := readTable(l.cfg.Dir)
	if err != nil && !errors.Is(err, errTable) {
		return err // it may be there the next time
	}
	if err != nil {
		// Without the table, what was evicted is missing. If that matters, it is found below.
		l.cfg.Logger.Warn("segment table is unreadable; rebuilding it", slog.String("path", l.cfg.Dir.Path()), slog.Any("error", err))
		t = table{}
	}
	l.notes = notes{base: t.base, file: f, slots: slots, live: len(t.entries)}
	l.base = t.base
	seqs := slices.Clone(local)
	for i := range t.entries {
		if _, ok := slices.BinarySearch(local, t.entries[i].seq); !ok {
			seqs = append(seqs, t.entries[i].seq)
		}
	}
	slices.Sort(seqs)
	heads, err := l.readHeads(&t, local, sizes)
	if err != nil {
		return err
	}

	link := l.base
	for i, seq := range seqs {
		if seq != link.Seq+1 {
			doubt("segment %d is missing: the log goes from %d to %d", link.Seq+1, link.Seq, seq)
			break
		}
		_, isLocal := slices.BinarySearch(local, seq)
		s, found, err := l.examine(&t, heads, seq, link, isLocal, i == len(seqs)-1)
		if err != nil {
			return err
		}
		if found != nil {
			doubt("%w", found)
		}
		if s == nil {
			break
		}
		if found != nil {
			s.closed = false
		}
		l.addSeg(*s)
		link = s.link()
		if found != nil {
			break
		}
	}
	if last := l.last(); last != nil {
		l.end = last.end()
	} else {
		l.end = Position{Seq: l.base.Seq, Off: l.base.Len}
	}
	if l.doubt == nil {
		if err := l.cutPoisoned(sizes); errors.Is(err, errNote) {
			doubt("%w", err)
		} else if err != nil {
			return err
		}
	}
	i, _ := t.find(l.end.Seq + 1)
	l.notes.beyond = t.entries[i:]
	switch {
	case l.cfg.Lost != nil:
		doubt("%w", l.cfg.Lost)
	case l.mark.lost:
		doubt("another copy knows that something is committed which this log does not have")
	case l.end.Less(l.mark.durable):
		doubt("the log ends at %v, but was durable up to %v", l.end, l.mark.durable)
	case l.end.Less(l.cfg.KnownApplied):
		doubt("the log ends at %v, but was known to reach %v", l.end, l.cfg.KnownApplied)
	}
	for _, seq := range local {
		if s, ok := l.find(seq); !ok || !s.local {
			l.strays = append(l.strays, cachepool.FileInfo{Name: fileName(seq), Size: sizes[seq]})
		}
	}
	l.recovered.End, l.recovered.Doubt, l.recovered.Committed = l.end, l.doubt, l.known()
	b := l.cfg.Believe
	if !b.Identity.IsZero() && b.End != (Position{}) && !l.end.Less(b.End) && (l.doubt != nil || b.Identity != l.mark.identity) {
		return l.believe() // others know it by that identity, also if all is there again
	}
	if l.doubt != nil {
		// Leave the log as it is, for whoever investigates. Nothing of it counts as durable.
		l.hash, l.recovered.CutBytes = nil, 0
		return nil
	}
	return l.settle()
}

// believe goes on with what is left of a log in doubt. Others know it as another log from now on.
// After a crash meanwhile it is still in doubt.
func (l *Log) believe() error {
	if err := l.mark.close(); err != nil {
		return err
	}
	l.cfg.KnownApplied = segment.Earlier(l.cfg.KnownApplied, l.end)
	l.mark = &watermark{identity: l.cfg.Believe.Identity, mark: mark{committed: segment.Earlier(l.mark.committed, l.end)}}
	l.doubt, l.hash, l.recovered.Committed = nil, nil, l.known()
	return l.settle()
}

// known returns how far the log is certainly committed.
func (l *Log) known() Position {
	if l.mark.committed.Less(l.cfg.KnownApplied) {
		return l.cfg.KnownApplied
	}
	return l.mark.committed
}

// listFiles returns the segments' files in ascending order. Temporary files become strays.
func (l *Log) listFiles() ([]uint64, map[uint64]int64, error) {
	files, err := l.cfg.Dir.List()
	if err != nil {
		return nil, nil, err
	}
	var seqs []uint64
	sizes := map[uint64]int64{}
	l.findLoans(files)
	for _, f := range files {
		if strings.HasSuffix(f.Name, ".tmp") {
			l.strays = append(l.strays, f)
		} else if seq, ok := parseFileName(f.Name); ok {
			seqs = append(seqs, seq)
			sizes[seq] = f.Size
		}
	}
	slices.Sort(seqs)
	return seqs, sizes, nil
}

// parseFileName is the inverse of fileName.
func parseFileName(name string) (uint64, bool) {
	hex, ok := strings.CutSuffix(name, ".seg")
	seq, err := strconv.ParseUint(hex, 16, 64)
	return seq, ok && err == nil && seq > 0 && fileName(seq) == name
}

// head is the header of a file that the table lists, and the file's length. Header is zero if it
// does not decode.
type head struct {
	segment.Header
	size int64
}

// headsAtOnce is how many headers Open reads at a time.
const headsAtOnce = 16

// readHeads reads the headers of the files that the table lists, but for the last one, which is
// read whole.
func (l *Log) readHeads(t *table, local []uint64, sizes map[uint64]int64) (map[uint64]head, error) {
	var mu sync.Mutex
	heads := map[uint64]head{}
	var g errgroup.Group
	g.SetLimit(headsAtOnce)
	for _, seq := range local {
		if i, ok := t.find(seq); !ok || t.entries[i].away() || seq == local[len(local)-1] {
			continue
		}
		g.Go(func() error {
			f, err := l.cfg.Dir.Open(fileName(seq))
			if err != nil {
				return err
			}
			b := make([]byte, min(sizes[seq], segment.HeaderSize))
			if err := errors.Join(readFull(f, b, 0), f.Close()); err != nil {
				return fmt.Errorf("read %s: %w", l.path(seq), err)
			}
			h, _ := segment.DecodeHeader(b) // what does not decode is zero, which is no segment's
			mu.Lock()
			defer mu.Unlock()
			heads[seq] = head{h, sizes[seq]}
			return nil
		})
	}
	return heads, g.Wait()
}

// examine inspects segment seq, which must follow link. It returns nil if nothing of the segment is
// usable. found is a doubt.
func (l *Log) examine(t *table, heads map[uint64]head, seq uint64, link segment.Link, isLocal, isLast bool) (s *seg, found, err error) {
	i, inTable := t.find(seq)
	if inTable {
		e := t.entries[i]
		s = &seg{
			header: e.header(l.cfg.Volume, link),
			len:    e.len, hash: e.hash, closed: true, noted: true,
			uploaded: e.state == storedToo || e.state == evicted, dropped: e.state == dropped, local: isLocal && !e.away(),
		}
		switch {
		case e.away(): // a file is left if Evict or Heal did not finish
			return s, nil, nil
		case !isLocal:
			return nil, fmt.Errorf("the file of segment %d is missing and was not evicted", seq), nil
		}
		h, read := heads[seq]
		switch {
		case read && h.Header == s.header && uint64(h.size) == s.len:
			return s, nil, nil
		case read && s.uploaded:
			return nil, fmt.Errorf("%s is not what the segment table says: %d bytes, want %d; header %+v",
				l.path(seq), h.size, s.len, h.Header), nil
		}
	}
	h, err := l.files.acquire(seq)
	if err != nil {
		return nil, nil, err
	}
	defer l.files.release(h)
	if isLast {
		// What a failed fsync left in memory is on no disk.
		if err := errors.Join(h.Sync(), h.Forget()); err != nil {
			return nil, nil, err
		}
	}
	size, err := h.Size()
	if err != nil {
		return nil, nil, err
	}
	return l.scan(h, seq, size, s, link, isLast)
}

// scan reads a whole segment. known is the table's entry for it, or nil.
func (l *Log) scan(h *handle, seq uint64, size int64, known *seg, link segment.Link, isLast bool) (s *seg, found, err error) {
	hash := blake3.New()
	got, err := segment.Scan(io.NewSectionReader(h, 0, size), func(_ uint64, frame []byte) error {
		_, err := hash.Write(frame)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", l.path(seq), err)
	}
	if got.Valid == 0 {
		if isLast && known == nil && size <= segment.HeaderSize {
			return nil, nil, nil // its header never reached the disk, so settle removes the file
		}
		return nil, fmt.Errorf("segment %d in %s: %w", seq, l.path(seq), got.Why), nil
	}
	s = &seg{header: got.Header, len: got.Valid, hash: sum(hash), local: true, closed: !isLast, noted: known != nil}
	switch {
	case got.Header.Volume != l.cfg.Volume:
		return nil, fmt.Errorf("segment %d in %s is of volume %x", seq, l.path(seq), got.Header.Volume), nil
	case got.Header.Seq != seq || got.Header.Prev != link:
		return nil, fmt.Errorf("segment %d in %s does not follow the one before: %+v, want %+v",
			seq, l.path(seq), got.Header.Prev, link), nil
	case len(l.segs) > 0 && got.Header.Epoch < l.last().header.Epoch:
		return nil, fmt.Errorf("segment %d in %s: epoch goes back from %d to %d",
			seq, l.path(seq), l.last().header.Epoch, got.Header.Epoch), nil
	case known != nil && (known.header != got.Header || known.len != s.len || known.hash != s.hash):
		return s, fmt.Errorf("segment %d in %s: %d valid bytes are not the %d that the segment table says",
			seq, l.path(seq), s.len, known.len), nil
	case !isLast && got.Tail != segment.Clean:
		return s, fmt.Errorf("segment %d in %s is not the last and ends %v: %w", seq, l.path(seq), got.Tail, got.Why), nil
	}
	if isLast {
		l.hash = newHasher(hash)
		zeros := false
		if got.Tail == segment.Torn {
			if zeros, err = onlyZeros(h, int64(got.Valid), size); err != nil {
				return nil, nil, fmt.Errorf("read %s: %w", l.path(seq), err)
			}
		}
		if !zeros { // else they were written ahead, and nothing was there
			l.recovered.CutBytes = size - int64(got.Valid)
		}
		if got.Tail != segment.Clean && !zeros {
			l.cfg.Logger.Warn("cutting the end of the log", slog.String("path", l.path(seq)), slog.String("tail", got.Tail.String()),
				slog.Uint64("valid", got.Valid), slog.Int64("cut", l.recovered.CutBytes), slog.Any("why", got.Why))
		}
	}
	return s, nil, nil
}

// settle prepares a log without doubts. It cuts the torn tail and fsyncs the rest, because what can
// be read after a restart need not be on the disk yet.
func (l *Log) settle() error {
	for _, f := range l.strays {
		if seq, ok := parseFileName(f.Name); ok {
			l.files.drop(seq)
			if seq > l.end.Seq {
				l.recovered.CutBytes += f.Size
			}
		}
	}
	if err := l.removeFiles(nil); err != nil {
		return err
	}
	if last := l.last(); last != nil && last.local {
		// The segment may grow again, so what was noted or uploaded of it may differ from it.
		if err := l.forgetAfter(last.header.Seq - 1); err != nil {
			return err
		}
	}
	if err := l.copyLast(); err != nil {
		return err
	}
	if last := l.last(); last != nil && last.local {
		if err := l.reopenLast(); err != nil {
			return err
		}
	}
	if err := l.cfg.Dir.Sync(); err != nil {
		return err
	}
	if l.mark.file == nil && l.end == (Position{}) {
		id, err := cachepool.NewID(l.cfg.Rand)
		if err != nil {
			return err
		}
		l.mark.identity = id
	}
	if err := l.mark.begin(l.cfg.Dir, mark{durable: l.end, committed: l.known()}); err != nil {
		return err
	}
	if err := l.forgetPoison(); err != nil {
		return err
	}
	l.durable, l.committed, l.settled, l.identity = l.end, l.mark.committed, true, l.mark.identity
	for i := range l.segs {
		if s := &l.segs[i]; s.closed && !s.noted {
			l.unnoted = append(l.unnoted, s.header.Seq)
		}
	}
	return l.noteClosed()
}

// reopenLast makes the last segment, whose file is here, the current one. It cuts the file to its
// length, fsyncs it, marks the segment as not closed, and continues its hash. The caller holds
// writer and syncMu.
func (l *Log) reopenLast() error {
	last := l.last()
	seq := last.header.Seq
	h, err := l.files.acquire(seq)
	if err != nil {
		return err
	}
	size, err := h.Size()
	if err == nil && size != int64(last.len) {
		err = h.Truncate(int64(last.len))
	}
	if err == nil {
		err = h.Sync()
	}
	if err == nil && l.hash == nil {
		sofar := blake3.New()
		_, err = io.Copy(sofar, io.NewSectionReader(h, 0, int64(last.len)))
		l.hash = newHasher(sofar)
	}
	if err != nil {
		l.files.release(h)
		return fmt.Errorf("reopen %s: %w", l.path(seq), err)
	}
	l.cfg.Room.Release(size - int64(last.len))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.update(last, func(s *seg) { s.closed, s.uploaded, s.hash = false, false, segment.Hash{} })
	if l.cur != nil {
		l.files.release(l.cur)
	}
	l.cur, l.unsynced, l.size = h, 0, 0
	return nil
}
