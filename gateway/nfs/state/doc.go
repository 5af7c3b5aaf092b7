// SPDX-License-Identifier: Apache-2.0

// Package state is what an NFSv4.1 server remembers of its clients: client
// records and leases, sessions with their slots, opens, byte-range locks, and the
// grace period after a restart (RFC 8881 sections 2.4, 2.10, 8 and 9).
//
// It decodes nothing and waits for no volume, except that it calls Volume.Hold
// and Release, which do not wait. What a volume must be told when state ends is
// handed to Config.Ended and Config.Forget.
//
// # What is durable
//
// One record per confirmed client, key "client-<id in hex>", value JSON (see
// record.go): identity, verifier, principal, sessions with their channel
// attributes, and whether the client may hold opens or locks. Slots, opens and
// locks are in memory only; rule 22 of the volume contract makes that enough.
//
// # Rules
//
//  1. A client's record says HasState before the first open is granted to it, and
//     says so no more before anything that it held is granted to another
//     (RFC 8881 section 8.4.2.1: a client that lost state must not reclaim it).
//  2. Client ids, session ids and stateids are never used twice: ids contain the
//     boot counter and random bits, stateids the boot counter and a counter.
//  3. A slot executes a sequence number once, and answers repeats of it from its
//     cache. Slots of sessions that were loaded from the store are unknown: any
//     sequence number is executed, with the OpID that its first execution had.
//  4. Grace starts when a loaded record says HasState. It ends when each of those
//     clients said RECLAIM_COMPLETE or is gone, or after one lease. Those
//     that did not come lose HasState durably before the end.
//  5. RECLAIM_COMPLETE on an unknown slot has no effect: it may be the repeat of one
//     that was sent before the restart, and must not end a reclaim that the
//     client does not know it has to make. The client sees in that same reply that
//     it has to.
//  6. A lock-owner gets no new lock on a file while the volume is still giving up
//     its former ones there: giving up takes the whole file. What the volume may have
//     granted without an answer is given up with the open.
//  7. What one client or address can make the table remember is bounded (client.go).
//
// # Locking
//
// Table.admin is held over changes of durable records, so also over Save.
// Open.op is held over LOCK, LOCKU and CLOSE, so also over calls to the volume.
// Table.mu guards all else and is held briefly; each Slot has a mutex of its own.
// Order: admin or op, then mu, then a slot's.
package state
