// SPDX-License-Identifier: Apache-2.0

// Package engine is a volume.Volume over a log: it turns changes into records
// that a Journal makes durable, and committed records into metadata.
//
// A change runs alone, in a short critical section: it looks at the volume as
// the last record left it, computes absolute operations, appends them as one
// record, and waits for the commit after the section. The metadata store gets
// records only when they are committed; until then a home has their operations
// in an overlay, and a follower only in a list. So a home that loses its role
// forgets the overlay and has nothing to undo.
//
// Formats: keys and values are in package meta, records in package segment; the
// encoding of results, which records carry, is in result.go.
//
// # Rules
//
// The numbers are those of docs/concepts.md.
//
//   - Rule 2. Nothing returns before what it reveals of names and attributes is
//     committed; that holds for errors too. Only unstable data is shown earlier.
//   - Rule 4. Journal.MayServe is asked after the last look at the volume and
//     before the answer; at a follower also before the first look. That holds for
//     changes that turn out to change nothing, and for unstable ones. Of others the
//     commit proves as much, and never waits for a clock.
//   - Rule 26. A record is in the overlay of its home before any other gateway can
//     have it: what is shown anywhere is shown by the home.
//   - Rule 8. One applier at a time moves records to the store in log order. It
//     exists only while there is something to apply.
//   - Rule 19. Metadata that does not parse and blocks that do not open are ErrIO.
//     Only what no extent covers reads as zeros.
//   - Rules 20, 21. Each record has one number, epoch<<40 | counter. It is the
//     change attribute of every inode that the record changes, and the cookie of
//     the entry and the number of the inode that it makes. Every Lead has a new
//     epoch, so no number is ever used for two things.
//   - Rule 22. Results of changes are in their records. Outcomes that changed
//     nothing are remembered in memory while this gateway is home: to execute
//     such a change again after that is to execute it for the first time.
//
// # Locking
//
// Engine.turn is held through the critical section of a change and by whatever
// begins or ends a role. Engine.mu guards the lists and maps in memory and is
// only held for moments; it may be taken while turn is held, never the reverse.
package engine
