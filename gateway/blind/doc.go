// SPDX-License-Identifier: Apache-2.0

// Package blind keeps checkpoints for copies without a key, and lets their logs begin with one
// (ADR 65). Such a copy reads no record: what it knows of the past its home tells.
//
// # Rules
//
//   - blind-1: Only the home that the control record names is asked, and what it tells counts only
//     if the log here has those segments. While its log is open, a copy believes only a checkpoint
//     that is not after what it knows to be committed.
//   - blind-2: A checkpoint is noted beside the log when the site's store has all of it, and all
//     packs that count with it, verified. What is noted the copy tells others, also as a steward.
//   - blind-3: A segment that the home has dropped is taken for absent until that is noted, and for
//     dropped then. Until then the copy lacks it, and is no member (protocol-3). What the copy has
//     of such a segment stays.
//   - blind-4: Objects of checkpoints that neither of the two newest has go when the newest is
//     noted. While a copy of the volume is kept aside here, or another gateway of the site may have
//     one, all stays.
//
// # Format
//
// The note is a file of the copy's folder: the BLAKE3 of the rest, 32 bytes, and a Note as JSON. It
// has one writer, Keeper.Run's goroutine. Forget removes it when the copy has a key, and a copy
// that is kept aside takes it along.
package blind
