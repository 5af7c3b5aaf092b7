// SPDX-License-Identifier: Apache-2.0

package rebuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jonboulle/clockwork"
	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// MetaFolder has a copy's metadata, in the volume's folder of a pool.
const MetaFolder = "meta"

// building is what follows the name of that folder while the metadata are made.
const building = ".rebuilding"

// Config is what a rebuild needs. All fields are required.
type Config struct {
	Volume volume.ID
	Store  store.Store
	Keys   *segment.Keys // all data keys that are known; the first must be among them
	Dir    cachepool.Dir // of the volume on a pool; it must have no copy
	Room   log.Room      // of the pool
	FS     vfs.FS        // contains Dir
	Now    func() time.Time
	Clock  clockwork.Clock
	Rand   io.Reader // secure random source
	Logger *slog.Logger
	// AcceptLoss: a person goes on without what is lost.
	AcceptLoss bool
}

// Report is what a rebuild found and made.
type Report struct {
	Objects    int               // that the store has of the volume
	Checkpoint segment.Position  // with which the state begins; zero: with nothing
	End        segment.Position  // of the log, and of the state
	Epoch      uint64            // of the last segment
	Segments   int               // of the log
	Read       int               // segments that were read and applied
	Bytes      uint64            // of these
	Passed     []string          // checkpoints that could not be used, and why; nothing is lost by that
	Left       []string          // segments of branches that were left out by force
	Lost       []Loss            // what is lost
	Took       time.Duration     // until all is in its place
	Infos      []log.SegmentInfo `json:"-"` // of the log
	open       *node             // a segment that had not ended; nil: there is none
	log        log.Config        // to open it again
	engine     engine.Config     // the same
}

// Loss is one thing that is lost.
type Loss struct {
	What  string   // names the object
	Paths []string // of what it concerns, as far as they are known; for people
	More  int      // paths that are not listed
	Cut   bool     // it is the changes of segments that the state does not have
}

// LossError reports that something is lost, and that nobody said to go on without it.
type LossError struct{ Report Report }

func (e *LossError) Error() string {
	s := fmt.Sprintf("%d things of the volume are lost; nothing was made", len(e.Report.Lost))
	for _, l := range e.Report.Lost {
		s += "\n  " + l.String()
	}
	return s
}

// String says it in one line, and the paths below.
func (l Loss) String() string {
	s := l.What
	for _, p := range l.Paths {
		s += "\n    " + p
	}
	if l.More > 0 {
		s += fmt.Sprintf("\n    and %d more", l.More)
	}
	return s
}

// maxPaths is how many paths a Loss lists.
const maxPaths = 100

// builder is one rebuild.
type builder struct {
	cfg    Config
	found  *found
	report Report
}

// Make makes a copy of the volume in cfg.Dir: metadata and log, which a gateway opens. A LossError
// says what is lost, and then nothing is left there.
func Make(ctx context.Context, cfg Config) (Report, error) {
	b := &builder{cfg: cfg}
	began := cfg.Now()
	err := b.make(ctx)
	b.report.Took = cfg.Now().Sub(began)
	if err != nil {
		return b.report, fmt.Errorf("rebuild volume %s: %w", cfg.Volume, err)
	}
	return b.report, nil
}

func (b *builder) folder() string { return filepath.Join(b.cfg.Dir.Path(), MetaFolder) }

func (b *builder) make(ctx context.Context) error {
	there, err := b.cfg.FS.List(b.folder())
	if len(there) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("%s has %d files: there is a copy already; give another folder", b.folder(), len(there)))
	}
	size, err := log.Size(b.cfg.Dir)
	if err == nil && size > 0 {
		err = fmt.Errorf("%s has %d bytes of a log: there is a copy already; give another folder", b.cfg.Dir.Path(), size)
	}
	if err == nil {
		err = b.look(ctx)
	}
	if err != nil {
		return err
	}
	for c, err := range b.chains(ctx) {
		if err != nil {
			return err
		}
		err := b.try(ctx, c)
		var bad *checkpoint.ObjectError
		if errors.As(err, &bad) && ctx.Err() == nil {
			b.found.bad = append(b.found.bad, err.Error())
			continue
		}
		b.report.Passed = b.found.bad
		return err
	}
	return errors.New("nothing in the store can be used") // the last chain has no checkpoint
}

// try makes the copy from a chain.
func (b *builder) try(ctx context.Context, c *chain) (err error) {
	key, ok := b.cfg.Keys.Get(0)
	if !ok {
		return errors.New("the volume's first data key is not given: its metadata are encrypted with it")
	}
	dir := b.folder() + building
	cfg := engine.Config{ID: b.cfg.Volume, FS: b.cfg.FS, Dir: dir, DataKey: key, Now: b.cfg.Now, Clock: b.cfg.Clock, Rand: b.cfg.Rand,
		Logger: b.cfg.Logger}
	if err := b.cfg.FS.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove what an earlier attempt left: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.cfg.FS.RemoveAll(dir), b.cfg.FS.RemoveAll(engine.Unfinished(dir)))
		}
	}()
	b.report = Report{Objects: b.found.objects}
	if _, unreached := b.beside(c); c.last() == nil && len(unreached) == 0 {
		return fmt.Errorf("the store has %d objects of it, and no segment of its log: give the store of a site that has a copy",
			b.found.objects)
	}
	if c.manifest != nil {
		nothing := func([]engine.Segment, map[uint64]uint64) error { return nil }
		if err := engine.Install(ctx, cfg, c.manifest, b.objects(), nothing); err != nil {
			return err
		}
		b.report.Checkpoint = c.head.At
	}
	if err := b.apply(ctx, cfg, c); err != nil {
		return err
	}
	if len(b.report.Lost) > 0 && !b.cfg.AcceptLoss {
		return &LossError{b.report}
	}
	b.report.log = log.Config{Dir: b.cfg.Dir, Room: b.cfg.Room, Volume: segment.VolumeID(b.cfg.Volume), DataKey: key, Keys: b.cfg.Keys,
		Rand: b.cfg.Rand, Now: b.cfg.Now, Logger: b.cfg.Logger}
	if err := b.adopt(ctx); err != nil {
		return err
	}
	if err := b.cfg.FS.Rename(dir, b.folder()); err != nil {
		return err
	}
	cfg.Dir = b.folder()
	b.report.engine = cfg
	return b.cfg.Dir.Sync()
}

// apply brings the metadata to the end of the chain, as far as it can be read, and finds out what
// is lost.
func (b *builder) apply(ctx context.Context, cfg engine.Config, c *chain) (err error) {
	e, err := engine.Open(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	r := &records{builder: b, chain: c}
	e.KnowSegments(func(seq uint64) (engine.Segment, bool) {
		n := c.at(seq)
		if n == nil || n.open != nil {
			return engine.Segment{}, false
		}
		return engine.Segment{Seq: n.Seq, Epoch: n.Epoch, Key: n.Key, Salt: n.Salt, Len: n.Len, Hash: n.Hash}, true
	})
	end := segment.Position{}
	if last := c.last(); last != nil {
		end = last.end()
	}
	if err := e.Replay(ctx, r, end); err != nil {
		var bad *badSegment
		if !errors.As(err, &bad) {
			return err
		}
		c.tail = c.tail[:bad.at]
		end = segment.Position{}
		if last := c.last(); last != nil {
			end = last.end()
		}
	}
	if err := e.WaitApplied(ctx, end); err != nil {
		return err
	}
	if err := b.losses(ctx, e, c); err != nil {
		return err
	}
	b.ends(c)
	b.report.End = end
	condemned, err := e.Condemned()
	if err != nil {
		return err
	}
	packs, err := e.Packs()
	if err != nil {
		return err
	}
	for _, n := range append(c.past[:len(c.past):len(c.past)], c.tail...) {
		if _, gone := condemned[n.Seq]; gone && !n.Uploaded && (packs.Moved[n.Seq] == 0 || b.packed(&packs, n.Seq)) {
			n.Dropped = true // nobody is to have it any more
		}
		if b.report.Epoch = n.Epoch; n.open != nil {
			b.report.open = n
			break
		}
		b.report.Infos = append(b.report.Infos, n.SegmentInfo)
	}
	b.report.Segments = len(b.report.Infos)
	return e.Flush()
}

// at returns the segment of the chain with a sequence; nil: it has none.
func (c *chain) at(seq uint64) *node {
	if seq < 1 || seq > uint64(len(c.past)+len(c.tail)) {
		return nil
	}
	if seq <= uint64(len(c.past)) {
		return c.past[seq-1]
	}
	return c.tail[seq-1-uint64(len(c.past))]
}

// adopt makes the log: all its segments that ended are in the store.
func (b *builder) adopt(ctx context.Context) (err error) {
	l, err := log.Open(b.report.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if l.End() != (log.Position{}) { // of an attempt that a crash ended: it has no files with records
		if err := l.Truncate(log.Position{}); err != nil {
			return err
		}
	}
	if err := l.Adopt(b.report.Infos); err != nil {
		return err
	}
	if n := b.report.open; n != nil {
		if err := n.ingest(ctx, l); err != nil {
			return err
		}
	}
	l.NoteCommitted(l.End())
	return l.SyncWatermark()
}

// records are those of the chain that are not in its checkpoint.
type records struct {
	*builder
	chain *chain
}

var _ engine.Records = (*records)(nil)

// badSegment reports a segment of a chain's tail that cannot be applied.
type badSegment struct {
	at  int // in the tail
	err error
}

func (e *badSegment) Error() string { return e.err.Error() }

// Replay implements engine.Records. It gives nothing of a segment before the whole is verified
// (rebuild-3).
func (r *records) Replay(ctx context.Context, _ segment.Position, f func(journal.Entry) error) error {
	for i, n := range r.chain.tail {
		b, err := r.whole(ctx, n)
		var entries []journal.Entry
		if err == nil {
			entries, err = r.decode(n, b)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrAccess):
			return fmt.Errorf("read segment %s: %w", n.Name, err)
		case err != nil:
			n.Uploaded, n.why = false, err.Error()
			return &badSegment{i, err}
		}
		r.report.Read++
		r.report.Bytes += n.Len
		for _, e := range entries {
			if err := f(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// whole reads a segment and verifies its hash.
func (b *builder) whole(ctx context.Context, n *node) ([]byte, error) {
	if n.open != nil {
		return n.open.bytes, nil
	}
	p := make([]byte, n.Len)
	if err := b.cfg.Store.GetRange(ctx, n.Name, 0, p); err != nil {
		return nil, err
	}
	if blake3.Sum256(p) != n.Hash {
		return nil, errors.New("its hash is not that of its name")
	}
	return p, nil
}

// decode returns the entries of a whole segment.
func (b *builder) decode(n *node, p []byte) (out []journal.Entry, err error) {
	key, ok := b.cfg.Keys.Get(n.Key)
	if !ok {
		return nil, fmt.Errorf("it is sealed with data key %d, which is not given", n.Key)
	}
	h := segment.Header{Volume: b.found.volume, Seq: n.Seq, Epoch: n.Epoch, Key: n.Key, Salt: n.Salt, Prev: n.Prev}
	o, err := segment.NewOpener(&key, h)
	if err != nil {
		return nil, err
	}
	for off := uint64(0); len(p) > 0; {
		frame, err := segment.Next(p)
		if err != nil {
			return nil, fmt.Errorf("at offset %d: %w", off, err)
		}
		size := uint64(len(frame.Bytes))
		entry := journal.Entry{End: segment.Position{Seq: n.Seq, Off: off + size}}
		switch {
		case frame.IsHeader && (off > 0 || !bytes.Equal(frame.Bytes, segment.AppendHeader(nil, h))):
			return nil, fmt.Errorf("at offset %d: its header is not that of the chain", off)
		case frame.IsHeader:
			entry.Header = &h
		default:
			if entry.Record, err = o.DecodeRecord(frame.Bytes, off); err != nil {
				return nil, err
			}
		}
		out = append(out, entry)
		p, off = p[size:], off+size
	}
	return out, nil
}

// objects reads the checkpoints' objects from the store alone.
func (b *builder) objects() checkpoint.Objects {
	return checkpoints.Objects(b.cfg.Store, b.cfg.Volume.String())
}
