// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"time"

	"github.com/weir-storage/weir/replica/protocol"
)

// input is an entry in the event loop's queue: an event, or a function to call there.
type input struct {
	event protocol.Event
	env   *Envelope // the envelope that brought the event
	do    func()    // instead of an event
	kind  merged
	probe bool // the event tells that the disk works, and nothing of the log
}

// merged is a set of input kinds. Of each kind, one input in the queue is enough: the loop reads
// the log's state only when it takes the input out.
type merged uint8

const (
	mergedTick merged = 1 << iota
	mergedSynced
	mergedAppended
	mergedRoll
	mergedForget
	mergedProbe
)

// maxMessages is the queue length from which messages of other gateways are dropped, as the network
// might drop them. Otherwise messages would pile up while the loop hangs in a disk write.
const maxMessages = 8192

// post queues an event for the event loop, and starts the loop if it does not run.
func (r *Replica) post(e protocol.Event) {
	in := input{event: e}
	switch e.(type) {
	case protocol.Tick:
		in.kind = mergedTick
	case protocol.Synced:
		in.kind = mergedSynced
	case protocol.Appended:
		in.kind = mergedAppended
	}
	r.enqueue(in)
}

func (r *Replica) enqueue(in input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.merged&in.kind != 0 {
		return
	}
	if in.env != nil {
		if len(in.env.Frames) == 0 && len(r.queue) >= maxMessages {
			return
		}
		r.queued += len(in.env.Frames)
	}
	r.merged |= in.kind
	r.queue = append(r.queue, in)
	if !r.running {
		r.running = true
		r.work.Go(r.loop)
	}
}

func (r *Replica) loop() {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 || r.closed {
			r.running, r.queue = false, nil
			r.mu.Unlock()
			return
		}
		in := r.queue[0]
		r.queue[0] = input{} // frees the frames; the array may live longer
		r.queue = r.queue[1:]
		r.merged &^= in.kind
		r.mu.Unlock()
		if in.do != nil {
			in.do()
		} else {
			r.step(in)
		}
		if in.env != nil && len(in.env.Frames) > 0 {
			r.mu.Lock()
			r.queued -= len(in.env.Frames)
			r.drained.Broadcast()
			r.mu.Unlock()
		}
	}
}

// step passes one event to the core and carries out the effects. Only the event loop calls it.
func (r *Replica) step(in input) {
	for _, e := range r.decide(in, 0) {
		r.do(e, in.env)
	}
}

// decide passes one event to the core, at time now, and returns the effects. A time of 0 is the
// present. Only who runs the loop calls it.
func (r *Replica) decide(in input, now time.Duration) []protocol.Effect {
	switch e := in.event.(type) {
	// The state of the log is read here, in the loop that also cuts it, and is not carried by the
	// queued event. That event may be older than a Truncate, and the core would then promise what
	// is gone.
	case protocol.Synced:
		if !in.probe {
			in.event = protocol.Synced{Position: r.cfg.Log.Durable()}
		}
	case protocol.Appended:
		in.event = protocol.Appended{Log: r.logState()}
	case protocol.Received:
		switch {
		case e.Message.Kind == protocol.Hello:
			r.refresh() // the answer to Hello depends on the log's end, and its Appended event may still be queued
		case e.Message.Kind == protocol.Append && r.full.on:
			return nil // resume asks the home to send it again
		}
	case protocol.Tick:
		r.resume()
	}
	r.mu.Lock()
	if e, ok := in.event.(protocol.Received); ok && e.Message.Reads > 0 {
		e.End = r.cfg.Log.End() // under the lock, so that WaitKnown sees the lease that this may bring
		in.event = e
	}
	if now == 0 {
		now = r.node.cfg.Clock()
	}
	effects := r.core.Step(now, in.event)
	switch in.event.(type) {
	case protocol.Appended, protocol.Synced: // nobody knows more by that
	default:
		if r.unknown > 0 {
			r.progressed()
		}
	}
	r.mu.Unlock()
	return effects
}

// refresh passes the state of the log to the core.
func (r *Replica) refresh() { r.step(input{event: protocol.Appended{}}) }
