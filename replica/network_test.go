// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// network carries envelopes between the sites of a world. Envelopes stay in order within a lane,
// and lanes overtake each other. An envelope to a site that is cut off or down is lost, and
// world.step reports that to the sender.
type network struct {
	w     *world
	mu    sync.Mutex
	nodes map[string]*Node
	lanes map[string]*lane
	cuts  map[string]bool             // "a>b"
	spy   func(to string, e Envelope) // is called with what is sent
	work  sync.WaitGroup
}

// lane carries the messages, or the frames, from one site to another.
type lane struct {
	from, to string
	queue    []parcel
	held     bool // nothing moves
	busy     bool // its goroutine is there
}

type parcel struct {
	env  Envelope
	sent chan error
}

func newNetwork(w *world) *network {
	return &network{w: w, nodes: map[string]*Node{}, lanes: map[string]*lane{}, cuts: map[string]bool{}}
}

// transport is one site's end.
type transport struct {
	net  *network
	self string
}

func (t transport) Send(gateway string, all []Envelope) {
	for _, e := range all {
		t.net.put(t.self, gateway, "messages", parcel{env: e})
	}
}

var errLost = errors.New("connection is broken")

func (t transport) SendFrames(ctx context.Context, gateway string, e Envelope) error {
	p := parcel{e, make(chan error, 1)}
	t.net.put(t.self, gateway, "frames", p)
	select {
	case err := <-p.sent:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *network) lane(from, to, kind string) *lane {
	key := from + ">" + to + " " + kind
	if n.lanes[key] == nil {
		n.lanes[key] = &lane{from: from, to: to}
	}
	return n.lanes[key]
}

func (n *network) put(from, to, kind string, p parcel) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.spy != nil {
		n.spy(to, p.env)
	}
	if n.lost(from, to) {
		p.done(errLost)
		return
	}
	l := n.lane(from, to, kind)
	l.queue = append(l.queue, p)
	n.kick(l)
}

func (p parcel) done(err error) {
	if p.sent != nil {
		p.sent <- err
	}
}

func (n *network) lost(from, to string) bool {
	return n.cuts[from+">"+to] || n.nodes[to] == nil || n.nodes[from] == nil
}

func (n *network) kick(l *lane) {
	if !l.busy && !l.held && len(l.queue) > 0 {
		l.busy = true
		n.work.Go(func() { n.carry(l) })
	}
}

func (n *network) carry(l *lane) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(l.queue) > 0 && !l.held {
		p := l.queue[0]
		l.queue = l.queue[1:]
		node := n.nodes[l.to]
		n.mu.Unlock()
		if node != nil {
			node.Deliver([]Envelope{p.env})
		}
		p.done(nil)
		n.mu.Lock()
	}
	l.busy = false
}

func (n *network) idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lanes {
		if to := n.w.site(l.to); to.paused {
			continue // its goroutine waits in Deliver
		}
		if l.busy {
			return false
		}
	}
	return true
}

func (n *network) attach(s *site) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[s.name] = s.node
}

func (n *network) detach(s *site) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.nodes, s.name)
	for _, l := range n.lanes {
		if l.from == s.name || l.to == s.name {
			n.drop(l)
		}
	}
}

func (n *network) drop(l *lane) {
	for _, p := range l.queue {
		p.done(errLost)
	}
	l.queue = nil
}

// cut drops what is sent in one direction.
func (n *network) cut(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[from+">"+to] = true
	n.drop(n.lane(from, to, "messages"))
	n.drop(n.lane(from, to, "frames"))
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
}

// hold stops a lane without losing what is in it, or lets it go on.
func (n *network) hold(from, to, kind string, held bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.lane(from, to, kind)
	l.held = held
	n.kick(l)
}

// isHeld reports whether frames are held.
func (n *network) isHeld(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lane(from, to, "frames").held
}

// report reports to a site which of its connections fail.
func (n *network) report(s *site) {
	n.mu.Lock()
	var down []string
	for _, o := range n.w.sites {
		if o != s && n.lost(s.name, o.name) {
			down = append(down, o.name)
		}
	}
	n.mu.Unlock()
	for _, name := range down {
		s.node.PeerDown(name)
	}
}

// watch calls f with everything that is sent from now on.
func (n *network) watch(f func(to string, e Envelope)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.spy = f
}

func (n *network) close() {
	n.mu.Lock()
	for _, l := range n.lanes {
		n.drop(l)
	}
	n.mu.Unlock()
	within(n.w.T, "network", n.work.Wait)
}

// source reads sealed segments from another site's pool.
type source struct{ from, to *site }

func (o source) String() string { return "pool of " + o.from.name }

func (o source) ReadSegment(_ context.Context, name string, off int64, p []byte) error {
	net := o.from.w.net
	net.mu.Lock()
	lost, l := net.lost(o.from.name, o.to.name), o.from.log
	net.mu.Unlock()
	if lost {
		return errLost
	}
	for _, g := range l.Segments() {
		if g.Name == name && g.Local {
			_, err := l.ReadSegmentFile(g.Seq, p, off)
			return err
		}
	}
	return fmt.Errorf("no segment %s at %s", name, o.from.name)
}
