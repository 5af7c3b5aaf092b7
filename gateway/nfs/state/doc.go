// SPDX-License-Identifier: Apache-2.0

// Package state is what an NFSv4.1 server remembers of its clients: client
// records and leases, sessions with their slots, opens, byte-range locks, and the
// grace period after a restart (RFC 8881 sections 2.4, 2.10, 8 and 9).
//
// It decodes nothing. Of a volume it calls only Hold and Release, which do not wait.
// When state ends, Config.Ended and Config.Forget get what the server then has to do
// on volumes.
//
// # What is durable
//
// There is one record per confirmed client. Its key is "client-<id in hex>", its
// value is JSON (record.go): identity, verifier, principal, sessions with their
// channel attributes, the lease that the client was told, and whether it may have
// opens or locks. Slots, opens and locks are only in memory. protocol-22 makes
// that enough: the volume records the results of changes.
//
// # Rules
//
//   - state-1. A client's record says HasState before the client gets its first
//     open. It stops to say so before another client gets anything that this one
//     had: a client that lost state must not reclaim it (RFC 8881 section 8.4.2.1).
//   - state-2. Client ids, session ids and stateids are never used twice. Ids
//     contain the boot counter and random bits, stateids the boot counter and
//     another counter.
//   - state-3. A slot executes a sequence number once, and answers repeats of it
//     from its cache. The slots of sessions that were loaded from the store are
//     unknown: they execute any sequence number. Its operations get the OpIDs that
//     its first execution had.
//   - state-4. Grace begins when a loaded record says HasState. It ends when each of
//     those clients has sent RECLAIM_COMPLETE or is gone, or after the longest
//     lease that one of them was told, whatever the present one is: a client that does
//     not know of the restart may be silent for so long, and learns the present lease
//     with its next session. The records of the clients that did not
//     come back lose HasState, durably, before grace ends.
//   - state-5. RECLAIM_COMPLETE on an unknown slot has no effect. It may be the
//     repeat of one that was sent before the restart, by a client that does not know
//     yet that it has to reclaim. The same reply tells the client that it has to.
//   - state-6. A lock-owner gets no new lock on a file while the volume still
//     releases its former ones there, because that release covers the whole file. A
//     lock that the volume may have granted without an answer is released with the
//     open.
//   - state-7. What one client, one address, and all together can make the table
//     remember is bounded (bounds.go). When a bound is reached, silent clients without
//     state give way. What was there before a restart comes back in any case.
//   - state-8. A client is who says a name from an address (ADR 43). Nobody replaces
//     or uses a client of another address, whatever it says. At one address, another
//     user, or another certificate with another verifier, replaces it only once the
//     client has no state or its lease is over (RFC 8881 section 18.35.4).
//   - state-9. Who is admitted to no volume causes no write, and is not remembered.
//
// # Locking
//
// Table.admin is locked during changes of durable records, so also during Save.
// open.op is locked during LOCK, LOCKU and CLOSE, so also during calls to the
// volume. Table.mu guards all else, and is locked briefly. Each slot has a mutex of
// its own. The order is: admin or op, then mu, then a slot's.
package state
