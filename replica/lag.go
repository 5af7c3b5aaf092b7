// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/protocol"
	"github.com/weir-storage/weir/track"
)

// tend does the periodic work of a replica, other than the protocol's.
func (r *Replica) tend() {
	end := r.cfg.Log.End()
	now := r.node.cfg.Clock()
	r.mu.Lock()
	leading := r.leading && !r.paused
	r.lag.Sample(end, now)
	age := r.lag.Age(end, now)
	stale := r.maxLag.Time > 0 && age > r.maxLag.Time/2
	full := len(r.lent) > 0 && r.maxLag.Bytes > 0 && int64(end.Off) > r.maxLag.Bytes/2
	if !r.core.Trailed() && !r.lag.CatchesUp() { // there is nothing to measure
	} else if s := r.core.Status(now); leading || r.cfg.Blind && s.Role == protocol.Home {
		r.lag.Follow(s.Peers, s.Commit, end, now, r.cfg.Log.Distance)
	} else {
		r.lag.Forget()
	}
	stores := r.cfg.Store != nil || len(r.lent) > 0
	look := r.uploader.due(r.core.Commit(), end)
	r.mu.Unlock()
	if leading && (stale && stores && !r.inPieces(end, age) || full) {
		r.Roll()
	}
	if look {
		r.upload()
	}
}

// A segment that has TailBytes ends when it is old, and any other one when it is TailTimes as old:
// so often at most its end goes to a store (ADR 60).
const (
	TailBytes = 4 << 20
	TailTimes = 64
)

// inPieces reports whether each copy puts the last segment, of that age, into its store in pieces.
func (r *Replica) inPieces(end Position, age time.Duration) bool {
	return r.cfg.Tails != nil && end.Off < TailBytes && age <= TailTimes*r.cfg.Tails()/2
}

// Roll makes the event loop of a home seal the last segment, so that it can be uploaded. It does
// not wait. The event loop does it because it also ends the reign: a segment begun after the reign
// would be one that no other log has.
func (r *Replica) Roll() { r.enqueue(input{do: r.roll, kind: mergedRoll}) }

func (r *Replica) roll() {
	r.mu.Lock()
	leading := r.leading
	r.mu.Unlock()
	if !leading {
		return
	}
	if err := r.cfg.Log.Roll(); err != nil {
		r.cfg.Logger.Warn("segment is not sealed", "error", err)
		return
	}
	r.refresh()
	r.grew()
	r.cfg.Log.Sync(r.cfg.Log.End())
	r.kickStreams()
}

// Lag returns how far each copy trails, as the home sees it. It returns nil if this gateway is not
// the home.
func (r *Replica) Lag() []federation.ObservedReplica {
	s := r.Status()
	if s.Role != protocol.Home && s.Role != protocol.Starting {
		return nil
	}
	now := r.node.cfg.Clock()
	self := r.node.cfg.Self
	out := []federation.ObservedReplica{{Gateway: self.Gateway, Site: self.Site, State: federation.ReplicaHome,
		Durable: federation.Position(s.Durable)}}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range s.Peers {
		if !p.Matched { // its log may end anywhere
			out = append(out, federation.ObservedReplica{Gateway: p.Member.Gateway, Site: p.Member.Site, State: federation.ReplicaLost,
				Unheard: true})
			continue
		}
		o := federation.ObservedReplica{Gateway: p.Member.Gateway, Site: p.Member.Site, Durable: federation.Position(p.Match),
			LagBytes:   r.cfg.Log.Distance(p.Match, s.End) + int64(min(p.Lacks, 1<<60)),
			LagSeconds: r.lag.Behind(p.Match, now).Seconds(), StuckSeconds: p.Stuck.Seconds()}
		switch {
		case !p.Answers:
			o.State = federation.ReplicaLost
		case p.Vote:
			o.State = federation.ReplicaMember
		case p.Match.Less(s.Commit) || p.Lacks > 0:
			o.State = federation.ReplicaJoining
		default:
			o.State = federation.ReplicaFollower
		}
		if p.Answers {
			o.Progress = r.lag.Progress(o.Gateway, o.LagBytes)
		}
		out = append(out, o)
	}
	return out
}

// Ready implements journal.Journal. It makes a writer wait while a copy that answers trails further
// than the policy allows (protocol-11). A copy that does not answer, or that has not caught up
// since its stream began, does not stop the volume. The status shows it as such. It also makes one
// wait while much is not committed: what cannot be committed, for lack of members, must not fill
// memory and the pool.
func (r *Replica) Ready(ctx context.Context) error {
	if !r.tooFar() {
		return nil
	}
	ctx, end := track.Begin(ctx, track.Lag)
	defer end()
	for r.tooFar() {
		select {
		case <-r.node.cfg.Timers.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (r *Replica) tooFar() bool {
	now := r.node.cfg.Clock()
	end := r.cfg.Log.End()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leading {
		return false
	}
	if r.cfg.Log.Distance(r.core.Commit(), end) > r.node.cfg.Uncommitted {
		return true
	}
	if r.maxLag == (MaxLag{}) {
		return false
	}
	for _, p := range r.core.Status(now).Peers {
		switch {
		case !p.Joined:
			delete(r.caught, p.Member.Gateway)
		case now-p.Seen > r.node.cfg.Promise:
		case !r.trails(p.Match, end, now):
			if r.caught == nil {
				r.caught = map[string]bool{}
			}
			r.caught[p.Member.Gateway] = true
		case r.caught[p.Member.Gateway]:
			return true
		}
	}
	return r.storesTrail(end, now)
}

// trails reports whether a copy that ends at pos trails further than the policy allows. The caller
// holds r.mu.
func (r *Replica) trails(pos, end Position, now time.Duration) bool {
	if !pos.Less(end) {
		return false
	}
	limit := r.maxLag
	return limit.Bytes > 0 && r.cfg.Log.Distance(pos, end) > limit.Bytes || limit.Time > 0 && r.lag.Behind(pos, now) > limit.Time
}

// timed is a commit whose time is taken. One at a time is enough. Replica.mu guards it.
type timed struct {
	on    bool
	pos   Position
	began time.Duration
	here  bool          // it is durable here
	local time.Duration // since when
}

func (t *timed) begin(pos Position, now time.Duration) {
	if !t.on {
		*t = timed{on: true, pos: pos, began: now}
	}
}

func (t *timed) durable(pos Position, now time.Duration) {
	if t.on && !t.here && !pos.Less(t.pos) {
		t.here, t.local = true, now
	}
}

// committed returns how long it took to be durable here, and to be committed; false: it is not yet.
func (t *timed) committed(pos Position, now time.Duration) (local, all time.Duration, ok bool) {
	if !t.on || pos.Less(t.pos) {
		return 0, 0, false
	}
	t.on = false
	t.durable(pos, now)
	return t.local - t.began, now - t.began, true
}
