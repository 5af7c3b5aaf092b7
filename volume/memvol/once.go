// SPDX-License-Identifier: Apache-2.0

package memvol

import (
	"errors"

	"github.com/weir-storage/weir/volume"
)

// slot has the results of the newest request of one client slot.
type slot struct {
	seq     uint32
	results map[uint32]*result // by index
}

// result is the outcome of one change.
type result struct {
	value    any
	err      error
	unstable bool // the data of this write is not committed yet
}

// place says which operation runs on what, for errors.
type place struct {
	op   string
	h    volume.Handle
	name string
}

func (p place) wrap(err error) error {
	if err == nil {
		return nil
	}
	return &volume.Error{Op: p.op, Ino: p.h.Ino, Name: p.name, Err: err}
}

// read executes an operation that changes nothing.
func read[T any](v *Volume, p place, f func() (T, error)) (T, error) {
	var zero T
	if err := v.before(p.op, p.h); err != nil {
		return zero, p.wrap(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	t, err := f()
	if err != nil {
		return zero, p.wrap(err)
	}
	return t, nil
}

// change executes a change once (protocol-22).
func change[T any](v *Volume, r volume.Request, p place, f func() (T, error)) (T, error) {
	var zero T
	if err := v.before(p.op, p.h); err != nil {
		return zero, p.wrap(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changing = true
	defer func() { v.changing = false }()
	if r.ID == (volume.OpID{}) {
		t, err := f()
		return t, p.wrap(err)
	}
	if len(r.ID.Slot) > 64 {
		return zero, p.wrap(volume.ErrInvalid)
	}
	s := v.slots[r.ID.Slot]
	if s == nil || int32(r.ID.Seq-s.seq) > 0 {
		s = &slot{seq: r.ID.Seq, results: make(map[uint32]*result)}
		v.slots[r.ID.Slot] = s
	}
	if s.seq != r.ID.Seq {
		return zero, p.wrap(volume.ErrLate)
	}
	if done := s.results[r.ID.Index]; done != nil {
		t, ok := done.value.(T)
		if !ok {
			return zero, p.wrap(volume.ErrInvalid) // another kind of operation with this OpID
		}
		return t, p.wrap(done.err)
	}
	res := new(result)
	v.running = res
	t, err := f()
	v.running = nil
	if err != nil {
		t = zero
	}
	if recordable(err) {
		res.value, res.err = t, err
		s.results[r.ID.Index] = res
	}
	return t, p.wrap(err)
}

// recordable reports whether an outcome is final.
func recordable(err error) bool {
	for _, e := range []error{volume.ErrDelay, volume.ErrUnknown, volume.ErrIO, volume.ErrGrace} {
		if errors.Is(err, e) {
			return false
		}
	}
	return true
}
