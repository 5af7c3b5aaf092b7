// SPDX-License-Identifier: Apache-2.0

// Package pools is all cache pools of a gateway: which volume is on which, and how one moves to
// another (ADR 24).
//
// # Rules
//
//   - pools-1: A volume has one folder that counts, on one pool. Which one is noted durably before
//     it is used, and one durable step changes it.
//   - pools-2: A folder that another is to replace, or has replaced, is never opened, nor one that
//     is not on the pool that was noted, as long as that pool is there. What a move has left goes
//
// at     the next opening of the pools, at the latest; what nobody knows is set aside.
//   - pools-3: A pool that is not what it was, a folder of a pool that is not there any more, and
//     folders of which the notes may have lost something, count as taken back (protocol-3).
//
// The first pool is the main one: its incarnation is the gateway's, and it has the notes.
//
// # Locking
//
// Pools.hold lets one goroutine at a time make, rename, remove or replace a folder; it is held
// during input and output, for that folder alone. Pools.noting is held while the notes are written
// to the main pool. Pools.mu guards what is in memory, and is held only briefly. They are taken in
// this order. Methods may be called from any goroutine.
package pools
