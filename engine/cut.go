// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// tableBatch is the most segments that one batch adds to the table.
const tableBatch = 4096

// Segment is a segment of the log that ended.
type Segment = meta.Segment

// cutting is what the applier knows of segments and checkpoints. Engine.mu guards it.
type cutting struct {
	closed func(seq uint64) (Segment, bool) // nil: nobody tells of segments
	asked  meta.Asked                       // as far as records are applied
	placed meta.Placed
	cut    *Cut // nobody took it yet; nil: there is none
	kept   *Cut // what the newest checkpoint was made of; nil: it is not kept
}

// Cut is the state of a volume's metadata at the position of a checkpoint. Whoever has it closes
// it, before the engine is closed.
type Cut struct {
	Number uint64 // of the checkpoint
	head   checkpoint.Head
	view   *meta.View
	engine *Engine
	kept   *Cut            // of an earlier one, see Keep; nil: there is none
	hash   checkpoint.Hash // of what was made of it
}

// Checkpoints is what a volume's metadata say of its checkpoints.
type Checkpoints struct {
	Asked  meta.Asked // Number is 0: none was asked for
	Placed meta.Placed
	Made   meta.Made // Number is 0: none was made
	Used   uint64    // bytes that the volume uses now
}

// KnowSegments has the engine list the log's segments, and cut its state for checkpoints. closed
// returns a segment that ended. It is called before the first record is ingested. Without it, the
// engine is not one of a copy: it makes no checkpoints.
func (e *Engine) KnowSegments(closed func(seq uint64) (Segment, bool)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cutting.closed = closed
}

// openCutting reads what the metadata say of checkpoints. Only Open calls it.
func (e *Engine) openCutting() error {
	c, err := (&tree{engine: e, view: e.store.Live(nil)}).checkpoints()
	e.cutting.asked, e.cutting.placed = c.Asked, c.Placed
	return err
}

// checkpoints returns what the metadata say of checkpoints.
func (t *tree) checkpoints() (c Checkpoints, err error) {
	get := func(key []byte, decode func(value []byte) error) {
		value, ok, _, gerr := t.view.Get(key)
		if gerr == nil && ok {
			gerr = decode(value)
		}
		if err == nil {
			err = gerr
		}
	}
	get(meta.AskedKey(), func(v []byte) (err error) { c.Asked, err = meta.DecodeAsked(meta.AskedKey(), v); return err })
	get(meta.PlacedKey(), func(v []byte) (err error) { c.Placed, err = meta.DecodePlaced(meta.PlacedKey(), v); return err })
	get(meta.AccountingKey(), func(v []byte) error {
		a, err := meta.DecodeAccounting(meta.AccountingKey(), v)
		c.Used = a.Bytes
		return err
	})
	get(meta.MadeKey(), func(v []byte) (err error) { c.Made, err = meta.DecodeMade(meta.MadeKey(), v); return err })
	return c, err
}

// Checkpoints returns what is known here of the volume's checkpoints: what is applied, and at the
// home what is not yet.
func (e *Engine) Checkpoints() (Checkpoints, error) {
	return read(Recent(context.Background()), e, place{op: "checkpoints", ino: volume.Root.Ino}, (*tree).checkpoints)
}

// Segments returns the segments that the metadata list, oldest first.
func (e *Engine) Segments() ([]Segment, error) {
	return read(Recent(context.Background()), e, place{op: "segments", ino: volume.Root.Ino}, (*tree).segments)
}

func (t *tree) segments() (out []Segment, err error) {
	lo, hi := meta.SegmentRange(0)
	for p, err := range t.view.Range(lo, hi) {
		if err != nil {
			return nil, err
		}
		s, err := meta.DecodeSegment(p.Key, p.Value)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// AskCheckpoint has all copies make a checkpoint of the state at the end of the present segment of
// the log, sealed with the data key of that number. The home calls it, and then ends the segment.
// With whole, it is not made as a change of an earlier one. While an earlier one is not placed, it
// adds a record that asks for that again: the first record of another segment places it. ErrDelay:
// a copy does not know checkpoints yet.
func (e *Engine) AskCheckpoint(ctx context.Context, key uint32, whole bool) error {
	p := place{op: "ask for checkpoint", ino: volume.Root.Ino}
	_, err := change(ctx, e, volume.Request{}, p, countResult, false, func(t *tx) (int, error) {
		c, err := t.checkpoints()
		if err != nil {
			return 0, err
		}
		if c.Asked.Number <= c.Placed.Number {
			c.Asked = meta.Asked{Number: c.Asked.Number + 1, Key: key, Whole: whole}
		}
		v, err := t.versionsOf()
		if err != nil {
			return 0, err
		}
		t.versions = &v
		if !t.raise(meta.CheckpointLevel) {
			return 0, fmt.Errorf("%w: checkpoints need format level %d, which not all copies know: upgrade their gateways",
				volume.ErrDelay, meta.CheckpointLevel)
		}
		c.Asked.Whole = c.Asked.Whole && v.Level >= meta.LayerLevel // before, all are whole
		t.set(c.Asked.Encode())
		return 0, nil
	})
	return err
}

// MadeCheckpoint commits that a checkpoint is made: a copy may begin with it. The home calls it
// with what it made itself, and the bytes that the volume used then. It does nothing if that is not
// the newest.
func (e *Engine) MadeCheckpoint(ctx context.Context, m *checkpoint.Manifest, number, used uint64) error {
	p := place{op: "commit checkpoint", ino: volume.Root.Ino}
	_, err := change(ctx, e, volume.Request{}, p, countResult, false, func(t *tx) (int, error) {
		c, err := t.checkpoints()
		if err != nil || number <= c.Made.Number || number > c.Placed.Number {
			return 0, err
		}
		made := meta.Made{Number: number, At: m.At, Epoch: m.Epoch, Key: m.Key, Hash: m.Hash(), Used: used}
		t.set(made.Encode())
		return 0, nil
	})
	return err
}

// TakeCut returns the newest state that was cut for a checkpoint; nil: nobody has to do anything.
// Whoever has it closes it, or gives it to Keep, before he takes another.
func (e *Engine) TakeCut() *Cut {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.cutting.cut
	if e.cutting.cut = nil; c != nil {
		c.kept = e.cutting.kept
	}
	return c
}

// At is the position of the checkpoint.
func (c *Cut) At() segment.Position { return c.head.At }

// ErrBase says that the checkpoint that another is a change of can not be read.
var ErrBase = errors.New("the checkpoint before it can not be read")

// base returns the checkpoint that this one is a change of. Without a number, it is made whole. It
// follows from the state, so all copies have the same (ADR 58).
func (c *Cut) base() (meta.Made, error) {
	t := &tree{view: c.view}
	now, err := t.checkpoints()
	if err != nil {
		return meta.Made{}, err
	}
	v, err := t.versionsOf()
	if err != nil || v.Level < meta.LayerLevel || now.Asked.Whole || now.Made.Key != c.head.Key {
		return meta.Made{}, err
	}
	return now.Made, nil
}

// Write makes the checkpoint. keys returns the volume's data key with a number. ErrBase: it is a
// change of an earlier one, of which an object can not be read from to.
func (c *Cut) Write(ctx context.Context, keys func(number uint32) (segment.DataKey, bool), to checkpoint.Objects) (
	*checkpoint.Manifest, checkpoint.Stats, error) {
	key, ok := keys(c.head.Key)
	if !ok {
		return nil, checkpoint.Stats{}, fmt.Errorf("checkpoint %d is to be sealed with data key %d, which is not here", c.Number,
			c.head.Key)
	}
	made, err := c.base()
	if err != nil {
		return nil, checkpoint.Stats{}, fmt.Errorf("checkpoint %d: %w", c.Number, err)
	}
	if made.Number == 0 {
		return c.wrote(checkpoint.Write(ctx, c.head, &key, shared(c.view), to))
	}
	base, err := checkpoint.Open(ctx, c.head.Volume, made.Hash, keys, to)
	if err != nil {
		return nil, checkpoint.Stats{}, fmt.Errorf("checkpoint %d over %d: %w: %w", c.Number, made.Number, ErrBase, err)
	}
	former := base.ReadPairs(ctx, to)
	// If this copy made another one, its picture is not what the others start from: what it makes
	// now would not show the damage.
	if c.kept != nil && c.kept.Number == made.Number && c.kept.hash == made.Hash {
		former = shared(c.kept.view)
	}
	m, stats, err := checkpoint.WriteOver(ctx, c.head, &key, base, former, shared(c.view), to)
	if e := (*checkpoint.ObjectError)(nil); errors.As(err, &e) {
		err = fmt.Errorf("checkpoint %d over %d: %w: %w", c.Number, made.Number, ErrBase, err)
	}
	return c.wrote(m, stats, err)
}

// wrote notes what was made of c.
func (c *Cut) wrote(m *checkpoint.Manifest, stats checkpoint.Stats, err error) (*checkpoint.Manifest, checkpoint.Stats, error) {
	if err == nil {
		c.hash = m.Hash()
	}
	return m, stats, err
}

// Keep gives up a state of which the checkpoint was made. The engine keeps it, so that the next
// checkpoint need not read this one. With nil it keeps none: what was overwritten since can go.
func (e *Engine) Keep(c *Cut) error {
	e.mu.Lock()
	old := e.cutting.kept
	e.cutting.kept = c
	e.mu.Unlock()
	if c != nil {
		c.kept = nil
	}
	if old != nil {
		return old.Close()
	}
	return nil
}

// Used returns the bytes that the volume used then.
func (c *Cut) Used() (uint64, error) {
	now, err := (&tree{view: c.view}).checkpoints()
	return now.Used, err
}

// Close gives up the state.
func (c *Cut) Close() error { return c.view.Close() }

// shared iterates over the pairs that every copy has alike: all but the applied position.
func shared(view *meta.View) iter.Seq2[checkpoint.Pair, error] {
	return func(yield func(checkpoint.Pair, error) bool) {
		for p, err := range view.Range(nil, nil) {
			if err == nil && meta.Table(p.Key[0]) == meta.Applied {
				continue
			}
			if !yield(checkpoint.Pair{Key: p.Key, Value: p.Value}, err) {
				return
			}
		}
	}
}

// listSegments adds the segments before seq to the table, if the volume has one, and places the
// checkpoint that was asked for in one of them. The applier calls it before it applies the first
// record of seq. All records before are applied.
func (e *Engine) listSegments(seq uint64) error {
	e.mu.Lock()
	c := e.cutting
	e.mu.Unlock()
	if c.closed == nil || c.asked.Number == 0 {
		return nil
	}
	for c.placed.Last+1 < seq {
		state, next := e.store.State(), c.placed
		var ops []segment.Op
		var last meta.Segment
		for next.Last+1 < seq && len(ops) < tableBatch {
			s, ok := c.closed(next.Last + 1)
			if !ok {
				return fmt.Errorf("list segment %d: the log does not have it", next.Last+1)
			}
			last = s
			next.Last = s.Seq
			ops = append(ops, set(s.Encode()))
			if next.Last == next.Next {
				break
			}
		}
		here := next.Next != 0 && next.Last == next.Next
		if here {
			next.Number, next.Next, next.Epoch = c.asked.Number, 0, state.Epoch
			next.At = segment.Position{Seq: last.Seq, Off: last.Len}
		}
		ops = append(ops, set(next.Encode()))
		if err := e.store.Apply([][]segment.Op{ops}, state); err != nil {
			return err
		}
		c.placed = next
		e.mu.Lock()
		e.cutting.placed = next
		var old *Cut
		if here {
			old, e.cutting.cut = e.cutting.cut, &Cut{Number: next.Number, engine: e, view: e.store.Snapshot(nil), head: checkpoint.Head{
				Volume: segment.VolumeID(e.cfg.ID), At: next.At, Epoch: next.Epoch, Key: c.asked.Key}}
		}
		e.mu.Unlock()
		if old != nil {
			if err := old.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func set(key, value []byte) segment.Op { return segment.Op{Kind: segment.Set, Key: key, Value: value} }

// askedIn returns operations that follow from a record in segment seq that asks for a checkpoint,
// if there is one among records.
func (e *Engine) askedIn(records [][]segment.Op, seq uint64) (more []segment.Op, err error) {
	key := meta.AskedKey()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ops := range records {
		for _, op := range ops {
			if op.Kind != segment.Set || !bytes.Equal(op.Key, key) {
				continue
			}
			a, err := meta.DecodeAsked(op.Key, op.Value)
			if err != nil {
				return nil, err
			}
			e.cutting.asked = a
			if a.Number > e.cutting.placed.Number && e.cutting.closed != nil {
				e.cutting.placed.Next = seq
				more = slices.Concat(more, []segment.Op{set(e.cutting.placed.Encode())})
			}
		}
	}
	return more, nil
}
