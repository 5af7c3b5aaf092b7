// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"errors"
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/replica/protocol"
)

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
	r.enqueue(input{event: protocol.Received{Message: m}, env: &env})
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
	switch {
	case isFull(err):
		// What is sealed must reach the store first.
		r.cfg.Logger.Warn("pool is full: following pauses until sealed segments are in the store", "error", err)
		r.rest(env.Message)
		err = nil
	case errors.Is(err, log.ErrUnreadable):
		// Frames came twice, and what is here can not be compared: it was evicted since. From the end on, nothing is compared.
		r.rest(env.Message)
		err = nil
	}
	if err == nil && len(entries) > 0 {
		err = r.cfg.Machine.Ingest(entries)
	}
	if err != nil {
		r.failed(err)
		return
	}
	r.refresh()
	r.cfg.Log.Sync(r.cfg.Log.End())
}

// pause is a time without frames, at the end of which the home is asked to begin its stream again.
type pause struct {
	on    bool
	until time.Duration
	home  string
	epoch uint64
}

// restFor is how long following rests without room. The home sends what it has meanwhile; it must not be asked again for each of it.
const restFor = 500 * time.Millisecond

// rest ignores frames for a while.
func (r *Replica) rest(m protocol.Message) {
	r.full = pause{on: true, until: r.node.cfg.Clock() + restFor, home: m.From.Gateway, epoch: m.Epoch}
}

// resume ends a rest that is over.
func (r *Replica) resume() {
	now := r.node.cfg.Clock()
	if !r.full.on || now < r.full.until {
		return
	}
	r.full.on = false
	r.node.cfg.Transport.Send(r.full.home, Envelope{Volume: r.cfg.Volume,
		Message: protocol.Message{Kind: protocol.Lost, From: r.node.cfg.Self, Epoch: r.full.epoch, Stamp: now}})
}

// failed ends this log's part in the protocol (rule 3).
func (r *Replica) failed(err error) {
	r.cfg.Logger.Error("the log of the volume can not be trusted any more", "error", err)
	r.step(input{event: protocol.LogFailed{}})
}

func (r *Replica) truncate(e protocol.Truncate) {
	to := e.To
	r.mu.Lock()
	commit := r.core.Commit()
	r.mu.Unlock()
	// What is committed and not applied yet was acknowledged as well.
	if to.Less(r.cfg.Machine.Applied()) || to.Less(commit) || e.Forced {
		r.cfg.Logger.Error("this copy holds changes that may be acknowledged and that a forced takeover left out; it is set aside",
			"applied", r.cfg.Machine.Applied(), "committed", commit, "cut", to)
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
	r.refresh()
}
