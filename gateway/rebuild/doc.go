// SPDX-License-Identifier: Apache-2.0

// Package rebuild makes a copy of a volume from one store and the volume's data keys. It asks no
// gateway and no registry (ADR 55).
//
// A store has the segments of the log that ended and were committed, pieces of the next one, and
// the objects of checkpoints. Two things cannot be known from it alone: what was committed and is
// in no segment and no piece, and whether there was something after the last one.
//
// # Rules
//
//   - rebuild-1. The log is a chain: each segment names the one before by sequence, length and
//     hash. The chain that is followed ends in the greatest epoch, and is the longest of these
//     (protocol-9). What lies beside it and is of an earlier epoch was left out by force.
//   - rebuild-2. A checkpoint begins the chain with the segments that it lists. One that is damaged
//     is passed over: an earlier one, or the whole log, makes the same state.
//   - rebuild-3. A segment is applied whole or not at all, after its hash was found to be right.
//     What pieces make together is taken for a segment that ends the chain, as far as their bytes
//     are those that their names say, without a gap.
//   - rebuild-4. What is lost is named, with the paths that it concerns. Nothing is left in the
//     folder then, unless a person said to go on without it. Nothing is ever replaced by zeros
//     (protocol-19).
//   - rebuild-5. The metadata are in their place last. What a crash leaves before is no copy that
//     has metadata: a gateway would make them from the log.
package rebuild
