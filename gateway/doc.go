// SPDX-License-Identifier: Apache-2.0

// Package gateway puts one gateway process together and runs it. Its parts are in these packages:
//
//	federation/view    what the registry says, kept by one watch
//	gateway/peers      connections to other gateways, and who calls
//	gateway/copies     the copies of volumes on the pool: open, doubt, set aside, leave, reap
//	gateway/routing    volumes as clients of this gateway see them, wherever their homes are
//	gateway/locks      byte-range locks: the home's table, and what this gateway registered
//	gateway/admission  which client may use which volume; fencing of nodes
//	gateway/moving     makes a gateway the home of a volume by a person's word
//	gateway/report     how volumes are
//	gateway/nfs        the NFS server
//
// A request goes through client, gateway/nfs, gateway/routing, engine, replica and log, and its
// answer comes back the same way. docs/design/life-of-a-write.md follows one write.
//
// # Rules kept here
//
//   - gateway-1: Clients are served only when every volume of the registry has its Router. A client
//     that came back earlier would be told that its volume is gone.
//   - gateway-2: A gateway that stops while clients have opens or locks leaves its heartbeat to
//     expire. Until then, others wait for its next process to register what its clients hold
//     (protocol-23).
//   - gateway-3: The write verifier names this gateway's incarnation and boot, and the volume's
//     epoch (protocol-24).
package gateway
