// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"time"

	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/protocol"
)

// loan is the newest lease that was lent to a gateway without a copy, and until when it lasts by
// the own clock.
type loan struct {
	protocol.Lend
	until time.Duration
}

// Wanted notes that clients of this gateway read the volume. A copy without a vote then asks the
// home for a lease (protocol-26).
func (r *Replica) Wanted() { r.wanted.Add(1) }

// Reading notes what a gateway without a copy tells: how far it knows that the log reaches, and how
// often its clients read. If this gateway is home, it may lend it a lease.
func (r *Replica) Reading(e protocol.Reading) {
	r.mu.Lock()
	many := len(r.queue) >= maxMessages
	r.mu.Unlock()
	if !many {
		r.post(e)
	}
}

// Loan returns the newest loan to a gateway; false: it has none, or its lease has ended.
func (r *Replica) Loan(gateway string) (protocol.Lend, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.loans[gateway]
	return l.Lend, ok && r.node.cfg.Clock() < l.until
}

// WaitKnown implements journal.Journal.
func (r *Replica) WaitKnown(ctx context.Context, pos Position) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for first := true; ; first = false {
		switch {
		case !r.accepts:
			return journal.ErrNotHome
		case !r.core.Unknown(r.node.cfg.Clock(), pos, first):
			return nil
		}
		if r.moved == nil {
			r.moved = make(chan struct{})
		}
		moved := r.moved
		r.unknown++ // so each step wakes it, and there is one at each tick
		r.mu.Unlock()
		var err error
		select {
		case <-moved:
		case <-ctx.Done():
			err = ctx.Err()
		}
		r.mu.Lock()
		if r.unknown--; err != nil {
			return err
		}
	}
}

// lend carries out the effect. A lease is lent only once it is noted on the pool that there may be
// such leases.
func (r *Replica) lend(e protocol.Lend) {
	if err := r.cfg.Log.NoteLoans(); err != nil {
		r.cfg.Logger.Warn("no lease is lent to a gateway without a copy: its clients wait for this gateway at each read",
			"gateway", e.To, "error", err)
		r.step(input{event: protocol.NotLent{Gateway: e.To}}) // before it is lent to again
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loans == nil {
		r.loans = map[string]loan{}
	}
	r.lentAt = r.node.cfg.Clock()
	r.loans[e.To] = loan{e, max(r.loans[e.To].until, r.lentAt+e.Grant)}
	r.progressed()
}

// grew wakes those who tell gateways with leases how far the log reaches.
func (r *Replica) grew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.loans) > 0 {
		r.progressed()
	}
}

// keepNote is how long after the last loan the note of loans stays on the pool: it costs fsyncs to
// write it, and a home that starts again with it waits half a promise.
const keepNote = time.Minute

// tellReads passes to the core what Wanted noted, and forgets loans that have ended.
func (r *Replica) tellReads() {
	reads := r.wanted.Swap(0)
	r.mu.Lock()
	now := r.node.cfg.Clock()
	for g, l := range r.loans {
		if now >= l.until {
			delete(r.loans, g)
		}
	}
	leading, over := r.leading, now-r.lentAt > keepNote
	r.mu.Unlock()
	if reads > 0 && !leading {
		r.post(protocol.Wanted{Reads: int(min(reads, 1<<20))})
	}
	if over && r.cfg.Log.Loans() {
		r.enqueue(input{do: r.forgetLoans, kind: mergedForget})
	}
}

// forgetLoans notes on the pool that no gateway without a copy has a lease.
func (r *Replica) forgetLoans() {
	r.mu.Lock()
	lent := len(r.loans) > 0 || r.core.Lent(r.node.cfg.Clock())
	r.mu.Unlock()
	if lent {
		return
	}
	if err := r.cfg.Log.ForgetLoans(); err != nil {
		r.cfg.Logger.Debug("that no lease is lent is not noted", "error", err)
	}
}
