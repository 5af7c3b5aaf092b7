// SPDX-License-Identifier: Apache-2.0

// Package replica keeps copies of volumes' logs at several gateways: it is the shell around
// package protocol, which decides, and does what protocol's effects ask for: it reads and swaps
// control records, sends messages, streams frames of the log, appends, syncs and cuts it, uploads sealed segments and makes
// room on the pool.
//
// A Node is one gateway; it has one Replica per volume. What a replica commits it hands to a Machine, the
// engine, in the order of the log.
//
// # Who owns what
//
//   - A volume's log (engine/log) is written by exactly one goroutine at a time: at the home by the
//     engine through Replica.Append, at a follower by the replica's own event loop.
//   - The event loop of a replica exists only while it has events (rule 12). It carries out effects without
//     holding the lock that guards the protocol state, so nothing waits for a disk or the network but the next event.
//   - The protocol state is guarded by Replica.mu, which is held only for computations.
//   - A reign ends in the event loop: it returns from there when the machine has stopped, or will not begin, so that what follows
//     meets a log that nobody else writes. What the core is told of the log is asked for in the loop too, never carried
//     there by a notice: behind a cut, a notice would have the gateway promise what it has not.
//
// # Rules kept here
//
//   - Rule 2, first half: a position counts as durable only after engine/log reported its fsync.
//   - Rule 3: a failed write or fsync ends the log's part in the protocol; the gateway gives it a new incarnation.
//   - Rule 10: each replica uploads what it has to its own site's store, once; nothing is written to the registry for it.
//   - Rule 11: Append waits while a copy that had caught up, and answers, trails further than maxLag allows.
//   - Rule 19: a segment is compared with its hash before it is put into a store, which would keep a damaged one for ever.
//   - Rule 17: a follower proves with an HMAC that it can unwrap the data key, or it does not become a member.
//
// # On errors
//
// They are those of package journal. A record that a failing disk left half-way counts as appended.
package replica
