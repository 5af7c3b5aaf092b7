// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"time"

	"github.com/weir-storage/weir/replica/protocol"
)

// batch makes steps of many replicas in a row, and collects what they send, so that it travels
// together: one message for each pair of gateways, however many volumes they share. An idle volume
// costs no goroutine.
//
// All steps of a batch have one time, that of its beginning. That is safe: it is as if what a step
// sends had been on its way since then. What the step uses had arrived by then, or came with a
// later time, below which the core does not go.
type batch struct {
	node *Node
	now  time.Duration
	to   map[string][]Envelope // by gateway
	held []*Replica            // whose loops wait until the batch is sent, so that messages stay in order
}

// maxHeld is how many replicas a batch holds. They wait for the others' steps: a millisecond or so.
const maxHeld = 512

func (n *Node) batch() *batch {
	return &batch{node: n, now: n.cfg.Clock(), to: map[string][]Envelope{}}
}

// quick reports whether the step of an input waits for nothing but Replica.mu: neither for the log
// nor for the network.
func (in input) quick() bool {
	switch e := in.event.(type) {
	case protocol.Tick:
		return true
	case protocol.Synced:
		return in.probe
	case protocol.Received:
		k := e.Message.Kind
		return k == protocol.Beat || k == protocol.Advance || k == protocol.Ack && e.Message.Reads == 0
	}
	return false
}

// offer is enqueue; but if the loop does not run, and the step is quick, it is made here.
func (r *Replica) offer(in input, b *batch) {
	r.mu.Lock()
	mine := r.holder == b && len(r.after) == 0 && len(r.queue) == 0
	if r.closed || r.running && !mine || !in.quick() {
		r.mu.Unlock()
		r.enqueue(in)
		return
	}
	if !mine {
		r.running, r.holder = true, b
		r.work.Add(1) // Close waits
		b.held = append(b.held, r)
	}
	r.mu.Unlock()
	effects := r.decide(in, b.now)
	for len(effects) > 0 {
		e, ok := effects[0].(protocol.Send)
		if !ok {
			r.after, r.afterEnv = effects, in.env // they may wait
			break
		}
		b.to[e.To] = append(b.to[e.To], r.envelope(e))
		effects = effects[1:]
	}
	if len(b.held) >= maxHeld {
		b.send()
	}
}

// send sends what was collected, and lets the replicas' loops go on. The batch is then empty.
func (b *batch) send() {
	for gateway, all := range b.to {
		b.node.cfg.Transport.Send(gateway, all)
	}
	clear(b.to)
	for _, r := range b.held {
		r.release()
	}
	b.held = b.held[:0]
}

// release ends the time in which a batch holds the replica.
func (r *Replica) release() {
	defer r.work.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	effects, env := r.after, r.afterEnv
	r.holder, r.after, r.afterEnv = nil, nil, nil
	if len(effects) == 0 && len(r.queue) == 0 {
		r.running = false
		return
	}
	r.work.Go(func() {
		for _, e := range effects {
			r.do(e, env)
		}
		r.loop()
	})
}

// linked reports whether the end of the connection to a gateway means anything to the replica.
func (r *Replica) linked(gateway string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Linked(gateway)
}
