// SPDX-License-Identifier: Apache-2.0

// Package space counts what a volume takes in a site's store and on a gateway's pool, and what of
// it is for what: `weir df`.
//
// # Rules
//
//   - space-1: What is counted is what the store lists: each object below the volume's folder
//     counts, and each of its bytes once. What the gateway does not know is an orphan, never left
//     out.
//   - space-2: What the volume's log noted as stored is in the list, as long as the log has it. If
//     not, the report says so: data are lost there.
//   - space-3: Nothing is changed, and nobody waits for a count but another one.
//
// # What a byte of a segment is
//
// Blocks that the present uses are live. Blocks that only the history uses are of snapshots: also
// of those that were dropped, until the home has cleaned up. All else of a segment, its header and
// the frames of records too, is log if the segment is after the newest checkpoint, because whoever
// starts reads it; and dead before, because nobody reads it again. A segment that is condemned is
// that as a whole. What is not told apart: dead blocks after the newest checkpoint are log, until
// the next one.
//
// A pack has blocks of segments that were condemned because of it. What is not live, nor of
// snapshots, is dead: its index too. A segment whose live blocks are in a pack is moved as a whole,
// as long as it is there; so its blocks count once, in the pack.
//
// An object counts once, for the first kind of which it has bytes, in the order of the kinds.
package space
