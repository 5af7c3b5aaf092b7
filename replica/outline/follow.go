// SPDX-License-Identifier: Apache-2.0

package outline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// Machine is the part of *engine.Engine to which a log is applied.
type Machine interface {
	Ingest(entries []journal.Entry) error
	Behind() bool
	Committed(pos Position)
	Applied() Position
	WaitApplied(ctx context.Context, pos Position) error
}

// Config has what a Follower needs.
type Config struct {
	Volume  string   // UUID
	Log     *log.Log // that log.OpenOutline opened
	Machine Machine
	// Home returns the volume's home now, its epoch, and a context that ends when another one is
	// known.
	Home func() (client peerpb.OutlinesClient, epoch uint64, over context.Context, err error)
	// Changed returns a channel that is closed when Home may return another.
	Changed func() <-chan struct{}
	// Staleness is how old what readers are shown may be; 0: they are shown all that was
	// acknowledged. See SetStaleness.
	Staleness time.Duration
	Heartbeat time.Duration
	Clock     func() time.Duration // monotonic, counts suspend
	Timers    clockwork.Clock
	// Diverged is called once, when what is here is not of the home's log. The owner closes the
	// Follower, and begins anew (outline-1).
	Diverged func(why error)
	Logger   *slog.Logger
}

// Follower follows the log of one volume, and is the journal.Journal of the engine to which it is
// applied. It is never the home: it accepts no change.
type Follower struct {
	cfg      Config
	received atomic.Uint64
	ask      chan struct{} // buffer of one: somebody waits for a new claim
	cancel   context.CancelFunc
	work     sync.WaitGroup

	mu        sync.Mutex
	next      Position      // what lies before it was passed to the machine
	linked    bool          // the home of this session has answered a question
	asked     time.Duration // when the oldest question was sent that is not answered; 0: none
	last      time.Duration // when the newest question was sent
	trip      time.Duration // how long the newest answer took
	epoch     uint64        // of the home that answered last
	claims    []held        // ascending, of that epoch; those before one that counts are forgotten
	known     Position      // the log of that epoch reaches to here, and what is shown too (outline-6)
	lease     time.Duration // until when it reads without asking
	jumped    time.Duration // what counts from before that is not believed
	reads     int           // of which the home was not told
	moved     chan struct{}
	end       context.CancelFunc // of the present session
	told      chan struct{}      // of the present session; buffer of one: it is to answer what it heard
	heard     Position           // in the present session, of how far the log reaches
	staleness time.Duration
}

// held is a claim that the home made: all that was acknowledged at that time of the own clock lies
// before pos.
type held struct {
	at  time.Duration
	pos Position
}

var _ journal.Journal = (*Follower)(nil)

// Follow returns a Follower of the log, from what the machine has applied. Start starts it.
func Follow(cfg Config) *Follower {
	return &Follower{cfg: cfg, ask: make(chan struct{}, 1), moved: make(chan struct{}),
		next: cfg.Machine.Applied(), staleness: cfg.Staleness}
}

// Start lets it follow until Close.
func (f *Follower) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.work.Go(func() { f.run(ctx) })
}

// Close ends it.
func (f *Follower) Close() {
	if f.cancel != nil {
		f.cancel()
	}
	f.work.Wait()
}

// How long a Follower waits before it looks for the home again, unless another one is known.
const (
	retryFirst = 200 * time.Millisecond
	retryMost  = 10 * time.Second
)

func (f *Follower) run(ctx context.Context) {
	wait, told := retryFirst, ""
	for {
		began := f.cfg.Timers.Now()
		epoch, err := f.session(ctx)
		f.unlink()
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, log.ErrDiverged) || status.Code(err) == codes.OutOfRange {
			f.cfg.Diverged(err)
			return
		}
		level := slog.LevelDebug
		if why := fmt.Sprint(err); why != told && !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled &&
			!errors.Is(err, journal.ErrNotHome) {
			level, told = slog.LevelWarn, why
		}
		f.cfg.Logger.Log(ctx, level, "the home's log is not followed just now; its home is asked for what is read", "error", err)
		if f.cfg.Timers.Since(began) > retryMost {
			wait = retryFirst
		}
		if !f.pause(ctx, wait, epoch) {
			return
		}
		wait = min(2*wait, retryMost)
	}
}

// pause waits, or until there is a home of another epoch. false: ctx ended.
func (f *Follower) pause(ctx context.Context, wait time.Duration, epoch uint64) bool {
	over := f.cfg.Timers.After(wait)
	for {
		changed := f.cfg.Changed()
		if _, now, _, err := f.cfg.Home(); err == nil && now != epoch {
			return true
		}
		select {
		case <-changed:
		case <-over:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// unlink notes that no home answers.
func (f *Follower) unlink() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.linked, f.end, f.asked = false, nil, 0
	f.signal()
}

// forget forgets what the home of an epoch claimed, because another one is known (outline-3).
func (f *Follower) forget(epoch uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.epoch == epoch {
		f.claims, f.lease = nil, 0
	}
}

// sends notes that a question is sent, and returns its stamp.
func (f *Follower) sends() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = f.cfg.Clock()
	if f.asked == 0 {
		f.asked = f.last
	}
	return f.last
}

// link begins a session with the home of an epoch, which end ends. It forgets what that of another
// one claimed (outline-3).
func (f *Follower) link(epoch uint64, end context.CancelFunc) (next Position, told <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.epoch != epoch {
		f.epoch, f.claims, f.lease, f.known = epoch, nil, 0, Position{}
	}
	f.end, f.told, f.heard = end, make(chan struct{}, 1), Position{}
	return f.next, f.told
}

// signal wakes who waits for a claim. The caller holds mu.
func (f *Follower) signal() {
	close(f.moved)
	f.moved = make(chan struct{})
}

// Jumped reports that time may have passed which the clock did not count.
func (f *Follower) Jumped() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims, f.lease, f.jumped = nil, 0, f.cfg.Clock()
	if f.end != nil {
		f.end() // what was asked before is answered to nobody
	}
}

// session follows one home, and returns its epoch and why it ended.
func (f *Follower) session(ctx context.Context) (epoch uint64, err error) {
	client, epoch, over, err := f.cfg.Home()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next, told := f.link(epoch, cancel)
	defer context.AfterFunc(over, func() {
		cancel()
		f.forget(epoch) // at once, whatever the session waits for
	})()
	stream, err := client.Follow(ctx)
	if err != nil {
		return epoch, err
	}
	q := &peerpb.FollowRequest{Volume: f.cfg.Volume, After: &peerpb.Position{Seq: next.Seq, Off: next.Off}, Stamp: int64(f.sends())}
	if h, ok := f.cfg.Log.HeaderOf(next.Seq); ok {
		q.Salt = h.Salt[:]
	}
	if err := stream.Send(q); err != nil {
		return epoch, ended(stream, err)
	}
	f.work.Go(func() { f.beat(ctx, cancel, stream, told) })
	for {
		r, err := stream.Recv()
		if err == nil {
			err = f.take(ctx, r)
		}
		if err != nil {
			return epoch, err
		}
	}
}

// ended returns why a stream ended to which nothing can be sent.
func ended(stream peerpb.Outlines_FollowClient, err error) error {
	if _, rerr := stream.Recv(); rerr != nil {
		return rerr
	}
	return err
}

// strongTicks is for how many heartbeats a follower of a Strong volume asks once, unless somebody
// reads: no reader needs the answer.
const strongTicks = 15

func (f *Follower) asksSeldom() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.staleness == 0 && f.reads == 0
}

// apart is the least time between two questions. hurryApart is that between two of which the home
// is told that somebody waits: it then syncs its log, if there is anything to sync.
const (
	apart      = time.Millisecond
	hurryApart = 20 * time.Millisecond
)

// beat asks how far the log reaches, again and again.
func (f *Follower) beat(ctx context.Context, end func(), stream peerpb.Outlines_FollowClient, told <-chan struct{}) {
	tick := f.cfg.Timers.NewTicker(f.cfg.Heartbeat)
	defer tick.Stop()
	var hurried <-chan time.Time // it comes when the home may be told again that somebody waits; nil: now
	waits := false
	for n := 1; ; n++ {
		q := new(peerpb.FollowRequest)
		select {
		case <-told:
			f.tells(q)
			if err := stream.Send(q); err != nil {
				end()
				return
			}
			continue
		case <-tick.Chan():
			if f.asksSeldom() && n%strongTicks != 0 {
				continue
			}
		case <-f.ask:
			waits = true
		case <-hurried:
			if hurried = nil; !waits {
				continue
			}
		case <-ctx.Done():
			return
		}
		q.Stamp = int64(f.sends())
		f.tells(q)
		if waits && hurried == nil {
			q.Waits, waits, hurried = true, false, f.cfg.Timers.After(hurryApart)
		}
		if err := stream.Send(q); err != nil {
			end()
			return
		}
		select {
		case <-f.cfg.Timers.After(apart):
		case <-ctx.Done():
			return
		}
	}
}

// catchUp is how long take waits before it looks again whether the machine is still behind.
const catchUp = 10 * time.Millisecond

// take takes in what the home sent.
func (f *Follower) take(ctx context.Context, r *peerpb.FollowReply) error {
	f.borrow(ctx, r)             // changes may wait for this
	for f.cfg.Machine.Behind() { // the home waits too
		select {
		case <-f.cfg.Timers.After(catchUp):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var size uint64
	for _, b := range r.GetFrames() {
		size += uint64(len(b))
	}
	f.received.Add(size)
	f.mu.Lock()
	from := f.next
	f.mu.Unlock()
	entries, next, err := f.cfg.Log.Outline(from, r.GetFrames())
	if len(entries) > 0 {
		if err := f.cfg.Machine.Ingest(entries); err != nil {
			return fmt.Errorf("%w: %w", log.ErrDiverged, err)
		}
		f.cfg.Machine.Committed(next)
	}
	applied := f.cfg.Machine.Applied()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = next
	if err != nil {
		return err
	}
	if s := time.Duration(r.GetStamp()); s != 0 && ctx.Err() == nil {
		f.linked, f.trip = true, f.cfg.Clock()-s
		if f.asked = 0; s < f.last {
			f.asked = f.last
		}
		f.claims = append(f.claims, held{s, next})
		f.count(applied)
		f.signal()
	}
	return nil
}

// count forgets the claims before the newest one that counts. The caller holds mu.
func (f *Follower) count(applied Position) {
	for len(f.claims) > 1 && !applied.Less(f.claims[1].pos) {
		f.claims = f.claims[1:]
	}
}

// patience is how long an answer may take. The caller holds mu.
func (f *Follower) patience() time.Duration { return 2 * max(f.trip, f.cfg.Heartbeat) }

// answers reports whether the home answers questions: it has, and does not let one wait. The caller
// holds mu.
func (f *Follower) answers(now time.Duration) bool {
	return f.linked && (f.asked == 0 || now-f.asked <= f.patience())
}

// Received returns how many bytes of outlines came from homes.
func (f *Follower) Received() uint64 { return f.received.Load() }

// SetStaleness changes how old what readers are shown may be; 0: they are shown all that was
// acknowledged.
func (f *Follower) SetStaleness(most time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.staleness = most
}

// Bounded implements journal.Journal: it returns the newest claim that counts, however old. Who
// reads calls Young or Current before.
func (f *Follower) Bounded() (pos Position, ok bool) {
	c, ok := f.newest()
	return c.pos, ok
}

// newest returns the newest claim that counts.
func (f *Follower) newest() (c held, ok bool) {
	applied := f.cfg.Machine.Applied() // without mu, which the machine's locks come before
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count(applied)
	if len(f.claims) == 0 || applied.Less(f.claims[0].pos) {
		return held{}, false
	}
	return f.claims[0], true
}

// Young reports whether readers may be shown what is here, without Current.
func (f *Follower) Young() bool {
	c, ok := f.newest()
	f.mu.Lock()
	defer f.mu.Unlock()
	// Clocks differ in speed by a sixteenth at most.
	return ok && f.staleness > 0 && f.cfg.Clock()-c.at <= f.staleness-f.staleness/16
}

// Current waits until the machine has applied all that was acknowledged when it was called, and
// returns a position at or after that. With a lease, and when all is applied that is known of, that
// is at once (outline-6). Else it costs a round trip to the home, which many callers share
// (outline-4). It does not wait for a home that has not answered lately: one whose commits stall,
// or that has much to send before. Errors: journal.ErrNotHome if no home answers, and that of ctx.
func (f *Follower) Current(ctx context.Context) (Position, error) {
	began := f.cfg.Clock()
	pos, leased := f.leased()
	applied := !f.cfg.Machine.Applied().Less(pos)
	if !leased || applied {
		f.wants()
	}
	if leased && applied {
		return pos, nil
	}
	select {
	case f.ask <- struct{}{}:
	default: // what is asked for is not sent yet
	}
	var late <-chan time.Time
	for {
		f.mu.Lock()
		now, moved := f.cfg.Clock(), f.moved
		answers := f.answers(now)
		if late == nil {
			late = f.cfg.Timers.After(f.patience())
		}
		var c held
		if n := len(f.claims); n > 0 {
			c = f.claims[n-1]
		}
		f.mu.Unlock()
		switch {
		case c.at >= began:
			return c.pos, f.cfg.Machine.WaitApplied(ctx, c.pos)
		case !answers:
			return Position{}, fmt.Errorf("no home of the volume answers how far its log reaches: %w", journal.ErrNotHome)
		}
		select {
		case <-moved:
		case <-late:
			return Position{}, fmt.Errorf("the home of the volume does not answer how far its log reaches: %w", journal.ErrNotHome)
		case <-ctx.Done():
			return Position{}, ctx.Err()
		}
	}
}
