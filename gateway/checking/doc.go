// SPDX-License-Identifier: Apache-2.0

// Package checking checks one copy of a volume as a whole, and repairs it from others, when a
// person asks for it: `weir fsck` (ADR 49). The copy may be open at a gateway, or by the command
// itself: on the pool of a gateway that is stopped, or made from a store.
//
// It looks at four things, one after the other:
//
//   - each closed segment, where the log says that it is: on the pool, and in the site's store.
//     Without Config.Data it looks at what is there and at lengths. With it, all is read and
//     hashed, and records and blocks are opened;
//   - each pack that counts, in the site's store, in the same way;
//   - the metadata, by all rules of package engine/fsck;
//   - each block of the volume, and of its snapshots, that lies in a damaged segment: it is looked
//     for in every copy, so that what is damaged is told as bytes of files.
//
// # Rules
//
//   - checking-1. Without Config.Repair nothing changes.
//   - checking-2. What repairs has the hash that the log knows: nothing is guessed, and nothing is
//     replaced by zeros (protocol-19). What no copy has stays an error for who reads it.
//   - checking-3. An object of the store is deleted only to be replaced. Before, its segment's file
//     is whole on the pool, and the log says durably that the store does not have it: the file is
//     not evicted, and a crash in between has it uploaded again.
//   - checking-4. What is used is counted again by the home only, and only if all metadata are
//     well.
//   - checking-5. Metadata are made anew of a copy that is not the home, and only from what the log
//     says: a checkpoint that the copy made as the home did, or that the home committed and whose
//     segments are this log's, and the log after it. They are not patched.
//   - checking-6. A pack of the store is never deleted, but replaced. What takes its place is whole
//     on the pool, from what the copy has, or from another copy (checkpoints-14).
package checking
