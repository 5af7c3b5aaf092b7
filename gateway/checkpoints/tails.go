// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/packsource"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/store"
)

// tail is what is known of the pieces of one volume's last segment. Only tailAll uses it.
type tail struct {
	pieces map[string]segment.Piece // in the site's store, by name; nil: it was not listed yet
	header segment.Header           // of the segment that the others are about
	off    uint64                   // up to which the store has it
	hash   *blake3.Hasher           // of what is before off
	since  time.Time                // since when there is more; zero: there is not
	// idle is how the log and the policy were when there was nothing to do.
	idle struct {
		end log.Position
		lag time.Duration
	}
}

// tailAll brings what is committed of the copies' last segments into the site's store, and deletes
// pieces of segments that are there as a whole (ADR 60).
func (k *Keeper) tailAll(ctx context.Context, all []Copy) {
	if k.cfg.Store == nil {
		return
	}
	here := map[string]bool{}
	for _, c := range all {
		here[c.UUID] = true
		t := k.tails[c.UUID]
		if t == nil {
			t = &tail{}
			k.tails[c.UUID] = t
		}
		end, lag := c.Log.End(), c.Tails()
		if t.idle.end == end && t.idle.lag == lag && t.pieces != nil {
			continue
		}
		more, err := k.tail(ctx, c, t, end.Seq, lag)
		if t.idle.end, t.idle.lag = end, lag; more || err != nil {
			t.idle.end = log.Position{}
		}
		if err != nil && ctx.Err() == nil {
			k.cfg.Logger.Warn("the end of the log is not in the store yet; trying again", "volume", c.UUID, "error", err)
		}
	}
	for id := range k.tails {
		if !here[id] {
			delete(k.tails, id)
		}
	}
}

// tail does for one copy what is to be done now. seq is the log's last segment. more: there is more
// to do, or may be soon.
func (k *Keeper) tail(ctx context.Context, c Copy, t *tail, seq uint64, lag time.Duration) (more bool, err error) {
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return true, err
	}
	defer done()
	if t.pieces == nil {
		if err := k.listPieces(ctx, c, t); err != nil {
			return true, err
		}
	}
	left, err := k.dropPieces(ctx, c, t)
	if err != nil || lag == 0 {
		return left, err
	}
	more, err = k.ship(ctx, c, t, seq, lag)
	return more || left, err
}

// listPieces lists the pieces that the store has.
func (k *Keeper) listPieces(ctx context.Context, c Copy, t *tail) error {
	pieces := map[string]segment.Piece{}
	if err := k.cfg.Store.List(ctx, c.UUID+segment.PieceFolder, func(i store.Info) error {
		if _, p, err := segment.ParsePieceName(i.Name); err == nil {
			pieces[i.Name] = p
		}
		return nil
	}); err != nil {
		return err
	}
	t.pieces = pieces
	return nil
}

// dropPieces deletes the pieces of segments that the store has whole, or that were condemned and
// dropped (checkpoints-11). left: there are others of segments that ended.
func (k *Keeper) dropPieces(ctx context.Context, c Copy, t *tail) (left bool, err error) {
	for name, p := range t.pieces {
		s, closed := c.Log.Segment(p.Seq)
		if !closed {
			continue
		}
		if !superseded(p, s) || c.Aside() {
			left = left || !s.Uploaded && !s.Dropped
			continue
		}
		if err := k.cfg.Store.Delete(ctx, name); err != nil {
			return false, err
		}
		delete(t.pieces, name)
	}
	return left, nil
}

// superseded reports whether nobody needs a piece any more, because of a segment that ended. The
// salt and the length say that it is a part of that, and not of what another home had there.
func superseded(p segment.Piece, s log.SegmentInfo) bool {
	return p.Of(s.Seq, s.Salt) && p.To <= s.Len && (s.Uploaded || s.Dropped)
}

// ship puts what the store lacks of the last segment there, when it has waited for almost half of
// what the policy allows.
func (k *Keeper) ship(ctx context.Context, c Copy, t *tail, seq uint64, lag time.Duration) (more bool, err error) {
	is := c.Replica.Status()
	if _, closed := c.Log.Segment(seq); closed || seq == 0 || is.Commit.Seq < seq {
		return is.Commit.Less(is.End), nil
	}
	header := make([]byte, segment.HeaderSize)
	if n, err := c.Log.ReadSegmentFile(seq, header, 0); n < len(header) {
		return true, fmt.Errorf("read the header of segment %d: %w", seq, err)
	}
	h, err := segment.DecodeHeader(header)
	if err != nil {
		return true, err
	}
	if t.hash == nil || h != t.header {
		t.header, t.off, t.hash, t.since = h, 0, blake3.New(), time.Time{}
	}
	to := is.Durable // a copy that is no member may not have all that is committed
	if is.Commit.Less(to) {
		to = is.Commit
	}
	if to.Seq != seq || to.Off <= max(t.off, segment.HeaderSize) {
		return to.Less(is.End), nil
	}
	now := k.cfg.Timers.Now()
	if t.since.IsZero() {
		t.since = now
	}
	wait := lag/2 - k.cfg.Due.Every
	if to.Off >= replica.TailBytes {
		wait = lag * 3 / 4 // the home ends it before
	}
	// What comes before must be there first: a log with a gap is of no use.
	before := log.Position{Seq: seq - 1, Off: math.MaxUint64}
	if now.Sub(t.since) < wait || len(c.Log.Unstored(0, before, 1)) > 0 {
		return true, nil
	}
	return true, k.putPiece(ctx, c, t, to.Off)
}

// putPiece puts what the store lacks of the last segment up to an offset, where a record ends.
func (k *Keeper) putPiece(ctx context.Context, c Copy, t *tail, to uint64) error {
	b := make([]byte, to-t.off)
	if err := packsource.File(c.Log, t.header.Seq)(b, t.off); err != nil {
		return fmt.Errorf("read segment %d: %w", t.header.Seq, err)
	}
	for left := b; len(left) > 0; { // a damaged one is healed when the segment ends
		f, err := segment.Next(left)
		if err != nil {
			return fmt.Errorf("segment %d at offset %d: %w", t.header.Seq, to-uint64(len(left)), err)
		}
		left = left[len(f.Bytes):]
	}
	hash := t.hash.Clone()
	_, _ = hash.Write(b) // it never fails
	p := segment.Piece{Seq: t.header.Seq, Salt: [8]byte(t.header.Salt[:8]), From: t.off, To: to}
	hash.Sum(p.Hash[:0])
	name := segment.PieceName(t.header.Volume, p)
	if err := k.cfg.Store.Put(ctx, name, int64(len(b)), bytes.NewReader(b)); err != nil {
		return err
	}
	t.pieces[name] = p
	t.off, t.hash, t.since = to, hash, time.Time{}
	return nil
}
