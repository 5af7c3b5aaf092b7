// SPDX-License-Identifier: Apache-2.0

package replica

// What tests of package replica_test, which may import package peer, use of a Node.

// NewQuietNode returns a node without timers.
func NewQuietNode(cfg NodeConfig) *Node { return newNode(cfg) }

// Tick does what a node does at each heartbeat.
func (n *Node) Tick() { n.tick() }

// Probe probes the disks.
func (n *Node) Probe() {
	for _, d := range n.cfg.Disks {
		n.probe(d)
	}
}

// Busy reports whether an event loop, or a stream, or a reading of a record is under way.
func (n *Node) Busy() bool {
	for _, r := range n.All() {
		r.mu.Lock()
		busy := r.running || r.reading
		for _, s := range r.streams {
			busy = busy || s.running
		}
		r.mu.Unlock()
		if busy {
			return true
		}
	}
	return false
}
