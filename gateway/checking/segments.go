// SPDX-License-Identifier: Apache-2.0

package checking

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/store"
)

// What to do about a segment.
const (
	adviceRepair = "give --repair: another copy is fetched"
	adviceAnew   = "give --repair at a gateway that is not the volume's home: its metadata are made anew from the log"
	adviceBring  = "bring back a copy or store that has the segment; files that need what it lost are listed"
	adviceSender = "whoever was home then sent it so, and all copies have it alike: report it"
)

// state is a segment of which something is wrong, or that is neither on the pool nor in the store.
type state struct {
	log.SegmentInfo
	pool, store error // what is wrong there; nil: nothing is, or it is not there
	healed      bool  // the pool has it whole, since it was fetched
	replaced    bool  // the store has it whole again
	why         error // it could not be repaired
}

// whole reports whether nothing is wrong with it any more.
func (s *state) whole() bool {
	return (s.pool == nil || s.healed) && (s.store == nil || s.replaced) && (s.Local || s.Uploaded || s.healed)
}

// readFrom reads bytes of a segment at one place.
type readFrom func(ctx context.Context, p []byte, off int64) error

func (c *checker) fromPool(seq uint64) readFrom {
	return func(_ context.Context, p []byte, off int64) error {
		n, err := c.Log.ReadSegmentFile(seq, p, off)
		if n == len(p) {
			return nil
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = fmt.Errorf("the file ends at byte %d", off+int64(n))
		}
		return err
	}
}

func (c *checker) fromStore(name string) readFrom {
	return func(ctx context.Context, p []byte, off int64) error { return c.Store.GetRange(ctx, name, off, p) }
}

// segments looks at each closed segment, on the pool and in the store.
func (c *checker) segments(ctx context.Context) error {
	const step = "segments"
	c.tell(Progress{Step: step, Bytes: c.Data})
	all := c.Log.Segments()
	listed := map[string]uint64{}
	if c.Store != nil {
		if err := c.Store.List(ctx, c.Volume+"/", func(i store.Info) error {
			listed[i.Name] = uint64(i.Size)
			return ctx.Err()
		}); err != nil {
			return fmt.Errorf("list the store: %w", err)
		}
	}
	var p Progress
	p.Step, p.Bytes = step, c.Data
	for _, s := range all {
		p.Total += c.amount(&s)
	}
	for _, s := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.tell(p)
		p.Done += c.amount(&s)
		if s.Dropped {
			continue
		}
		if err := c.segment(ctx, s, listed); err != nil {
			return err
		}
	}
	c.tell(p)
	return nil
}

// amount is how much there is to do for a segment.
func (c *checker) amount(s *log.SegmentInfo) (n uint64) {
	if !c.Data {
		return 1
	}
	if s.Local {
		n += s.Len
	}
	if s.Uploaded && c.Store != nil {
		n += s.Len
	}
	return n
}

// goes reports whether a segment was condemned: its object goes before the log says that it went.
func (c *checker) goes(seq uint64) bool {
	if c.Engine == nil {
		return false
	}
	condemned, err := c.Engine.Condemned()
	_, ok := condemned[seq]
	return err == nil && ok
}

// segment looks at one segment. An error says nothing of it.
func (c *checker) segment(ctx context.Context, info log.SegmentInfo, listed map[string]uint64) error {
	s := &state{SegmentInfo: info}
	if s.Local {
		s.pool = c.look(ctx, s, c.fromPool(s.Seq))
	}
	if s.Uploaded && c.Store != nil {
		switch size, ok := listed[s.Name]; {
		case !ok && c.goes(s.Seq):
			return nil // the log says so next; its blocks are read where they moved
		case !ok:
			s.store = errors.New("the store does not have it")
		case size != s.Len:
			s.store = fmt.Errorf("it has %d bytes, and should have %d", size, s.Len)
		case c.Data:
			s.store = c.look(ctx, s, c.fromStore(s.Name))
		}
		if errors.Is(s.store, store.ErrUnavailable) || errors.Is(s.store, store.ErrAccess) {
			return fmt.Errorf("read segment %s in the store: %w", s.Name, s.store)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	now, ok := c.Log.Segment(s.Seq)
	if !ok || now.Dropped || now.Hash != s.Hash {
		return nil // it went meanwhile
	}
	if s.Local && !now.Local { // it was evicted meanwhile
		s.pool, s.Local = nil, false
	}
	c.report.Segments++
	if s.Uploaded && c.Store != nil {
		c.report.Objects++
	}
	absent := !s.Local && !s.Uploaded
	if absent {
		c.report.Lacking++
	}
	if s.pool != nil || s.store != nil || absent && !c.Fetching {
		c.bad[s.Seq] = s
		c.order = append(c.order, s)
	}
	return nil
}

// look reads a segment at one place, and returns what is wrong with it there. Without Data it reads
// its end only.
func (c *checker) look(ctx context.Context, s *state, read readFrom) error {
	if !c.Data {
		return read(ctx, make([]byte, 1), int64(s.Len)-1)
	}
	b, err := c.whole(ctx, s, read)
	if err != nil || c.opened[s.Seq] {
		return err
	}
	c.open(s, b)
	return nil
}

// piece is how much of a segment is read at a time.
const piece = 4 << 20

// whole reads a segment at one place, and verifies its hash. The result is valid until the next
// call.
func (c *checker) whole(ctx context.Context, s *state, read readFrom) ([]byte, error) {
	if uint64(cap(c.buf)) < s.Len {
		c.buf = make([]byte, s.Len)
	}
	b := c.buf[:s.Len]
	hash := blake3.New()
	for off := 0; off < len(b); off += piece {
		p := b[off:min(off+piece, len(b))]
		if err := read(ctx, p, int64(off)); err != nil {
			return nil, err
		}
		_, _ = hash.Write(p) // never fails
		c.report.Bytes += uint64(len(p))
	}
	if segment.Hash(hash.Sum(nil)) != s.Hash {
		return nil, errors.New("its bytes are not those that its name says")
	}
	return b, nil
}

// opener returns what opens a segment; nil: its key is not known here.
func (c *checker) opener(seq uint64) *segment.Opener {
	h, ok := c.Log.HeaderOf(seq)
	if !ok || c.Keys == nil {
		return nil
	}
	key, ok := c.Keys.Get(h.Key)
	if !ok {
		return nil
	}
	o, err := segment.NewOpener(&key, h)
	if err != nil {
		return nil
	}
	return o
}

// open opens all records and blocks of a segment whose bytes have the right hash.
func (c *checker) open(s *state, b []byte) {
	o := c.opener(s.Seq)
	if o == nil {
		if c.Keys != nil {
			c.report.Unopened++
		}
		return
	}
	c.opened[s.Seq] = true
	for off := uint64(0); off < uint64(len(b)); {
		frame, err := segment.Next(b[off:])
		var rec *segment.Record
		if err == nil && !frame.IsHeader {
			rec, err = o.DecodeRecord(frame.Bytes, off)
		}
		if err != nil {
			c.report.add(Damage{Where: Nowhere, Kind: KindSegment, Segment: s.Seq, Advice: adviceSender,
				Detail: fmt.Sprintf("it has the right hash, and at byte %d it cannot be opened: %v", off, err)})
			return
		}
		off += uint64(len(frame.Bytes))
		if rec == nil {
			continue
		}
		for i := range rec.Blocks {
			ref := rec.Blocks[i].Ref
			if _, err := o.OpenBlock(ref, b[ref.Off:ref.Off+uint64(ref.Len)]); err != nil {
				c.shut[ref] = err
			}
		}
	}
}

// blocks looks for blocks in all copies: those of damaged segments, and those that were not opened
// with their segments. It is fsck.Config.Blocks.
func (c *checker) blocks(ctx context.Context, refs []segment.BlockRef) ([]error, error) {
	out := make([]error, len(refs))
	for i, ref := range refs {
		switch s, err := c.bad[ref.Seq], c.shut[ref]; {
		case err != nil:
			c.said[ref] = Nowhere
			out[i] = fmt.Errorf("it does not open, though its segment has the right hash: %w", err)
		case s != nil:
			out[i] = c.block(ctx, s, ref)
		case c.Data && !c.opened[ref.Seq]:
			out[i] = c.read(ctx, ref)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// read reads a block of a segment that was not read: of the log's end, say.
func (c *checker) read(ctx context.Context, ref segment.BlockRef) error {
	_, err := c.Log.ReadBlocks(ctx, []segment.BlockRef{ref})
	if errors.Is(err, log.ErrNoKey) {
		return nil // Report.Unopened tells it
	}
	if err != nil {
		c.said[ref] = Nowhere
	}
	return err
}

// block looks for a block of a damaged segment where it is damaged, and then everywhere.
func (c *checker) block(ctx context.Context, s *state, ref segment.BlockRef) error {
	o := c.opener(ref.Seq)
	if o == nil {
		c.said[ref] = Nowhere
		return errors.New("its segment is damaged, and the key is not known here")
	}
	var errs []error
	found := false
	try := func(where string, read readFrom) bool {
		p := make([]byte, ref.Len)
		err := o.CheckRef(ref)
		if err == nil {
			err = read(ctx, p, int64(ref.Off))
		}
		if err == nil {
			_, err = o.OpenBlock(ref, p)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
		found = found || err == nil
		return err == nil
	}
	at := Place("")
	if s.Local && !try("on the pool", c.fromPool(s.Seq)) {
		at = Pool
	}
	if s.Uploaded && c.Store != nil && s.store != nil && !try("in the store", c.fromStore(s.Name)) && at == "" {
		at = Store
	}
	if at == "" && found {
		return nil // the damage is elsewhere in the segment
	}
	for _, src := range c.Log.Sources() {
		if found || ctx.Err() != nil {
			break
		}
		try(src.String(), func(ctx context.Context, p []byte, off int64) error { return src.ReadSegment(ctx, s.Name, off, p) })
	}
	if !found {
		c.said[ref] = Nowhere
		return fmt.Errorf("no copy has it: %w", errors.Join(errs...))
	}
	if at == "" {
		return nil // the copy lacks the segment, and another has the block
	}
	c.said[ref] = at
	return fmt.Errorf("damaged, and another copy has it: %w", errors.Join(errs...))
}
