// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/journal/journaltest"
)

// log is a Journal of one gateway, in memory: what is appended is committed at once.
type log struct {
	machine journal.Machine
	epoch   uint64 // 0: not the home
	end     journal.Position
}

func (l *log) Append(_ context.Context, rec *journal.Record) (journal.Position, error) {
	if l.epoch == 0 {
		return journal.Position{}, journal.ErrNotHome
	}
	rec.Epoch = l.epoch
	l.end = journal.Position{Seq: 1, Off: l.end.Off + 100}
	l.machine.Show(rec, l.end) // before any other gateway can have it
	l.machine.Committed(l.end)
	return l.end, nil
}

func (l *log) Ready(context.Context) error                           { return nil }
func (l *log) SealAhead([]segment.Block)                             {}
func (l *log) WaitCommitted(context.Context, journal.Position) error { return nil }
func (l *log) WaitKnown(context.Context, journal.Position) error     { return nil }
func (l *log) WaitRoom(context.Context) error                        { return journal.ErrFull }
func (l *log) Bounded() (journal.Position, bool)                     { return journal.Position{}, false }
func (l *log) MayServe() error                                       { return nil }

func (l *log) ReadBlocks(context.Context, []segment.BlockRef) ([][]byte, error) {
	return nil, errors.New("this log keeps no blocks")
}

// A home appends a record. Its machine shows the record before Append returns, and applies it when
// it is committed.
func Example() {
	ctx := context.Background()
	m := journaltest.NewMachine()
	var j journal.Journal = &log{machine: m, epoch: 7}
	if err := m.Lead(ctx, 7); err != nil {
		fmt.Println(err)
	}
	end, err := j.Append(ctx, &journal.Record{})
	fmt.Println("appended up to", end, err)
	fmt.Println("shown up to", m.Shown()[0].End)
	fmt.Println("committed:", j.WaitCommitted(ctx, end) == nil)
	fmt.Println("applied up to", m.Applied())

	_, err = (&log{machine: m}).Append(ctx, &journal.Record{})
	fmt.Println("elsewhere:", errors.Is(err, journal.ErrNotHome))
	// Output:
	// appended up to 1/100 <nil>
	// shown up to 1/100
	// committed: true
	// applied up to 1/100
	// elsewhere: true
}
