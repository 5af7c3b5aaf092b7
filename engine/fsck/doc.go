// SPDX-License-Identifier: Apache-2.0

// Package fsck checks a volume's metadata, as they are at one moment, against every rule that they
// keep by themselves. It changes nothing and opens no file.
//
// # What is checked
//
// In all tables:
//
//   - fsck-1. Each key begins with the letter of a table and has its form. Each value parses, and
//     is what this release would write (meta.CheckPair). So is each value in the history.
//   - fsck-2. Numbers of inodes, contents and cookies, change attributes and numbers of snapshots
//     are below the next one that a home would give. An inode's generation is the epoch in its
//     number.
//   - fsck-3. Each result of a change is of a slot that is known, and not newer than that.
//
// In the present, and in each snapshot with a name:
//
//   - fsck-4. Each name leads to an inode, which has the generation and the type that the name
//     says. An inode has as many names as its link count says, and a directory has one, in its
//     parent. The root has none, and neither has a directory's trash, which its parent's inode
//     names. Each directory leads up to the root.
//   - fsck-5. The entries of a directory by name and by cookie are the same, and as many as its
//     inode says. Its link count is that of its subdirectories and two more.
//   - fsck-6. What belongs to an inode is there: a symbolic link's target, and as many extended
//     attributes as it says. What belongs to none is not there. An inode without a name is an
//     orphan, and only that.
//   - fsck-7. A file's extents lie below its size and do not overlap. The inode's used bytes are
//     their sum.
//   - fsck-8. Each extent's block lies in a segment of the log, and within its length. That segment
//     was not condemned, or the pack into which it moved has the block in its index.
//   - fsck-9. The accounting, or the snapshot's record of it, is the sum over all inodes. What only
//     snapshots hold is what the history and the dead contents have (meta-12).
//
// In the present:
//
//   - fsck-10. Each content is of one file, or dead. A dead content is of none.
//   - fsck-11. Snapshots, their names, and what they have in common agree. Later snapshots have
//     greater numbers, and times that are not earlier.
//   - fsck-12. The history is of tables that snapshots keep, and of keys that the snapshot can
//     show. If no snapshot was dropped since the last cleaning, some snapshot that is kept needs
//     each entry and each dead content.
//
// While a volume is made what it was in a snapshot, its present is between two states, and fsck-4
// to fsck-10 are not checked there.
//
// Moments, which are snapshots without names, are checked as far as the history is: they have no
// values of their own.
//
// # Memory
//
// Tables are read in order and side by side. Only the names need another order: of them the check
// makes several passes, in each of which it looks for the names of Config.Entries inodes, at 48
// bytes for each. Ten million inodes are five passes with the default of two million, which is some
// 100 MB. Sets that must be equal are compared by sums of hashes, and walked over again only if the
// sums differ. At most Config.Most findings are kept.
package fsck
