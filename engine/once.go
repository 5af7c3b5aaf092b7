// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"strings"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// maxSlot is the largest length of a slot's name, in bytes.
const maxSlot = 64

// maxTransient bounds the slots whose outcomes are remembered in memory only. When it is reached,
// all are forgotten.
const maxTransient = 1 << 16

// transientSlot remembers the outcomes of one request that changed nothing.
type transientSlot struct {
	seq     uint32
	results map[uint32]transientResult
}

// transientResult is an outcome that may be returned when pos is committed.
type transientResult struct {
	result []byte
	err    error
	pos    segment.Position
	// The outcome is in the log. pos is the end of its record, or zero if that is in the store.
	logged bool
}

// recorded returns the outcome of an earlier execution of id, or nil. A request older than the
// newest of its slot is ErrLate, since its results are gone.
func (e *Engine) recorded(t *tx, id volume.OpID) (*transientResult, error) {
	if id.Slot == "" {
		return nil, nil
	}
	if s := e.transientOf(id); s != nil {
		if int32(id.Seq-s.seq) < 0 {
			return nil, volume.ErrLate
		}
		if r, ok := s.results[id.Index]; ok && s.seq == id.Seq {
			return &r, nil
		}
	}
	key := meta.SlotKey(id.Slot)
	value, ok, _, err := t.view.Get(key)
	if err != nil || !ok {
		return nil, err
	}
	newest, err := meta.DecodeSeq(key, value)
	switch {
	case err != nil:
		return nil, err
	case int32(id.Seq-newest) < 0:
		return nil, volume.ErrLate
	case id.Seq != newest:
		return nil, nil
	}
	key = meta.ResultKey(id.Slot, id.Index)
	value, ok, pos, err := t.view.Get(key)
	if err != nil || !ok {
		return nil, err
	}
	seq, result, err := meta.DecodeResult(key, value)
	if err != nil || seq != id.Seq {
		return nil, err
	}
	return &transientResult{result: result, pos: pos, logged: true}, nil
}

// Executed reports whether the outcome of a change is kept: it was executed, and nothing newer of
// its slot. It tells what is applied or shown here now, and waits for no commit, so that may be
// undone. No rollback of the volume takes an outcome back.
func (e *Engine) Executed(id volume.OpID) (bool, error) {
	return peek(e, place{op: "executed"}, func(t *tree) (bool, error) {
		key := meta.ResultKey(id.Slot, id.Index)
		value, ok, _, err := t.view.Get(key)
		if err != nil || !ok {
			return false, err
		}
		seq, _, err := meta.DecodeResult(key, value)
		return err == nil && seq == id.Seq, err
	})
}

func (e *Engine) transientOf(id volume.OpID) *transientSlot {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.transient[id.Slot]
}

// remember keeps an outcome that changed nothing and so has no record. The caller holds turn.
func (e *Engine) remember(id volume.OpID, r transientResult) {
	if id.Slot == "" || r.err != nil && !final(r.err) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.transient == nil {
		return // the role ended
	}
	s := e.transient[id.Slot]
	if s == nil || s.seq != id.Seq {
		if s == nil && len(e.transient) >= maxTransient {
			clear(e.transient)
		}
		s = &transientSlot{seq: id.Seq, results: make(map[uint32]transientResult)}
		e.transient[id.Slot] = s
	}
	s.results[id.Index] = r
}

// final reports whether an error is the outcome of an execution.
func final(err error) bool {
	for _, e := range []error{volume.ErrDelay, volume.ErrUnknown, volume.ErrIO, volume.ErrGrace} {
		if errors.Is(err, e) {
			return false
		}
	}
	return outcomeOf(err) != nil
}

// Forget implements volume.Volume.
func (e *Engine) Forget(ctx context.Context, prefix string) error {
	p := place{op: "forget"}
	_, err := change(ctx, e, volume.Request{}, p, noResult, false, func(t *tx) (struct{}, error) {
		e.mu.Lock()
		for slot := range e.transient {
			if strings.HasPrefix(slot, prefix) {
				delete(e.transient, slot)
			}
		}
		e.mu.Unlock()
		lo, hi := meta.SlotRange(prefix)
		for _, err := range t.view.Range(lo, hi) {
			if err != nil {
				return struct{}{}, err
			}
			t.deleteRange(lo, hi)
			t.deleteRange(meta.ResultRange(prefix))
			break
		}
		return struct{}{}, nil
	})
	return err
}
