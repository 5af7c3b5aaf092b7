// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"bytes"
	"encoding/binary"
	"iter"
)

// HistoryKey is the key under which the history has what a key of a table was in snapshot gen, and
// in those before that the entry before this one does not speak for (meta-6).
func HistoryKey(k []byte, gen uint32) []byte {
	return binary.BigEndian.AppendUint32(historyOf(k), gen)
}

// historyOf is what the keys of the history of k begin with.
func historyOf(k []byte) []byte {
	h := append(make([]byte, 0, len(k)+1), byte(Histories))
	return append(h, k[:len(k)-generationSize]...)
}

// HistoryRange is the range of the history of the keys in [lo, hi).
func HistoryRange(lo, hi []byte) (hlo, hhi []byte) {
	return append([]byte{byte(Histories)}, lo...), append([]byte{byte(Histories)}, hi...)
}

// AllHistory is the range of the whole history from a key of it on; nil: of all.
func AllHistory(from []byte) (lo, hi []byte) {
	if from == nil {
		from = []byte{byte(Histories)}
	}
	return from, []byte{byte(Histories) + 1}
}

// SplitHistory returns the key of a table and the generation of a key of the history.
func SplitHistory(h []byte) (k []byte, gen uint32, err error) {
	if len(h) == 0 || Table(h[0]) != Histories || !fits(h) {
		return nil, 0, corrupt(h, "it is no key of the history")
	}
	n := len(h) - generationSize
	return finish(bytes.Clone(h[1:n])), binary.BigEndian.Uint32(h[n:]), nil
}

// EncodeHistory returns the value of a key of the history: value is what the table had; exists is
// false if it had nothing.
func EncodeHistory(h, value []byte, exists bool) []byte {
	b := begin(1 + len(value))
	if exists {
		b = append(append(b, 1), value...)
	} else {
		b = append(b, 0)
	}
	return seal(h, b)
}

// DecodeHistory parses what EncodeHistory made. The result shares the memory of b.
func DecodeHistory(h, b []byte) (value []byte, exists bool, err error) {
	r, err := open(h, b)
	if err != nil {
		return nil, false, err
	}
	is := r.u8()
	value = r.rest()
	if is > 1 || is == 0 && len(value) > 0 {
		return nil, false, corrupt(h, "presence %d of %d bytes", is, len(value))
	}
	return value, is == 1, r.done()
}

// versioned reports whether snapshots keep what a table has.
func versioned(t Table) bool {
	switch t {
	case Cookies, Extents, Inodes, Names, Orphans, Targets, Waste, Xattrs:
		return true
	}
	return false
}

// Seen reports whether a snapshot with a number could show what k is for. What a later record made,
// nothing in the snapshot leads to (meta-7).
func Seen(k []byte, number uint64) bool {
	if !fits(k) {
		return true // whoever reads its value finds that
	}
	t := Table(k[0])
	if !versioned(t) || first(k) > number {
		return false
	}
	return t != Cookies || second(k) <= number
}

// At returns the view of a snapshot, of what v has. One of the two is closed.
func (v *View) At(s Snapshot) *View {
	return &View{over: v.over, base: v.base, snap: v.snap, of: v.of, past: &s}
}

// Preserved reports whether the history has what k was in snapshot gen.
func (v *View) Preserved(k []byte, gen uint32) (bool, error) {
	for _, err := range v.Range(HistoryKey(k, gen), historyEnd(k)) {
		return err == nil, err
	}
	return false, nil
}

// After is the range of all keys of a table whose first number is greater than number.
func After(t Table, number uint64) (lo, hi []byte) {
	_, hi = prefixRange([]byte{byte(t)})
	return binary.BigEndian.AppendUint64([]byte{byte(t)}, number+1), hi
}

// historyEnd is the upper bound of the history of k.
func historyEnd(k []byte) []byte {
	_, hi := prefixRange(append(historyOf(k), 0xff, 0xff, 0xff, 0xff))
	return hi
}

// getPast is Get in a snapshot.
func (v *View) getPast(k []byte) (value []byte, ok bool, err error) {
	if !Seen(k, v.past.Number) {
		return nil, false, nil
	}
	present := &View{over: v.over, base: v.base}
	for p, err := range present.Range(HistoryKey(k, v.past.Gen), historyEnd(k)) {
		if err != nil {
			return nil, false, err
		}
		value, ok, err := DecodeHistory(p.Key, p.Value)
		return bytes.Clone(value), ok, err
	}
	value, ok, _, err = present.Get(k)
	return value, ok, err
}

// rangePast is Range in a snapshot: the present, in which the history replaces what changed.
func (v *View) rangePast(lo, hi []byte, yield func(Pair, error) bool) {
	present := &View{over: v.over, base: v.base}
	nextNow, stopNow := iter.Pull2(present.Range(lo, hi))
	defer stopNow()
	hlo, hhi := HistoryRange(lo, hi)
	nextWas, stopWas := iter.Pull2(v.was(present.Range(hlo, hhi)))
	defer stopWas()
	now, nowErr, moreNow := nextNow()
	was, wasErr, moreWas := nextWas()
	for moreNow || moreWas {
		if moreNow && nowErr != nil || moreWas && wasErr != nil {
			if wasErr == nil {
				wasErr = nowErr
			}
			yield(Pair{}, wasErr)
			return
		}
		order := -1 // compares the present key with the former one
		if !moreNow {
			order = 1
		} else if moreWas {
			order = bytes.Compare(now.Key, was.key)
		}
		if order < 0 {
			if Seen(now.Key, v.past.Number) && !yield(now, nil) {
				return
			}
			now, nowErr, moreNow = nextNow()
			continue
		}
		if was.exists && Seen(was.key, v.past.Number) && !yield(Pair{was.key, was.value}, nil) {
			return
		}
		if order == 0 {
			now, nowErr, moreNow = nextNow()
		}
		was, wasErr, moreWas = nextWas()
	}
}

// former is what a key was in a snapshot.
type former struct {
	key, value []byte
	exists     bool
}

// was iterates over what keys were in v's snapshot that the history speaks of.
func (v *View) was(history iter.Seq2[Pair, error]) iter.Seq2[former, error] {
	return func(yield func(former, error) bool) {
		var last []byte
		for p, err := range history {
			if err != nil {
				yield(former{}, err)
				return
			}
			k, gen, err := SplitHistory(p.Key)
			if err != nil {
				yield(former{}, err)
				return
			}
			if gen < v.past.Gen || bytes.Equal(k, last) {
				continue
			}
			last = k
			value, exists, err := DecodeHistory(p.Key, p.Value)
			if !yield(former{k, bytes.Clone(value), exists}, err) || err != nil {
				return
			}
		}
	}
}
