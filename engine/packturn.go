// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/volume"
)

// The record of a pack is made inside the volume's turn. So what is read for it there is as much as
// the pack is, and not as much as there ever were (ADR 68).

// packAt returns the pack of a number.
func (t *tree) packAt(n uint64) (Pack, error) {
	key := meta.PackKey(n)
	value, ok, _, err := t.view.Get(key)
	if err == nil && !ok {
		err = fmt.Errorf("there is no pack %d: %w", n, errDamaged)
	}
	if err != nil {
		return Pack{}, err
	}
	return meta.DecodePack(key, value)
}

// movedTo returns the number of the pack that has the live blocks of a segment; 0: they did not
// move.
func (t *tree) movedTo(seq uint64) (uint64, error) {
	key := meta.MovedKey(seq)
	value, ok, _, err := t.view.Get(key)
	if err != nil || !ok {
		return 0, err
	}
	_, n, err := meta.DecodeMoved(key, value)
	if err == nil && n == 0 {
		err = fmt.Errorf("segment %d is in pack 0: %w", seq, errDamaged)
	}
	return n, err
}

// newestPack returns the newest pack; zero: there is none. It returns an error that wraps
// volume.ErrInvalid if one of the packs from number seen on has that hash: who deletes the former
// one may not know of another yet. seen is a pack that newestPack returned before, of what was
// applied; zero: all packs are read.
func (t *tree) newestPack(seen Pack, hash pack.Hash) (newest Pack, err error) {
	_, hi := meta.AllOf(meta.Packs)
	for pair, err := range t.view.Range(meta.PackKey(max(seen.Number, 1)), hi) {
		if err != nil {
			return newest, err
		}
		is, err := meta.DecodePack(pair.Key, pair.Value)
		switch first := newest.Number == 0 && seen.Number > 0; {
		case err != nil:
			return newest, err
		case first && (is.Number != seen.Number || is.Hash != seen.Hash), !first && is.Number != newest.Number+1:
			return newest, fmt.Errorf("after pack %d there is %d: %w", newest.Number, is.Number, errDamaged)
		case is.Hash == hash:
			return newest, fmt.Errorf("pack %d was the same: %w", is.Number, volume.ErrInvalid)
		}
		newest = is
	}
	if newest.Number < seen.Number {
		return newest, fmt.Errorf("there is no pack %d any more: %w", seen.Number, errDamaged)
	}
	return newest, nil
}

// comparePacks is newestPack of all that is applied. Nothing of that is ever taken back. It is
// called outside of the turn.
func (e *Engine) comparePacks(hash pack.Hash) (newest Pack, err error) {
	view := e.store.Snapshot(nil)
	newest, err = (&tree{view: view}).newestPack(Pack{}, hash)
	if cerr := view.Close(); err == nil {
		err = cerr
	}
	return newest, err
}

// moves is what the metadata say of what a plan takes.
type moves struct {
	from      []Pack          // as they are now
	condemned map[uint64]bool // which of the plan's segments are
	emptied   []uint64        // segments that moved into those packs, and that the plan does not have
}

// mayMove returns an error that wraps volume.ErrInvalid if segments or packs of a plan were
// condemned since it was made.
func (t *tree) mayMove(plan PackPlan) (m moves, err error) {
	from := map[uint64]bool{}
	for _, p := range plan.From {
		is, err := t.packAt(p.Number)
		if err != nil {
			return m, err
		}
		if is.Hash != p.Hash || is.Condemned != 0 {
			return m, fmt.Errorf("pack %d is condemned already: %w", p.Number, volume.ErrInvalid)
		}
		from[p.Number] = true
		m.from = append(m.from, is)
	}
	m.condemned = map[uint64]bool{}
	for _, k := range plan.Kept {
		_, condemned, _, err := t.view.Get(meta.CondemnedKey(k.Seq))
		if err != nil {
			return m, err
		}
		if !condemned {
			m.condemned[k.Seq] = false
			continue
		}
		n, err := t.movedTo(k.Seq)
		if err != nil {
			return m, err
		}
		if !from[n] {
			return m, fmt.Errorf("segment %d is condemned already: %w", k.Seq, volume.ErrInvalid)
		}
		m.condemned[k.Seq] = true
	}
	return m, nil
}

// findEmptied finds the segments that are in the packs of which blocks are taken, and of which the
// plan has none: a pack's index has each segment that moved into it.
func (t *tree) findEmptied(m *moves) error {
	for _, p := range m.from {
		index, err := t.engine.indexIn(t.view, p)
		if err != nil {
			return err
		}
		for _, k := range index.Kept() {
			if _, has := m.condemned[k.Seq]; has {
				continue
			}
			n, err := t.movedTo(k.Seq)
			if err != nil {
				return err
			}
			if n == p.Number {
				m.emptied = append(m.emptied, k.Seq)
			}
		}
	}
	return nil
}
