// SPDX-License-Identifier: Apache-2.0

// Package engine implements volume.Volume over a log. It turns changes into records, which a
// Journal makes durable, and turns committed records into metadata.
//
// A change runs alone in a short critical section. It looks at the volume as the last record left
// it, computes absolute operations and appends them as one record. It waits for the commit after
// the section. The metadata store gets only committed records. Until then a home keeps their
// operations in an overlay, and a follower keeps them in a list. So a home that loses its role
// discards the overlay and has nothing to undo.
//
// Formats: keys and values are in package meta, records in package segment. The encoding of
// results, which records carry, is in result.go.
//
// # Rules
//
// These are the rules of docs/concepts.md that this package keeps.
//
//   - protocol-2. No operation returns before the changes of names and attributes that its outcome
//     reveals are committed. This holds for errors too. Only unstable data is shown earlier.
//   - protocol-4. Journal.MayServe is asked after the last look at the volume and before the
//     answer, and at a follower also before the first look. This also holds for changes that turn
//     out to change nothing and for unstable ones. For other changes the commit proves as much, and
//     it never waits for a clock.
//   - protocol-26. A record is in the home's overlay before any other gateway can have it. So
//     whatever any gateway shows, the home shows too.
//   - protocol-8. One applier at a time moves records to the store in log order. It exists only
//     while there is something to apply.
//   - protocol-19. Metadata that does not parse and blocks that do not open are ErrIO. Only what no
//     extent covers reads as zeros.
//   - protocol-20 and protocol-21. Each record has one number, epoch<<40 | counter. It is the
//     change attribute of every inode that the record changes. It is also the cookie of the entry
//     and the number of the inode that the record makes. Every Lead has a new epoch, so no number
//     is ever used for two things.
//   - protocol-22. The result of a change is in its record. An outcome that changed nothing is
//     remembered in memory while this gateway is home. To execute such a change again after that is
//     to execute it for the first time.
//
// # Deletion of open inodes
//
// A client that holds an inode may use it after its last name is gone. Such an inode is an orphan
// until Reap deletes it. An inode is marked for deletion (doom) while the record that deletes it is
// appended, so that no client can begin to hold it meanwhile. The mark is removed (undoom) when
// that critical section ends.
//
// # The trash
//
// A directory from which something was removed has a directory for that, to which no entry leads.
// What is in the trash is an inode with a name as any other. Only its names are treated otherwise,
// as trash.go says.
//
// # Locking
//
// Engine.turn is held through the critical section of a change, and by whatever begins or ends a
// role. Engine.mu guards the lists and maps in memory and is held only for moments. It may be taken
// while turn is held, never the reverse. A part of the rows is locked while mu is held, or without.
// So is Engine.holding, the gate behind which changes wait without turn.
package engine
