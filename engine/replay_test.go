// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
)

// longLog has more records than fit in memory, were they all kept.
type longLog struct {
	records int
	value   []byte
	each    func() // is called before each record
}

func (l longLog) at(i int) segment.Position { return segment.Position{Seq: 1, Off: uint64(i) * 100} }

func (l longLog) Replay(_ context.Context, _ segment.Position, f func(journal.Entry) error) error {
	for i := range l.records {
		l.each()
		key := binary.BigEndian.AppendUint32([]byte("replayed-"), uint32(i))
		err := f(journal.Entry{End: l.at(i + 1), Record: &journal.Record{Epoch: 1,
			Ops: []segment.Op{{Kind: segment.Set, Key: key, Value: l.value}}}})
		if err != nil {
			return err
		}
	}
	return nil
}

// A replay keeps in memory what may not be committed, and a bound of the rest.
func TestReplayNeedsBoundedMemory(t *testing.T) {
	h := newHost(t, nil)
	h.journal.setHome(false)
	h.Unlead()
	e := openEngine(t, h.fs, h.journal, func(c *Config) { c.Dir = "other" })
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	l := longLog{records: 3 * lagBytes / (64 << 10), value: make([]byte, 64<<10)}
	most := 0
	l.each = func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		most = max(most, e.lag)
	}
	const open = 7 // records at the end that may not be committed
	committed := l.at(l.records - open)
	if err := e.Replay(t.Context(), l, committed); err != nil {
		t.Fatal(err)
	}
	if bound := lagBytes + 2*len(l.value); most > bound {
		t.Errorf("%d bytes were in memory, the bound is %d", most, bound)
	}
	if err := e.WaitApplied(t.Context(), committed); err != nil {
		t.Fatal(err)
	}
	if got := e.Applied(); got != committed {
		t.Errorf("applied up to %v, committed is %v", got, committed)
	}
	if err := e.Drop(committed); err != nil { // what is not committed can still be cut
		t.Error(err)
	}
}
