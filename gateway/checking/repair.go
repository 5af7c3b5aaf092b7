// SPDX-License-Identifier: Apache-2.0

package checking

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/store"
)

// repair makes a segment whole on the pool, from any copy that has it, and then in the store
// (checking-2, checking-3). An error ends the check; state.why is for what cannot be repaired.
func (c *checker) repair(ctx context.Context, s *state) error {
	err := c.Log.Heal(ctx, s.Seq)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, log.ErrDropped) || errors.Is(err, log.ErrNotClosed):
		s.healed, s.replaced = true, true // nobody needs it any more
		return nil
	case err != nil:
		s.why = err
		return nil
	}
	s.healed = true
	if s.store == nil {
		return nil
	}
	if err := c.replace(ctx, s); err != nil {
		s.why = err
		return ctx.Err()
	}
	s.replaced = true
	return nil
}

// replace puts a segment again that the store does not have whole. Its file on the pool is whole.
func (c *checker) replace(ctx context.Context, s *state) error {
	done, err := c.Log.Unstore(s.Name)
	if err != nil {
		return err
	}
	body := io.NewSectionReader(poolFile{c.Log, s.Seq}, 0, int64(s.Len))
	if err := store.Replace(ctx, c.Store, s.Name, int64(s.Len), body); err != nil {
		// What is there may be damaged still, and has the right length: an upload would leave it.
		// The segment waits until the log is opened again, when what the store has is read first.
		return err
	}
	defer done()
	return c.Log.MarkStored(s.Name)
}

// poolFile reads a segment's file.
type poolFile struct {
	log *log.Log
	seq uint64
}

// ReadAt implements io.ReaderAt.
func (f poolFile) ReadAt(p []byte, off int64) (int, error) {
	return f.log.ReadSegmentFile(f.seq, p, off)
}

// tellSegments notes what is wrong with segments, and what became of it.
func (c *checker) tellSegments(ctx context.Context) {
	for _, s := range c.order {
		var elsewhere string
		advice := adviceRepair
		switch {
		case s.healed || s.pool == nil && s.Local:
		case c.Data && s.store == nil && s.Uploaded && c.Store != nil:
			elsewhere = "; the site's store has it whole"
		case s.why != nil:
			elsewhere, advice = fmt.Sprintf(": not repaired: %v", s.why), adviceBring
		default:
			var why error
			if elsewhere, why = c.elsewhere(ctx, s); why != nil {
				elsewhere, advice = fmt.Sprintf("; no copy in reach is whole: %v", why), adviceBring
			}
		}
		tell := func(where Place, what string, repaired bool) {
			d := Damage{Where: where, Kind: KindSegment, Segment: s.Seq, Detail: what + elsewhere, Advice: advice, Repaired: repaired}
			if where == Store && !repaired && s.healed && s.why != nil {
				d.Detail += fmt.Sprintf(": not replaced: %v", s.why)
			}
			if repaired {
				d.Advice = ""
			}
			c.report.add(d)
		}
		if s.pool != nil {
			tell(Pool, "the file of segment "+s.Name+" is damaged: "+s.pool.Error(), s.healed)
		}
		if s.store != nil {
			tell(Store, "segment "+s.Name+": "+s.store.Error(), s.replaced)
		}
		if s.pool == nil && s.store == nil && (s.healed || advice == adviceBring) {
			tell(Nowhere, "segment "+s.Name+" is neither on the pool nor in the site's store", s.healed)
		}
	}
}

// elsewhere names a copy that has a segment whole; the error says why none has.
func (c *checker) elsewhere(ctx context.Context, s *state) (string, error) {
	var errs []error
	for _, src := range c.Log.Sources() {
		_, err := c.whole(ctx, s, func(ctx context.Context, p []byte, off int64) error { return src.ReadSegment(ctx, s.Name, off, p) })
		if err == nil {
			return "; " + src.String() + " has it whole", nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", src, err))
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("there is no other copy"))
	}
	return "", errors.Join(errs...)
}
