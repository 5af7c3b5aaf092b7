// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"time"

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

// Reading notes that a gateway without a copy tells how far it knows that the log reaches, at a
// time of its clock, and how often its clients read. If this gateway is home, it may lend it a
// lease.
func (r *Replica) Reading(gateway string, known Position, stamp time.Duration, reads int) {
	r.post(protocol.Reading{Gateway: gateway, Known: known, Stamp: stamp, Reads: reads})
}

// Loan returns the newest loan to a gateway; false: it has none, or its lease has ended.
func (r *Replica) Loan(gateway string) (protocol.Lend, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.loans[gateway]
	return l.Lend, ok && r.node.cfg.Clock() < l.until
}

// lend carries out the effect. A lease is lent only once it is noted on the pool that there may be
// such leases.
func (r *Replica) lend(e protocol.Lend) {
	if err := r.cfg.Log.NoteLoans(); err != nil {
		r.cfg.Logger.Warn("no lease is lent to a gateway without a copy: its clients wait for this gateway at each read",
			"gateway", e.To, "error", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loans == nil {
		r.loans = map[string]loan{}
	}
	r.loans[e.To] = loan{e, r.node.cfg.Clock() + e.Grant}
	r.progressed()
}

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
	leading := r.leading
	r.mu.Unlock()
	if reads > 0 && !leading {
		r.post(protocol.Wanted{Reads: int(min(reads, 1<<20))})
	}
	if r.cfg.Log.Loans() {
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
