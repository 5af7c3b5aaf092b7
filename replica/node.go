// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/blind"
	"github.com/weir-storage/weir/replica/protocol"
)

// NodeConfig has what a Node needs.
type NodeConfig struct {
	Self      protocol.Member
	Promise   time.Duration
	Former    time.Duration // protocol.Config's
	Heartbeat time.Duration
	Clock     func() time.Duration // monotonic, counts suspend
	Timers    clockwork.Clock      // for waits and intervals
	Registry  Controls
	Transport Transport
	// Evictor frees room on the pools.
	Evictor Evictor
	// Disks are those of the pools.
	Disks  []Disk
	Logger *slog.Logger
	// Uncommitted is how many bytes of a log may wait for their commit before writers do; default
	// 128 MiB.
	Uncommitted int64
	// Meter is told what happens; nil: nobody is.
	Meter Meter
}

// Disk is what some volumes' logs are on.
type Disk struct {
	// Probe fsyncs something small there: evidence that it works (protocol-4).
	Probe func() error
	// Has reports whether a volume's log is there.
	Has func(volume string) bool
}

// Node replicates all volumes of one gateway.
type Node struct {
	cfg NodeConfig

	mu       sync.Mutex
	replicas map[string]*Replica
	peers    []protocol.Member
	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup
}

// NewNode starts a node. Close ends it.
func NewNode(cfg NodeConfig) *Node {
	n := newNode(cfg)
	n.work.Go(func() { n.every(n.ctx, cfg.Heartbeat, n.tick) })
	for _, d := range cfg.Disks { // one that hangs keeps none of the others
		n.work.Go(func() { n.every(n.ctx, cfg.Promise/4, func() { n.probe(d) }) })
	}
	n.work.Go(func() { n.every(n.ctx, cfg.Promise/4, n.keep) })
	return n
}

// newNode returns a node without timers: the caller calls tick, probe and keep.
func newNode(cfg NodeConfig) *Node {
	if cfg.Uncommitted == 0 {
		cfg.Uncommitted = 128 << 20
	}
	if cfg.Meter == nil {
		cfg.Meter = noMeter{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Node{cfg: cfg, replicas: map[string]*Replica{}, ctx: ctx, cancel: cancel}
}

// Open makes a volume's replica. The log and the machine must agree: the machine has ingested what
// the log has after the machine's applied position. Nothing happens before Start, so that the
// caller can connect the machine with the replica.
func (n *Node) Open(cfg Config) *Replica {
	ctx, cancel := context.WithCancel(n.ctx)
	if cfg.Blind {
		cfg.Machine = blind.New(cfg.Log.Recovered().Committed)
	} else if cfg.Keys == nil {
		cfg.Keys = segment.NewKeys(cfg.DataKey)
	}
	r := &Replica{node: n, cfg: cfg, maxLag: cfg.MaxLag, staleness: cfg.Staleness,
		streams: map[string]*stream{}, changed: make(chan struct{}), ctx: ctx,
		cancel: cancel}
	r.drained = sync.NewCond(&r.mu)
	r.self = n.cfg.Self
	r.self.Log = cfg.Log.Identity()
	core, effects := protocol.New(protocol.Config{Self: r.self, Volume: cfg.Volume, Promise: n.cfg.Promise, Former: n.cfg.Former,
		Heartbeat: n.cfg.Heartbeat, Lent: cfg.Log.Loans(), Blind: cfg.Blind}, cfg.Policy, r.logState(), n.cfg.Clock())
	r.core, r.first = core, effects
	return r
}

// Start lets the replica take part in the protocol.
func (r *Replica) Start() {
	n := r.node
	r.cfg.Log.ShowTo(r.cfg.Machine)
	r.cfg.Log.OnDurable(func(pos Position, err error) {
		if err != nil {
			r.fail(err)
			return
		}
		r.mu.Lock()
		r.durable(pos, n.cfg.Clock())
		r.mu.Unlock()
		r.post(protocol.Synced{})
	})
	r.enqueue(input{do: func() {
		for _, e := range r.first {
			r.do(e, nil)
		}
	}})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.replicas[r.cfg.Volume] = r
	r.post(protocol.Peers{Members: n.peers}) // under the lock, or a newer list might come before this one
}

// Get returns a volume's replica, or nil.
func (n *Node) Get(volume string) *Replica {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.replicas[volume]
}

// All returns all replicas.
func (n *Node) All() []*Replica {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]*Replica, 0, len(n.replicas))
	for _, r := range n.replicas {
		out = append(out, r)
	}
	return out
}

// Jumped reports that time may have passed which Clock did not count. No read is answered from what
// was promised before. Nothing more is sealed under the present salts, because a machine that was
// resumed from a picture of its memory would use them with the same counters again (protocol-16).
// It does not wait.
func (n *Node) Jumped() {
	for _, r := range n.All() {
		r.cfg.Log.NewSalt()
		r.post(protocol.Jumped{})
	}
}

// Deliver accepts envelopes from another gateway, in order. With frames, it may wait until there is
// memory for them. The transport must have verified Message.From.
func (n *Node) Deliver(all []Envelope) {
	b := n.batch()
	for _, e := range all {
		if r := n.Get(e.Volume); r != nil {
			r.received(e, b)
		}
	}
	b.send()
}

// PeerDown reports that the connection to a gateway broke. What was sent may be lost.
func (n *Node) PeerDown(gateway string) {
	for _, r := range n.All() {
		if r.linked(gateway) {
			r.post(protocol.PeerDown{Gateway: gateway})
		}
	}
}

// ControlChanged accepts a control record from the watch.
func (n *Node) ControlChanged(volume string, ctl *federation.Control, rev federation.Revision) {
	if r := n.Get(volume); r != nil {
		r.controlChanged(ctl, rev)
	}
}

// SetPeers sets the list of gateways, with their present incarnations.
func (n *Node) SetPeers(peers []protocol.Member) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.peers = peers
	for _, r := range n.replicas {
		r.post(protocol.Peers{Members: peers})
	}
}

// every calls f at every interval until ctx is done.
func (n *Node) every(ctx context.Context, interval time.Duration, f func()) {
	t := n.cfg.Timers.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.Chan():
			f()
		}
	}
}

// Meter is told what replicas do. Its methods must not block.
type Meter interface {
	// Committed tells how long a change waited until it was on this gateway's disk, and until it
	// was committed. Of changes that wait at the same time, only one is timed.
	Committed(volume string, local, all time.Duration)
	// Role tells that a volume's role here has changed.
	Role(volume string, role protocol.Role)
	// Swapped tells the outcome of a swap of a control record.
	Swapped(outcome protocol.SwapOutcome)
	// Uploaded tells that a segment was sent to the store, or why not: ErrDamaged, or what the
	// store said.
	Uploaded(bytes uint64, err error)
}

// noMeter is nobody.
type noMeter struct{}

func (noMeter) Committed(string, time.Duration, time.Duration) {}
func (noMeter) Role(string, protocol.Role)                     {}
func (noMeter) Swapped(protocol.SwapOutcome)                   {}
func (noMeter) Uploaded(uint64, error)                         {}

// tick moves all replicas on. What they send goes out before anything is done that may wait for a
// disk.
func (n *Node) tick() {
	all := n.All()
	b := n.batch()
	for _, r := range all {
		r.tellReads()
		r.offer(input{event: protocol.Tick{}, kind: mergedTick}, b)
	}
	b.send()
	for _, r := range all {
		r.tend()
	}
}

// probe renews the evidence that a disk works, also for volumes without writes.
func (n *Node) probe(d Disk) {
	if err := d.Probe(); err != nil {
		n.cfg.Logger.Error("pool does not take a small write; this gateway stops promising for its volumes", "error", err)
		return
	}
	b := n.batch()
	for _, r := range n.All() {
		if d.Has(r.cfg.Volume) {
			r.offer(input{event: protocol.Synced{}, probe: true, kind: mergedProbe}, b)
		}
	}
	b.send()
}

// keep makes the logs' watermarks durable that no later fsync carried.
func (n *Node) keep() {
	for _, r := range n.All() {
		if err := r.cfg.Log.SyncWatermark(); err != nil {
			n.cfg.Logger.Debug("watermark is not kept", "volume", r.cfg.Volume, "error", err) // the log reports it
		}
	}
}

// Close stops all replicas and the node. It does not hand anything over.
func (n *Node) Close() {
	for _, r := range n.All() {
		r.Close()
	}
	n.cancel()
	n.work.Wait()
}

// Close stops a replica. Its log and machine stay open. Waiting calls return journal.ErrNotHome.
func (r *Replica) Close() {
	r.node.mu.Lock()
	if r.node.replicas[r.cfg.Volume] == r {
		delete(r.node.replicas, r.cfg.Volume)
	}
	r.node.mu.Unlock()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.closed = true
	was := r.leading
	r.leading, r.accepts = false, false
	r.abandon(errClosed)
	r.signal()
	r.drained.Broadcast()
	if r.syncSoon != nil {
		r.syncSoon.Stop()
	}
	if r.uploader.retry != nil {
		r.uploader.retry.Stop()
	}
	r.cancel() // under the lock: a machine that is about to lead sees the end of ctx, or was is true
	r.mu.Unlock()
	if was {
		r.cfg.Machine.Unlead()
	}
	r.work.Wait()
}
