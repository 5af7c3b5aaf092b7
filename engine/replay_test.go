// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

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

// segmentedLog is a log of small records, ten in each segment.
type segmentedLog struct{ longLog }

func (l segmentedLog) at(i int) segment.Position {
	return segment.Position{Seq: 1 + uint64(i)/10, Off: 100 + uint64(i)%10}
}

func (l segmentedLog) Replay(_ context.Context, _ segment.Position, f func(journal.Entry) error) error {
	for i := range l.records {
		key := binary.BigEndian.AppendUint32([]byte("replayed-"), uint32(i))
		err := f(journal.Entry{End: l.at(i), Record: &journal.Record{Epoch: 1,
			Ops: []segment.Op{{Kind: segment.Set, Key: key, Value: l.value}}}})
		if err != nil {
			return err
		}
		l.each()
	}
	return nil
}

// TestCrashReplaysLittle: whenever the power goes, the metadata on the disk are at most some
// segments behind what is applied, however few records there are in them.
func TestCrashReplaysLittle(t *testing.T) {
	h := newHost(t, nil)
	h.journal.setHome(false)
	h.Unlead()
	e := openEngine(t, h.fs, h.journal, func(c *Config) { c.Dir = "other" })
	crashed := func() uint64 { // what is on the disk after a crash now
		disk := h.fs.CrashClone(vfs.CrashCloneCfg{})
		c := openEngine(t, disk, h.journal, func(c *Config) { c.Dir = "other" })
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		return c.Applied().Seq
	}
	n := 0
	l := segmentedLog{longLog{records: 1000, value: []byte("small")}}
	l.each = func() {
		if n++; n%50 != 0 {
			return
		}
		if err := e.WaitApplied(t.Context(), l.at(n-1)); err != nil {
			t.Fatal(err)
		}
		was := e.Applied().Seq // more may be applied meanwhile, but not less
		if kept := crashed(); kept+persistMost+2 < was {
			t.Fatalf("a crash would replay from segment %d on, %d is applied", kept, was)
		}
	}
	if err := e.Replay(t.Context(), l, l.at(l.records)); err != nil {
		t.Fatal(err)
	}
	if err := e.wait(t.Context(), func() bool { return !e.persisting }); err != nil {
		t.Fatal(err)
	}
	if kept, was := crashed(), e.Applied().Seq; kept+persistAfter < was {
		t.Errorf("at rest a crash would replay from segment %d on, %d is applied", kept, was)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
