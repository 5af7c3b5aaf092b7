// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/protocol"
)

// Config is what a Replica is made of. All fields are needed unless they say otherwise.
type Config struct {
	Volume  string // UUID
	Log     *log.Log
	Machine Machine
	Policy  protocol.Policy
	DataKey [32]byte // proves to a home that this site can unwrap it (rule 17)
	MaxLag  MaxLag
	Store   Uploads // of this site; nil for none
	// Aside is called once, from the event loop, when the log holds what a forced takeover left out although it was
	// applied here: the owner closes the replica, keeps its directory as salvage and begins anew (rule 6).
	Aside  func(cut Position)
	Logger *slog.Logger
}

// MaxLag bounds how far a live copy or the store may trail; zero fields do not bound.
type MaxLag struct {
	Bytes int64
	Time  time.Duration
}

// Replica is one volume's log at one gateway. Node.Open makes it.
type Replica struct {
	node *Node
	cfg  Config

	mu       sync.Mutex
	core     *protocol.Core
	first    []protocol.Effect // of the core's making
	queue    []input
	queued   int        // bytes of frames in queue
	drained  *sync.Cond // on mu: queued has shrunk
	running  bool
	closed   bool
	accepts  bool // Append appends: from before the machine leads
	leading  bool // the machine leads
	paused   bool
	epoch    uint64 // of leading
	waiters  []waiter
	streams  map[string]*stream
	changed  chan struct{} // closed and replaced when role or lease may have changed
	reading  bool          // a ReadControl is under way
	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup
	lag      lagMeter
	uploader uploader
	syncSoon *time.Timer
}

type input struct {
	event protocol.Event
	env   *Envelope
}

type waiter struct {
	pos  Position
	done chan error
}

// post hands an event to the event loop, starting it if it is not there.
func (r *Replica) post(e protocol.Event) { r.postWith(e, nil) }

func (r *Replica) postWith(e protocol.Event, env *Envelope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.queue = append(r.queue, input{e, env})
	if env != nil {
		r.queued += len(env.Frames)
	}
	if !r.running {
		r.running = true
		r.work.Go(r.loop)
	}
}

func (r *Replica) loop() {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 || r.closed {
			r.running = false
			r.mu.Unlock()
			return
		}
		in := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		r.step(in)
		if in.env != nil && len(in.env.Frames) > 0 {
			r.mu.Lock()
			r.queued -= len(in.env.Frames)
			r.drained.Broadcast()
			r.mu.Unlock()
		}
	}
}

// step gives the core one event and carries out what it asks for. Only the event loop calls it.
func (r *Replica) step(in input) {
	if _, ok := in.event.(protocol.Synced); ok {
		// Asked here, where the log is cut too: a notice may have been overtaken by a Truncate.
		in.event = protocol.Synced{Position: r.cfg.Log.Durable()}
	}
	r.mu.Lock()
	effects := r.core.Step(r.node.cfg.Clock(), in.event)
	r.mu.Unlock()
	for _, e := range effects {
		r.do(e, in.env)
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
		r.truncate(e.To)
	case protocol.BeginEpoch:
		r.beginEpoch(e.Epoch)
	case protocol.Committed:
		r.committed(e.Position)
	case protocol.RoleChanged:
		r.roleChanged(e)
	case protocol.Pause:
		r.pause()
	}
}

func (r *Replica) logState() protocol.LogState {
	return protocol.LogState{End: r.cfg.Log.End(), Durable: r.cfg.Log.Durable(), Epochs: r.cfg.Log.Epochs()}
}

func (r *Replica) send(e protocol.Send) {
	env := Envelope{Volume: r.cfg.Volume, Message: e.Message}
	if e.Message.Kind == protocol.Welcome {
		env.Proof = proof(r.cfg.DataKey, r.cfg.Volume, e.Message.From, e.Message.Epoch)
	}
	r.node.cfg.Transport.Send(e.To, env)
}

// maxQueued is how many bytes of frames wait at most; then the transport waits, and so does the sender.
const maxQueued = 16 << 20

// received takes a message in from the transport.
func (r *Replica) received(env Envelope) {
	m := env.Message
	if len(env.Frames) > 0 {
		r.mu.Lock()
		for r.queued > maxQueued && !r.closed {
			r.drained.Wait()
		}
		r.mu.Unlock()
	}
	if m.Kind == protocol.Welcome {
		m.Proved = proves(env.Proof, r.cfg.DataKey, r.cfg.Volume, m.From, m.Epoch)
		if !m.Proved {
			r.cfg.Logger.Warn("follower does not prove that it can unwrap the volume's key; it stays without a vote", "from", m.From.String())
		}
	}
	r.postWith(protocol.Received{Message: m}, &env)
}

func (r *Replica) ingest(env *Envelope) {
	if env == nil || len(env.Frames) == 0 {
		return
	}
	entries, err := r.cfg.Log.Ingest(env.Message.Start, env.Frames)
	if isFull(err) { // entries are those that still found room
		if r.makeRoom(int64(len(env.Frames))) > 0 {
			var more []log.Entry
			more, err = r.cfg.Log.Ingest(env.Message.Start, env.Frames) // skips what is there
			entries = append(entries, more...)
		}
	}
	if isFull(err) {
		// What is sealed must reach the store first. Ask for the frames again after a while.
		r.cfg.Logger.Warn("pool is full: following pauses until sealed segments are in the store", "error", err)
		r.askAgain(env.Message)
		err = nil
	}
	if err == nil && len(entries) > 0 {
		err = r.cfg.Machine.Ingest(entries)
	}
	if err != nil {
		r.failed(err)
		return
	}
	r.step(input{event: protocol.Appended{Log: r.logState()}})
	r.cfg.Log.Sync(r.cfg.Log.End())
}

// askAgain has the home begin its stream again, after a while.
func (r *Replica) askAgain(m protocol.Message) {
	lost := protocol.Message{Kind: protocol.Lost, From: r.node.cfg.Self, Epoch: m.Epoch}
	time.AfterFunc(500*time.Millisecond, func() {
		lost.Stamp = r.node.cfg.Clock()
		r.node.cfg.Transport.Send(m.From.Gateway, Envelope{Volume: r.cfg.Volume, Message: lost})
	})
}

// failed ends this log's part in the protocol (rule 3).
func (r *Replica) failed(err error) {
	r.cfg.Logger.Error("the log of the volume can not be trusted any more", "error", err)
	r.step(input{event: protocol.LogFailed{}})
}

func (r *Replica) truncate(to Position) {
	if to.Less(r.cfg.Machine.Applied()) {
		r.cfg.Logger.Error("this copy holds acknowledged changes that a forced takeover left out; it is set aside", "applied", r.cfg.Machine.Applied(), "cut", to)
		r.cfg.Aside(to)
		return
	}
	r.cfg.Logger.Info("cut the log to what it shares with the home", "end", r.cfg.Log.End(), "to", to)
	if err := r.cfg.Machine.Drop(to); err != nil {
		r.failed(err)
		return
	}
	if err := r.cfg.Log.Truncate(to); err != nil {
		r.failed(err)
		return
	}
	r.step(input{event: protocol.Appended{Log: r.logState()}})
}

func (r *Replica) beginEpoch(epoch uint64) {
	if _, err := r.cfg.Log.BeginEpoch(epoch); err != nil {
		r.failed(err)
		return
	}
	r.step(input{event: protocol.Appended{Log: r.logState()}})
	r.cfg.Log.Sync(r.cfg.Log.End())
}

func (r *Replica) committed(pos Position) {
	r.cfg.Machine.Commit(pos)
	r.mu.Lock()
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
	r.mu.Unlock()
	r.upload()
}

func (r *Replica) roleChanged(e protocol.RoleChanged) {
	r.cfg.Logger.Info("role", "role", e.Role.String(), "epoch", e.Epoch)
	if e.Role == protocol.Home {
		r.work.Go(func() { r.lead(e.Epoch) })
		return
	}
	r.mu.Lock()
	was := r.leading
	r.leading, r.accepts, r.paused = false, false, false
	r.abandon(ErrNotHome)
	r.signal()
	r.mu.Unlock()
	if was {
		r.cfg.Machine.Unlead()
	}
}

// lead lets the machine lead once it applied everything; until then nobody is served.
func (r *Replica) lead(epoch uint64) {
	r.mu.Lock()
	if r.leading && r.epoch == epoch { // a move that came to nothing
		r.paused = false
		r.signal()
		r.mu.Unlock()
		return
	}
	if !r.isHome(epoch) {
		r.mu.Unlock()
		return
	}
	r.accepts, r.paused, r.epoch = true, false, epoch
	r.mu.Unlock()
	if err := r.cfg.Machine.Lead(r.ctx, epoch); err != nil {
		if r.ctx.Err() == nil {
			r.cfg.Logger.Error("can not lead", "epoch", epoch, "error", err)
		}
		return
	}
	r.mu.Lock()
	ok := r.isHome(epoch)
	r.leading = ok
	r.signal()
	r.mu.Unlock()
	if !ok {
		r.cfg.Machine.Unlead()
	}
}

// isHome tells whether the protocol still has this gateway as home in epoch; r.mu is held.
func (r *Replica) isHome(epoch uint64) bool {
	s := r.core.Status(r.node.cfg.Clock())
	return s.Role == protocol.Home && s.Epoch == epoch && !r.closed
}

func (r *Replica) pause() {
	r.mu.Lock()
	r.paused = true
	r.mu.Unlock()
	r.cfg.Log.Sync(r.cfg.Log.End())
}

// abandon ends all waits for a commit; r.mu is held.
func (r *Replica) abandon(err error) {
	for _, w := range r.waiters {
		w.done <- err
	}
	r.waiters = nil
}

// signal wakes those who wait for another role; r.mu is held.
func (r *Replica) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Append appends a record at the home. It waits for room on the pool and for copies that trail too far. ErrNotHome: nothing was
// appended. The caller serialises calls.
func (r *Replica) Append(ctx context.Context, rec *segment.Record) (Position, error) {
	if err := r.throttle(ctx); err != nil {
		return Position{}, err
	}
	for {
		r.mu.Lock()
		if !r.accepts || r.paused || r.closed {
			r.mu.Unlock()
			return Position{}, ErrNotHome
		}
		rec.Epoch = r.epoch
		r.mu.Unlock()
		end, err := r.cfg.Log.Append(rec)
		if isFull(err) {
			if err := r.waitRoom(ctx, err); err != nil {
				return Position{}, err
			}
			continue
		}
		if err != nil {
			r.post(protocol.LogFailed{})
			return Position{}, fmt.Errorf("%w: append: %v", ErrNotHome, err)
		}
		r.post(protocol.Appended{Log: r.logState()})
		r.kickStreams()
		r.syncLater()
		return end, nil
	}
}

// syncLater makes sure that unstable data does not stay in memory for long.
func (r *Replica) syncLater() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.syncSoon != nil || r.closed {
		return
	}
	r.syncSoon = time.AfterFunc(100*time.Millisecond, func() {
		r.mu.Lock()
		r.syncSoon = nil
		closed := r.closed
		r.mu.Unlock()
		if !closed {
			r.cfg.Log.Sync(r.cfg.Log.End())
		}
	})
}

// WaitCommitted waits until pos is committed. Any error means that the outcome is not known.
func (r *Replica) WaitCommitted(ctx context.Context, pos Position) error {
	r.mu.Lock()
	if !r.core.Commit().Less(pos) {
		r.mu.Unlock()
		return nil
	}
	if !r.accepts {
		r.mu.Unlock()
		return ErrNotHome
	}
	w := waiter{pos, make(chan error, 1)}
	r.waiters = append(r.waiters, w)
	r.mu.Unlock()
	r.cfg.Log.Sync(pos)
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// MayServe tells whether this gateway may answer a read now: as home with all promises, or as a member with a lease.
func (r *Replica) MayServe() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.node.cfg.Clock()
	switch {
	case r.closed:
		return ErrClosed
	case r.leading && r.core.MayServe(now), !r.leading && r.core.MayRead(now) && r.core.Status(now).Role == protocol.Follower:
		return nil
	case r.leading:
		return ErrNoLease
	}
	return ErrNotHome
}

// Leading tells whether this gateway is home and executes changes, and in which epoch.
func (r *Replica) Leading() (epoch uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epoch, r.leading && !r.paused
}

// Changed returns a channel that is closed at the next change of role or home.
func (r *Replica) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Status describes the replica.
func (r *Replica) Status() protocol.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Status(r.node.cfg.Clock())
}

// Control returns the newest control record known here, or nil.
func (r *Replica) Control() *federation.Control { return r.Status().Control }

// SetPolicy changes how many members are wanted and which sites have copies.
func (r *Replica) SetPolicy(p protocol.Policy) { r.post(protocol.PolicyChanged{Policy: p}) }

// Move hands the home over to another gateway without loss; only the home can.
func (r *Replica) Move(to string) { r.post(protocol.Move{To: to}) }

// Force makes this gateway home whatever the members say (rule 4: only a person may).
func (r *Replica) Force() { r.post(protocol.Force{}) }
