// SPDX-License-Identifier: Apache-2.0

package replica

import "github.com/weir-storage/weir/replica/protocol"

// input is what waits for the event loop: an event, or something to do there.
type input struct {
	event protocol.Event
	env   *Envelope // that brought the event
	do    func()    // instead of an event
	kind  merged
}

// merged is a set of kinds of inputs of which one in the queue stands for all: what they say is asked when they are stepped.
type merged uint8

const (
	mergedTick merged = 1 << iota
	mergedSynced
	mergedAppended
	mergedRoll
)

// maxMessages is how many inputs may wait when a message of another gateway comes: then it is dropped, as the network might. A
// loop that hangs in a write would else gather what its peers say for as long as its disk takes.
const maxMessages = 8192

// post hands an event to the event loop, starting it if it is not there.
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
		r.queue[0] = input{} // or its frames would stay as long as the array
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

// step gives the core one event and carries out what it asks for. Only the event loop calls it.
func (r *Replica) step(in input) {
	switch e := in.event.(type) {
	// What the log is like is asked here, where it is cut too: a notice may have been overtaken by a Truncate, and
	// the core would then promise what is gone.
	case protocol.Synced:
		in.event = protocol.Synced{Position: r.cfg.Log.Durable()}
	case protocol.Appended:
		in.event = protocol.Appended{Log: r.logState()}
	case protocol.Received:
		switch {
		case e.Message.Kind == protocol.Hello:
			r.refresh() // a greeting is answered by what the log ends with, and the notice of that may be in the queue
		case e.Message.Kind == protocol.Append && r.full.on:
			return // the home is asked to send it again
		}
	case protocol.Tick:
		r.resume()
	}
	r.mu.Lock()
	effects := r.core.Step(r.node.cfg.Clock(), in.event)
	r.mu.Unlock()
	for _, e := range effects {
		r.do(e, in.env)
	}
}

// refresh tells the core what the log is like.
func (r *Replica) refresh() { r.step(input{event: protocol.Appended{}}) }
