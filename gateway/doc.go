// SPDX-License-Identifier: Apache-2.0

// Package gateway puts one gateway process together and runs it. What it does is in its rooms:
//
//	federation/view    what the registry says, kept by one watch
//	gateway/peers      connections to other gateways, and who calls
//	gateway/copies     the copies of volumes on the pool: open, doubt, set aside, leave, reap
//	gateway/routing    volumes as clients of this gateway see them, wherever their homes are
//	gateway/locks      byte-range locks: the home's table, and what this gateway registered
//	gateway/admission  which client may use which volume; fencing of nodes
//	gateway/report     how volumes are
//	gateway/nfs        the NFS server
//
// Data goes down once and comes back once: client, gateway/nfs, gateway/routing, engine, replica, log,
// and back. docs/design/life-of-a-write.md follows one write.
//
// # Rules kept here
//
//   - gateway-1: Clients are served only when every volume of the registry has its Router. Before, a
//     client that comes back would hear that its volume is gone.
//   - gateway-2: A gateway that stops while clients hold something leaves its heartbeat to expire:
//     until then, others wait for its next process to tell what its clients hold (protocol-23).
//   - gateway-3: The write verifier names this gateway's incarnation and boot, and the volume's epoch
//     (protocol-24).
package gateway
