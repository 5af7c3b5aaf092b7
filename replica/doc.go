// SPDX-License-Identifier: Apache-2.0

// Package replica keeps copies of volumes' logs at several gateways. It is the shell around package
// protocol: protocol decides and returns effects, and replica carries them out. It reads and swaps
// control records, sends messages, streams frames of the log, appends, syncs and cuts the log,
// uploads sealed segments and makes room on the pool.
//
// A Node is one gateway. It has one Replica per volume. A replica passes what is committed to its
// Machine, the engine, in the order of the log.
//
// # Who owns what
//
//   - A volume's log (engine/log) is written by exactly one goroutine at a time: at the home by the
//     engine through Replica.Append, at a follower by the replica's own event loop.
//   - The event loop of a replica exists only while it has events (protocol-12). It carries out
//     effects without the lock that guards the protocol state, so only the next event waits for a
//     disk or the network.
//   - A batch makes steps that wait for nothing instead of the event loops, for many replicas in a
//     row, so that what they send travels together (ADR 44). It holds a replica until that is sent.
//   - Replica.mu guards the protocol state. It is locked only for computations.
//   - A reign ends in the event loop. The loop waits until the machine has stopped, or will not
//     begin. So nobody else writes the log when the next effect changes it.
//   - The event loop also reads the state of the log for the core. A queued event does not carry
//     that state: it may be older than a cut, and the gateway would promise what it no longer has.
//
// # Rules kept here
//
//   - protocol-2, first half: a position counts as durable only after engine/log reported its
//     fsync.
//   - protocol-3: a failed write or fsync ends the log's part in the protocol; the gateway gives it
//     a new incarnation.
//   - protocol-10: each replica uploads what it has to its own site's store, once; nothing is
//     written to the registry for it.
//   - protocol-11: Append waits while a copy that had caught up, and answers, trails further than
//     maxLag allows.
//   - protocol-19: a segment is compared with its hash before it is put into a store, which would
//     keep a damaged one for ever.
//   - protocol-17: a follower proves with an HMAC that it can unwrap the data key, or it does not
//     become a member.
//
// # On errors
//
// They are those of package journal. A record that a failing disk left half-way counts as appended.
package replica
