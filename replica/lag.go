// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/protocol"
	"github.com/weir-storage/weir/track"
)

// lagMeter remembers when the home's log ended where, so that lag can be given as time. Replica.mu
// guards it.
type lagMeter struct {
	samples []lagSample     // ascending
	caught  map[string]bool // gateways that have been within the limit since their stream began
	filling uint64          // segment that the log ends in; 0 while it has no records
	since   time.Duration   // when filling was first seen with records

	catching map[string]*catchUp // by gateway
}

// maxSamples bounds the samples of a lagMeter.
const maxSamples = 4096

type lagSample struct {
	end Position
	at  time.Duration
}

// sample remembers that the log ends at end now. It is called at every tick, with r.mu held.
func (l *lagMeter) sample(end Position, now time.Duration) {
	for n := len(l.samples); n > 0 && end.Less(l.samples[n-1].end); n-- { // the log was cut
		l.samples = l.samples[:n-1]
	}
	if n := len(l.samples); n > 0 && l.samples[n-1].end == end {
		return
	}
	l.samples = append(l.samples, lagSample{end, now})
	if len(l.samples) <= maxSamples {
		return
	}
	// The older a change is, the less exact its age: samples are a fiftieth of their age apart.
	last := l.samples[len(l.samples)-1]
	thin := append(l.samples[:0:0], l.samples[0])
	for i, s := range l.samples[1 : len(l.samples)-1] {
		if next := l.samples[i+2]; next.at-thin[len(thin)-1].at > (now-next.at)/50 {
			thin = append(thin, s)
		}
	}
	l.samples = append(thin, last)
}

// behind returns how long a copy that ends at pos has been trailing.
func (l *lagMeter) behind(pos Position, now time.Duration) time.Duration {
	for _, s := range l.samples {
		if pos.Less(s.end) {
			return now - s.at
		}
	}
	return 0
}

// age returns how long the log has ended in a segment that is not sealed and has records. It must
// be called at every tick.
func (l *lagMeter) age(end Position, now time.Duration) time.Duration {
	switch {
	case end.Off <= segment.HeaderSize:
		l.filling = 0
	case l.filling != end.Seq:
		l.filling, l.since = end.Seq, now
	default:
		return now - l.since
	}
	return 0
}

// tick does the periodic work of a replica.
func (r *Replica) tick() {
	r.tellReads()
	r.post(protocol.Tick{})
	end := r.cfg.Log.End()
	now := r.node.cfg.Clock()
	r.mu.Lock()
	leading := r.leading && !r.paused
	r.lag.sample(end, now)
	age := r.lag.age(end, now)
	stale := r.maxLag.Time > 0 && age > r.maxLag.Time/2
	full := len(r.lent) > 0 && r.maxLag.Bytes > 0 && int64(end.Off) > r.maxLag.Bytes/2
	if s := r.core.Status(now); leading || r.cfg.Blind && s.Role == protocol.Home {
		r.lag.follow(s.Peers, s.Commit, end, now, r.cfg.Log.Distance)
	} else {
		r.lag.catching = nil
	}
	stores := r.cfg.Store != nil || len(r.lent) > 0
	r.mu.Unlock()
	if leading && (stale && stores || full) {
		r.rollSoon()
	}
	r.upload()
}

// rollSoon makes the event loop seal the last segment, so that it can be uploaded. The event loop
// does it because it also ends the reign: a segment begun after the reign would be one that no
// other log has.
func (r *Replica) rollSoon() { r.enqueue(input{do: r.roll, kind: mergedRoll}) }

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
			LagBytes: r.cfg.Log.Distance(p.Match, s.End), LagSeconds: r.lag.behind(p.Match, now).Seconds(), StuckSeconds: p.Stuck.Seconds()}
		switch {
		case !p.Answers:
			o.State = federation.ReplicaLost
		case p.Vote:
			o.State = federation.ReplicaMember
		case p.Match.Less(s.Commit):
			o.State = federation.ReplicaJoining
		default:
			o.State = federation.ReplicaFollower
		}
		if c := r.lag.catching[o.Gateway]; c != nil && p.Answers {
			o.Progress = c.progress(o.LagBytes)
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
			delete(r.lag.caught, p.Member.Gateway)
		case now-p.Seen > r.node.cfg.Promise:
		case !r.trails(p.Match, end, now):
			if r.lag.caught == nil {
				r.lag.caught = map[string]bool{}
			}
			r.lag.caught[p.Member.Gateway] = true
		case r.lag.caught[p.Member.Gateway]:
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
	return limit.Bytes > 0 && r.cfg.Log.Distance(pos, end) > limit.Bytes || limit.Time > 0 && r.lag.behind(pos, now) > limit.Time
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
