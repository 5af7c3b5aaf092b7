// SPDX-License-Identifier: Apache-2.0

// Package checkpoints makes the checkpoints of the copies on one gateway, and lets copies that have
// nothing begin with one (ADR 47).
//
// # Rules
//
//   - checkpoints-1: The home commits only a checkpoint that it has made itself. What another copy
//     made of the same state is compared with that. If it differs, one of the two copies is
//     damaged: nothing is changed, and it is told until the next one is alike.
//   - checkpoints-2: A copy begins with a checkpoint only if it has nothing of the log, neither on
//     its pool nor in its site's store. The log adopts the segments before the metadata are in
//     their place: a crash leaves a copy that has nothing yet.
//   - checkpoints-3: What a copy lacks of the past it fetches from its site's store first, and else
//     from other copies. Until it has all, it is no member (protocol-3).
//   - checkpoints-4: The home condemns segments that no extent uses, of the present or the history,
//     at a checkpoint that is committed and that it made itself, when all copies that answer have
//     the log up to there. One that does not answer begins anew with a checkpoint.
//   - checkpoints-5: Each copy drops what is condemned, in its own store and pool, when the record
//     that says so is durable in its metadata, and a grace later (protocol-14), and only if it made
//     that checkpoint, or a later one, as the home did, and made none otherwise since: so its own
//     metadata do not need it. What the store had goes first: a crash in between does it again.
//     While a copy of the volume is kept aside here, nothing is dropped: the store may have what
//     only that one needs.
//   - checkpoints-6: Objects of checkpoints go that neither the newest nor the one before has.
//   - checkpoints-7: The home makes packs of what lived at a checkpoint, from its own copy, puts
//     each into its own store, and then commits it under the conditions of checkpoints-4: segments
//     and packs are condemned because of it. A home without a store makes none.
//   - checkpoints-8: Each other copy makes the same pack from what it has, by the list in its
//     metadata, and compares the hash. If it can not, it gets the pack from another gateway. A copy
//     drops a segment, or a pack, that moved into another pack only when its own site's store has
//     that one, which it asks just before, and the record of it, and when that has each block that
//     its own metadata name.
//     A copy at a site without a store drops only what is dead.
//   - checkpoints-9: Nothing is deleted of a volume of which another gateway of the site has a
//     copy: it has the same store, may know less, and may become home by a person's word.
//   - checkpoints-10: What is committed of a log's last segment is in the site's store within
//     maxLag, in pieces, if all copies of the volume do so (ADR 60). A piece is put when the store
//     has all before it.
//   - checkpoints-11: A piece goes when the store has the whole segment, or that was condemned and
//     dropped, and the segment's salt and length say that the piece is a part of it. That holds for
//     checkpoints-9, too: nothing goes but what is there twice, or was condemned. Nothing
//     goes while a copy of the volume is kept aside here.
//   - checkpoints-12: A pack that nobody committed goes when this copy made a checkpoint, as the
//     home did, that was asked for after the pack was seen, and a grace later, and its metadata do
//     not name the pack. checkpoints-9 holds for it, and what is kept aside.
//   - checkpoints-13: Of a block that is mostly dead a pack has those ranges that extents of any
//     generation use, sealed anew (ADR 64). Each copy makes it from its own bytes, and drops what
//     it came from only when all extents of its own metadata lie in such ranges.
//   - checkpoints-14: A pack that the site's store has damaged is replaced, by one of the same hash
//     that is whole on the pool, and is there until then: most of it can be read. Until it is
//     replaced nothing is dropped because of it.
//   - checkpoints-15: A checkpoint that could not be made is asked for again after a pause, which
//     grows from a minute to ten, unless a whole one can be made at once.
//
// # Locking and lifetime
//
// One goroutine of a Keeper makes checkpoints, one after the other, another fetches, one drops what
// is condemned and makes packs, and one puts pieces. All work on a copy only between Use and done.
package checkpoints
