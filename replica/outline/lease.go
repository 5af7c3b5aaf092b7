// SPDX-License-Identifier: Apache-2.0

package outline

import (
	"context"
	"time"

	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// tells adds to a message what the home is to know before it lends (outline-6).
func (f *Follower) tells(q *peerpb.FollowRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q.Reads, q.Sent, f.reads = int64(f.reads), int64(f.cfg.Clock()), 0
	q.Known = &peerpb.Position{Seq: f.heard.Seq, Off: f.heard.Off} // known may be of a log that was cut since
}

// borrow takes in a lease, and how far the log reaches.
func (f *Follower) borrow(ctx context.Context, r *peerpb.FollowReply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.GetEnd() == nil || ctx.Err() != nil { // the session is over: its epoch may be too
		return
	}
	f.heard = Position{Seq: r.GetEnd().GetSeq(), Off: r.GetEnd().GetOff()}
	if f.known.Less(f.heard) {
		f.known = f.heard
	}
	select {
	case f.told <- struct{}{}:
	default: // it is not answered yet
	}
	if grant, echo := time.Duration(r.GetGrant()), time.Duration(r.GetEcho()); grant > 0 && echo > f.jumped && echo <= f.cfg.Clock() {
		// Clocks differ in speed by a sixteenth at most.
		f.lease = max(f.lease, echo+grant-grant/16)
	}
}

// leased reports whether a read that begins now may be answered from here, once the machine has
// applied all up to pos: the home acknowledges nothing beyond, before this follower knows of it
// (outline-6). It costs the home nothing.
func (f *Follower) leased() (pos Position, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known, f.cfg.Clock() < f.lease
}

// wants notes a read for which a lease was, or would be, of use: so one is asked for, and kept. It
// is of none at a home that does not answer: commits stall, or much is to come before.
func (f *Follower) wants() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers(f.cfg.Clock()) {
		f.reads++
	}
}

// Leased reports whether there is a lease now.
func (f *Follower) Leased() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cfg.Clock() < f.lease
}
