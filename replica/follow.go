// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/replica/protocol"
)

// maxQueued is the number of bytes of queued frames above which the transport waits, and with it
// the sender.
const maxQueued = 16 << 20

// received accepts a message from the transport.
func (r *Replica) received(env Envelope, b *batch) {
	m := env.Message
	if len(env.Frames) > 0 {
		b.send() // nobody waits with us
		r.mu.Lock()
		for r.queued > maxQueued && !r.closed {
			r.drained.Wait()
		}
		r.mu.Unlock()
	}
	if proved(m.Kind) {
		m.Proved = !r.cfg.Blind && r.proves(env.Proof, m)
		switch {
		case m.Proved, r.cfg.Blind:
		case m.Blind: // the policy says whether it counts
		case m.Kind == protocol.Welcome:
			if r.cfg.WantKey != nil { // it may prove with a key that has not come here yet
				r.cfg.WantKey()
			}
			r.cfg.Logger.Warn("follower does not prove that it can unwrap the volume's key; it stays without a vote",
				"from", m.From.String())
		default: // anybody can send many
			r.cfg.Logger.Debug("a refusal without proof that its sender can unwrap the volume's key is ignored", "from", m.From.String())
		}
	}
	r.offer(input{event: protocol.Received{Message: m}, env: &env}, b)
}

func (r *Replica) ingest(env *Envelope) {
	if env == nil || len(env.Frames) == 0 {
		return
	}
	if r.cfg.Machine.Behind() { // other volumes of the same home do not wait for this one
		r.rest(env.Message)
		return
	}
	entries, err := r.cfg.Log.Ingest(env.Message.Start, env.Frames)
	if isFull(err) { // entries has those for which there was room
		if r.makeRoom(int64(len(env.Frames))) > 0 {
			var more []log.Entry
			more, err = r.cfg.Log.Ingest(env.Message.Start, env.Frames) // skips what the log already has
			entries = append(entries, more...)
		}
	}
	switch {
	case isFull(err):
		// Sealed segments must reach the store before they can be evicted.
		r.stuck.is(err, r.cfg.Logger)
		r.rest(env.Message)
		err = nil
	case errors.Is(err, log.ErrNoKey):
		// The key comes with the registry's next word. Until then the home is asked again.
		r.cfg.Logger.Warn("what the home sends is sealed with a data key that is not here yet", "error", err)
		if r.cfg.WantKey != nil {
			r.cfg.WantKey()
		}
		r.rest(env.Message)
		err = nil
	case errors.Is(err, log.ErrUnreadable):
		// These frames came twice. They cannot be compared with the log, whose segment was evicted
		// since. The home is asked to stream from the end of the log, where nothing is compared.
		r.rest(env.Message)
		err = nil
	}
	if !r.full.on {
		r.stuck.over(r.cfg.Logger)
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

// pause is a time in which frames are ignored. At its end, the home is asked to begin its stream
// again.
type pause struct {
	on    bool
	until time.Duration
	home  string
	epoch uint64
}

// restFor is how long frames are ignored when there is no room. The home goes on sending meanwhile,
// and must not be asked to begin again for each message.
const restFor = 500 * time.Millisecond

// rest ignores frames for restFor.
func (r *Replica) rest(m protocol.Message) {
	r.full = pause{on: true, until: r.node.cfg.Clock() + restFor, home: m.From.Gateway, epoch: m.Epoch}
}

// resume asks the home for a new stream when the pause is over.
func (r *Replica) resume() {
	now := r.node.cfg.Clock()
	if !r.full.on || now < r.full.until {
		return
	}
	r.full.on = false
	r.node.cfg.Transport.Send(r.full.home, []Envelope{{Volume: r.cfg.Volume,
		Message: protocol.Message{Kind: protocol.Lost, From: r.self, Epoch: r.full.epoch, Stamp: now}}})
}

// failed reports to the core that the log cannot be trusted any more (protocol-3).
func (r *Replica) failed(err error) {
	r.cfg.Logger.Error("the log of the volume can not be trusted any more", "error", err)
	r.note(err)
	r.step(input{event: protocol.LogFailed{}})
}

// fail does the same from outside the event loop.
func (r *Replica) fail(err error) {
	r.note(err)
	r.post(protocol.LogFailed{})
}

// note keeps the first reason why the log failed.
func (r *Replica) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == nil {
		r.why = err
	}
}

func (r *Replica) truncate(e protocol.Truncate) {
	to := e.To
	r.mu.Lock()
	commit := r.core.Commit()
	r.mu.Unlock()
	// What is committed was acknowledged, even if it is not applied yet.
	acknowledged := to.Less(r.cfg.Machine.Applied()) || to.Less(commit)
	if acknowledged && !e.Forced {
		r.failed(fmt.Errorf("the log is to be cut at %v, although %v is committed and %v applied", to, commit, r.cfg.Machine.Applied()))
		return
	}
	if e.Forced {
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
