// SPDX-License-Identifier: Apache-2.0

// Package meta keeps a volume's metadata in Pebble. It has the keys, the values, the overlay of
// changes that are not committed, and the view that joins the overlay and Pebble.
//
// # Keys
//
// A key is a table's letter, its fields and a generation of four bytes, which is 0 in all tables
// but the history. A key does not name the volume (protocol-12). Numbers are big endian. A name
// contains no NUL, and one NUL follows it. A slot is escaped, NUL as 00 FF, and ended with 00 01,
// so that a prefix of slots is a range of keys.
//
//	a                            accounting
//	b  pack u64                  pack
//	c  dir u64, cookie u64       directory entry by cookie
//	d  content u64               content that no inode has any more, and snapshots may show
//	e  content u64, offset u64   extent
//	f  pack u64                  what a pack begins with: its head and its index
//	g  sequence u64              segment of the log that ended
//	h  another key up to its generation   what that key had in snapshots
//	i  inode u64                 inode
//	k  what u8                   checkpoints: 1 asked for, 2 placed, 3 made
//	l  name 00                   snapshot by its name
//	m  sequence u64              segment whose live blocks are in a pack
//	n  dir u64, name 00          directory entry by name
//	o  slot, index u32           result of a change (protocol-22)
//	p                            applied position; local, in no record
//	q  slot                      newest sequence number of a slot
//	s  inode u64                 target of a symbolic link
//	t  snapshot u32              snapshot
//	u  inode u64                 orphan: an inode without a name
//	v                            versions: format level, and what snapshots have in common
//	w  record u64                entry of the trash, by the record that put it there
//	x  inode u64, name 00        extended attribute
//	z  sequence u64              segment that was condemned
//
// A content is the number under which a file's extents are: first the file's own, later that of the
// record that gave it another one.
//
// # Values
//
// A value is a version byte, now 1, a body, and the CRC-32C of key, version and body. So a value
// that was damaged, or is under another key, does not parse. The CRC of an extent does not cover
// its block reference, which follows the CRC, because the log only knows the reference when it
// makes the value (segment.SetBlock). A damaged reference finds no block that opens.
//
//	a  used bytes u64, inodes u64, held bytes u64 (from level 4 on, if they are counted)
//	b  BLAKE3 32 bytes, length u64, checkpoint u64, condemned at checkpoint u64, into pack u64,
//	   from packs u64 …
//	c  inode u64, generation u64, name
//	d  snapshot u32, bytes u64 (from level 4 on)
//	e  length u32, skip u32, raw u32 | CRC | segment.BlockRef
//	f  bytes
//	g  epoch u64, number of the data key u32, salt 32 bytes, length u64, BLAKE3 32 bytes
//	h  0: the key had nothing; or 1, the value that it had
//	i  see Inode
//	k  1: number u64, data key u32
//	   2: number u64, segment u64, offset u64, epoch u64, last of g u64, next u64
//	   3: number u64, segment u64, offset u64, epoch u64, data key u32, hash 32 bytes,
//	   used bytes u64
//	l  snapshot u32
//	m  number of the pack u64
//	n  inode u64, generation u64, cookie u64, type u8
//	o  sequence u32, result
//	p  segment u64, offset u64, epoch u64
//	q  sequence u32
//	s  target
//	t  number u64, time, used bytes u64, inodes u64, moment u8, name
//	u  generation u64
//	v  level u32, last u32, newest u32, number u64, changed u64, time, covered time,
//	   rolling u32, dropped u64, flags u8 (1 idle)
//	w  directory u64, time
//	x  value
//	z  number of the checkpoint u64
//
// A time is seconds u64 and nanoseconds u32.
//
// # Rules
//
// Rules named protocol-N are those of docs/concepts.md.
//
//   - meta-1. Pebble holds only committed records, which are a prefix of the log. Every batch of
//     them also writes the position where it ends (protocol-8). Pebble keeps no log of its own: the
//     empty ones that it makes are removed at the next Open, whatever a crash left of them.
//   - protocol-3. Open reads the manifests from the disk, and not what a failed fsync left in
//     memory. So no table goes that the disk's manifest needs.
//   - meta-2. A value that does not parse is an error that wraps ErrCorrupt, never a default
//     (protocol-19).
//   - meta-3. An extent lies within one aligned run of segment.MaxBlock bytes of its file. Extents
//     of a file do not overlap. What no extent covers is a hole.
//   - meta-4. A point in the overlay is newer than every range of the overlay that covers it. Both
//     are newer than what Pebble has.
//   - meta-5. Used bytes are the sum of the lengths of extents, in an inode and in the accounting.
//     The accounting's inodes are those with and without a name.
//   - meta-6. The tables have the present. Before a record changes what a key of a versioned table
//     has, it puts that into the history, under the newest snapshot that is kept, unless the
//     history has an entry of the key for that snapshot or a later one. So what a key had in a
//     snapshot is the first entry of its history that is not of an earlier snapshot; if there is
//     none, it is what the key has now. Versioned are c, e, i, n, s, u, w and x.
//   - meta-7. Numbers of inodes, cookies and contents only grow. What has a greater number than a
//     snapshot was made later, and needs no history for it.
//   - meta-8. An entry of the history, and a dead content, go when no snapshot needs them that is
//     kept. Records of the home remove them.
//   - meta-9. Once a checkpoint was asked for, g lists the segments of the log that ended. Whoever
//     applies the first record after the end of a segment adds it, and so knows from the log alone
//     what to add. The same moment places a checkpoint: one that was asked for in a segment is made
//     of the state at the end of that segment, with the segment itself in g (ADR 47).
//   - meta-10. A segment is condemned once no block of it is in an extent, of the present or the
//     history, at a checkpoint that is made and not before the segment. Blocks are in new extents
//     only while they are in some, so it stays that way (ADR 52). Or it is condemned because of a
//     pack, which has its blocks that are in extents: m names the pack (ADR 56). All blocks of a
//     segment that live are in one pack. f goes when the pack is condemned.
//   - meta-11. Each entry of a directory that is in the trash has a key of w with its cookie, and
//     so goes some day. What a key of w names that is not in the trash any more stays.
//   - meta-12. Held bytes are the sum of the lengths of the extents that the history has, and of
//     the bytes that dead contents had when they died. An extent that was overwritten in part
//     counts whole.
package meta
