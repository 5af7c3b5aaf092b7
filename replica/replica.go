// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/lag"
	"github.com/weir-storage/weir/replica/protocol"
	"github.com/weir-storage/weir/track"
)

// Config has what a Replica needs. All fields are required unless they say otherwise.
type Config struct {
	Volume  string // UUID
	Log     *log.Log
	Machine journal.Machine
	// Blind: Log has no key, and there is no Machine (protocol-28). DataKey and Keys are not used.
	Blind   bool
	Policy  protocol.Policy
	DataKey [32]byte // proves to a home that this site can unwrap it (protocol-17)
	// Keys has the volume's data keys, of which DataKey is the first; nil: there is no other. The
	// newest is what proves.
	Keys *segment.Keys
	// WantKey is called when the home sends what is sealed with a data key that is not here; nil:
	// nobody is. It must not wait.
	WantKey func()
	MaxLag  MaxLag
	// Tails returns in which time what is committed is to be in stores, if each copy puts the end
	// of its log there in pieces, so that a home need not end small segments for that (ADR 60); 0:
	// they do not. nil: never.
	Tails func() time.Duration
	// Staleness is how old what readers of this copy are shown may be; 0: they are shown all that
	// was acknowledged. See SetStaleness.
	Staleness time.Duration
	Store     Uploads // of this site; nil for none
	// Aside is called once, from the event loop, when the log has changes that a forced takeover
	// left out and that may have been acknowledged. The owner closes the replica, keeps its
	// directory as salvage and makes an empty copy (protocol-6).
	Aside func(cut Position)
	// Anew is called, from the event loop, when what comes after this log is dropped everywhere.
	// All that it has is in the home's log. The owner closes the replica, and lets the copy begin
	// with a checkpoint that is later. It may be called again.
	Anew func()
	// Ended is called once, from the event loop, when the replica takes no part any more, because
	// its log failed or was disowned. The owner closes the replica and opens the log again. A log
	// that was disowned is then in doubt (protocol-3), unless why is an *UnnotedError; one that
	// failed goes on from what was durable.
	Ended  func(why error)
	Logger *slog.Logger
}

// MaxLag bounds how far a copy that answers may trail. Zero fields mean no bound. Time also bounds
// the age of a segment that is not sealed, so that its data reaches the stores.
type MaxLag struct {
	Bytes int64
	Time  time.Duration
}

// Replica is one volume's log at one gateway, and the journal.Journal of its engine. Node.Open
// makes it.
type Replica struct {
	node *Node
	cfg  Config
	self protocol.Member // with the identity of its log

	mu      sync.Mutex
	core    *protocol.Core
	first   []protocol.Effect // effects of protocol.New
	queue   []input
	queued  int        // bytes of frames in queue
	drained *sync.Cond // uses mu; signals that queued has shrunk
	merged  merged     // kinds of inputs that are in queue
	running bool
	holder  *batch            // that runs instead of the loop; nil: none
	after   []protocol.Effect // for the loop, when the holder is done; only who runs uses it
	// afterEnv is the envelope that brought after.
	afterEnv *Envelope
	closed   bool
	accepts  bool // Append is allowed; true from before the machine leads
	leading  bool // the machine leads
	paused   bool
	epoch    uint64 // of leading
	leader   leader
	waiters  []*waiter
	timed    timed
	streams  map[string]*stream
	changed  chan struct{} // closed and replaced when role or lease may have changed
	moved    chan struct{} // closed when the commit or the role has changed; nil: nobody waits
	reading  bool          // a ReadControl is under way
	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup
	lag      lag.Meter
	maxLag   MaxLag
	caught   map[string]bool // gateways that have been within maxLag since their stream began
	// staleness is Config's.
	staleness time.Duration
	wanted    atomic.Int64    // calls of Wanted that the core was not told of
	loans     map[string]loan // by gateway
	lentAt    time.Duration   // when the newest was lent
	unknown   int             // calls of WaitKnown that wait
	uploader  uploader
	lent      map[string]*lentStore // by agreement
	syncSoon  clockwork.Timer
	full      pause // no frames are accepted for lack of room; only the event loop uses it
	stuck     stuck // why writers wait for room
	// swapPause is how long the outcome of the last swap was held back.
	swapPause time.Duration
	why       error // why the log failed; nil: it did not
	disowned  bool  // only the event loop uses it
}

var _ journal.Journal = (*Replica)(nil)

// waiter waits for a commit. Replica.mu guards here, until done has the outcome.
type waiter struct {
	pos  Position
	done chan error
	here time.Duration // since when pos is durable here; 0: it is not
}

// durable notes that the log is durable up to pos. The caller holds r.mu.
func (r *Replica) durable(pos Position, now time.Duration) {
	r.timed.durable(pos, now)
	for _, w := range r.waiters {
		if w.here == 0 && !pos.Less(w.pos) {
			w.here = now
		}
	}
}

func (r *Replica) do(e protocol.Effect, env *Envelope) {
	switch e := e.(type) {
	case protocol.ReadControl:
		r.readControl()
	case protocol.Swap:
		r.work.Go(func() { r.swap(e) })
	case protocol.Send:
		r.send(e)
	case protocol.Stream:
		r.startStream(e)
	case protocol.Unstream:
		r.stopStream(e.To)
	case protocol.Ingest:
		r.ingest(env)
	case protocol.Truncate:
		r.truncate(e)
	case protocol.BeginEpoch:
		r.beginEpoch(e.Epoch)
	case protocol.Committed:
		r.committed(e.Position)
	case protocol.RoleChanged:
		r.roleChanged(e)
	case protocol.Pause:
		r.pause()
	case protocol.Resume:
		r.unpause()
	case protocol.Anew:
		r.cfg.Anew()
	case protocol.Disown:
		r.disown(e)
	case protocol.Lend:
		r.lend(e)
	}
}

func (r *Replica) logState() protocol.LogState {
	return protocol.LogState{End: r.cfg.Log.End(), Durable: r.cfg.Log.Durable(), Epochs: r.cfg.Log.Epochs(),
		Committed: r.cfg.Log.Recovered().Committed, Lacks: r.cfg.Log.AbsentBytes(),
		Base: r.cfg.Log.Base()}
}

func (r *Replica) send(e protocol.Send) {
	r.node.cfg.Transport.Send(e.To, []Envelope{r.envelope(e)})
}

func (r *Replica) envelope(e protocol.Send) Envelope {
	env := Envelope{Volume: r.cfg.Volume, Message: e.Message}
	if proved(e.Message.Kind) && !r.cfg.Blind {
		_, key := r.cfg.Keys.Newest()
		env.Proof = proof(key, r.cfg.Volume, e.Message.From, e.Message.Epoch)
	}
	return env
}

func (r *Replica) beginEpoch(epoch uint64) {
	_, err := r.cfg.Log.BeginEpoch(epoch)
	if isFull(err) && r.makeRoom(segment.HeaderSize) > 0 {
		_, err = r.cfg.Log.BeginEpoch(epoch)
	}
	if err != nil {
		r.failed(err)
		return
	}
	r.refresh()
	r.cfg.Log.Sync(r.cfg.Log.End())
}

func (r *Replica) committed(pos Position) {
	r.cfg.Log.NoteCommitted(pos)
	r.cfg.Machine.Committed(pos)
	r.mu.Lock()
	now := r.node.cfg.Clock()
	local, all, ok := r.timed.committed(pos, now)
	r.durable(pos, now)
	keep := r.waiters[:0]
	for _, w := range r.waiters {
		if pos.Less(w.pos) {
			keep = append(keep, w)
		} else {
			w.done <- nil
		}
	}
	clear(r.waiters[len(keep):])
	r.waiters = keep
	r.progressed()
	ended := r.uploader.commit != pos.Seq // a segment ended
	r.uploader.commit = pos.Seq
	r.mu.Unlock()
	if ok {
		r.node.cfg.Meter.Committed(r.cfg.Volume, local, all)
	}
	if ended {
		r.upload()
	}
}

// UnnotedError says why a log was given up, of which the pool knows nothing yet: who opens the log
// again does not let it take part.
type UnnotedError struct{ why error }

func (e *UnnotedError) Error() string { return e.why.Error() }

// disown gives up a log that lost something (protocol-3).
func (r *Replica) disown(e protocol.Disown) {
	why := fmt.Errorf("gateway %s knows that the volume is committed up to %v, which this log does not have", e.By, e.Committed)
	r.disowned = true
	r.cfg.Logger.Error("this copy is given up: it does not take part any more", "error", why, "end", r.cfg.Log.End())
	if err := r.cfg.Log.Disown(why); err != nil {
		r.cfg.Logger.Error("that this copy is given up is not noted on its pool", "error", err)
		why = &UnnotedError{why}
	}
	r.cfg.Ended(why)
}

func (r *Replica) pause() {
	r.mu.Lock()
	r.paused = true
	r.mu.Unlock()
	r.cfg.Log.Sync(r.cfg.Log.End())
}

func (r *Replica) unpause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = false
	r.signal()
}

// abandon ends all waits for a commit with err. The caller holds r.mu.
func (r *Replica) abandon(err error) {
	for _, w := range r.waiters {
		w.done <- err
	}
	r.waiters = nil
}

// signal wakes everybody who waits on changed. The caller holds r.mu.
func (r *Replica) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
	r.progressed()
}

// Append implements journal.Journal. If the log fails in the middle of an append, the record may
// come back when the log is opened again. So it counts as appended, and is not committed in this
// reign. If there is no room, WaitRoom makes some: nobody waits for that in a critical section.
func (r *Replica) Append(ctx context.Context, rec *segment.Record) (Position, error) {
	if err := ctx.Err(); err != nil {
		return Position{}, err
	}
	r.mu.Lock()
	if !r.accepts || r.paused || r.closed {
		r.mu.Unlock()
		return Position{}, journal.ErrNotHome
	}
	rec.Epoch = r.epoch
	r.mu.Unlock()
	end, err := r.cfg.Log.Append(rec)
	switch {
	case isFull(err):
		r.stuck.wants(err)
		return Position{}, fmt.Errorf("%w: %w", journal.ErrFull, err)
	case errors.Is(err, log.ErrPoisoned):
		r.fail(err)
		end = r.cfg.Log.End()
		return Position{Seq: end.Seq, Off: end.Off + 1}, nil // is not committed in this reign
	case errors.Is(err, log.ErrNoEpoch), errors.Is(err, log.ErrClosed), errors.Is(err, log.ErrDoubt):
		return Position{}, fmt.Errorf("%w: append: %v", journal.ErrNotHome, err)
	case err != nil:
		return Position{}, fmt.Errorf("append to the log: %w", err)
	}
	if len(rec.Blocks) > 0 {
		r.stuck.over(r.cfg.Logger)
	}
	r.post(protocol.Appended{})
	r.kickStreams()
	r.syncLater()
	return end, nil
}

// SealAhead implements journal.Journal.
func (r *Replica) SealAhead(blocks []segment.Block) { r.cfg.Log.SealAhead(blocks) }

// syncLater syncs the log soon, so that unstable data does not stay in memory for long.
func (r *Replica) syncLater() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.loans) > 0 {
		r.progressed() // those who read under leases are told how far the log reaches
	}
	if r.syncSoon != nil || r.closed {
		return
	}
	r.syncSoon = r.node.cfg.Timers.AfterFunc(100*time.Millisecond, func() {
		r.mu.Lock()
		r.syncSoon = nil
		closed := r.closed
		r.mu.Unlock()
		if !closed {
			r.cfg.Log.Sync(r.cfg.Log.End())
		}
	})
}

// WaitCommitted implements journal.Journal.
func (r *Replica) WaitCommitted(ctx context.Context, pos Position) error {
	r.mu.Lock()
	if !r.accepts { // even if pos is committed: the record that ends there may be the next home's
		r.mu.Unlock()
		return journal.ErrNotHome
	}
	if !r.core.Commit().Less(pos) {
		r.mu.Unlock()
		return nil
	}
	w := &waiter{pos: pos, done: make(chan error, 1)}
	r.waiters = append(r.waiters, w)
	began := r.node.cfg.Clock()
	r.timed.begin(pos, began)
	r.durable(r.cfg.Log.Durable(), began) // if it is already, nobody tells
	r.mu.Unlock()
	r.cfg.Log.Sync(pos)
	select {
	case err := <-w.done:
		w.took(ctx, began, r.node.cfg.Clock())
		return err
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waiters = slices.DeleteFunc(r.waiters, func(x *waiter) bool { return x == w })
		w.took(ctx, began, r.node.cfg.Clock())
		return ctx.Err()
	}
}

// took tells the operation of ctx for what it waited until now.
func (w *waiter) took(ctx context.Context, began, now time.Duration) {
	here := w.here
	if here == 0 {
		here = now
	}
	track.Past(ctx, []track.Part{track.Disk, track.Members}, here-began, now-here)
}

// MayServe implements journal.Journal.
func (r *Replica) MayServe() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.node.cfg.Clock()
	switch {
	case r.closed:
		return errClosed
	case r.leading && r.core.MayServe(now), !r.leading && r.core.MayRead(now) && r.core.Status(now).Role == protocol.Follower:
		return nil
	case r.leading:
		return journal.ErrNoLease
	}
	return journal.ErrNotHome
}

// Bounded implements journal.Journal.
func (r *Replica) Bounded() (pos Position, ok bool) {
	applied := r.cfg.Machine.Applied() // without r.mu, which the machine's locks come before
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.staleness == 0 || r.closed || r.leading {
		return Position{}, false
	}
	now := r.node.cfg.Clock()
	at, pos, ok := r.core.Fresh(now, applied)
	// Clocks differ in speed by a sixteenth at most.
	return pos, ok && now-at <= r.staleness-r.staleness/16
}

// SetStaleness changes how old what readers of this copy are shown may be; 0: they are shown all
// that was acknowledged.
func (r *Replica) SetStaleness(most time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.staleness = most
}

// Committed returns up to where the log is committed. The channel is closed when it may be further,
// or the role may be another one, or, while there are loans, when the log may end further.
func (r *Replica) Committed() (pos Position, moved <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moved == nil {
		r.moved = make(chan struct{})
	}
	return r.core.Commit(), r.moved
}

// progressed wakes who waits for what Committed returned. The caller holds r.mu.
func (r *Replica) progressed() {
	if r.moved != nil {
		close(r.moved)
		r.moved = nil
	}
}

// Leading reports whether this gateway is home and executes changes, and in which epoch.
func (r *Replica) Leading() (epoch uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epoch, r.leading && !r.paused
}

// ReadBlocks implements journal.Journal.
func (r *Replica) ReadBlocks(ctx context.Context, refs []segment.BlockRef) ([][]byte, error) {
	return r.cfg.Log.ReadBlocks(ctx, refs)
}

// Status describes the replica.
func (r *Replica) Status() protocol.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Status(r.node.cfg.Clock())
}

// Control returns the newest control record known here, or nil.
func (r *Replica) Control() *federation.Control { return r.Status().Control }

// SetPolicy changes how many members are wanted, which sites have copies, and how far they may
// trail.
func (r *Replica) SetPolicy(p protocol.Policy, lag MaxLag) {
	r.mu.Lock()
	r.maxLag = lag
	r.mu.Unlock()
	r.post(protocol.PolicyChanged{Policy: p})
}

// Move hands the home over to another gateway without loss. Only the home can do it.
func (r *Replica) Move(to string) { r.post(protocol.Move{To: to}) }

// Force makes this gateway home without the members' consent. Only a person may ask for it
// (protocol-4), in place of the control record of that epoch and change. word is with what he said
// so (signed.Takeover).
func (r *Replica) Force(epoch, change uint64, word string) {
	r.post(protocol.Force{Epoch: epoch, Change: change, Word: word})
}

// Blind reports whether the copy has no key.
func (r *Replica) Blind() bool { return r.cfg.Blind }

// Reigns reports whether this gateway is home, and in which epoch: one that executes changes, as
// Leading says, or a steward.
func (r *Replica) Reigns() (epoch uint64, ok bool) {
	if !r.cfg.Blind {
		return r.Leading()
	}
	s := r.Status()
	return s.Epoch, s.Role == protocol.Home
}
