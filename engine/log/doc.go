// SPDX-License-Identifier: Apache-2.0

// Package log keeps one volume's log in a directory of the cache pool. It appends, commits in
// groups, seals, ingests, reads, replays, truncates and evicts. Package replica decides who may
// append, what is committed, and who is notified.
//
// # Files
//
//	<sequence, 16 hex digits>.seg   one segment, as package segment defines it
//	segments                        the segment table
//	durable                         the watermark: how far the log was told to be durable
//	poisoned                        how far the log was durable when a write or fsync failed
//	loans                           gateways without a copy may read under leases; see NoteLoans
//	*.tmp                           unfinished; removed by Open
//
// The segment table lists the closed segments, wherever they are. Changes are appended to it, and
// the last slot of a segment counts. It is written anew when most slots count no more: temporary
// file, fsync, rename, fsync of the directory. Integers are big endian:
//
//	0  8  magic "WEIRTAB" 0x03
//	8 48  link (sequence, length, BLAKE3) of the segment before the first known; normally zero
//	56 4  CRC-32C of all before
//	60 …  slots of 97 bytes:
//	      1 state · 8 sequence · 8 epoch · 4 number of the data key · 32 salt · 8 length ·
//	      32 BLAKE3 · 4 CRC-32C of all before
//
// The states are 1: the segment is closed, and its file is here; 2: it is also in a store; 3: it is
// only in a store; 4: what the table says of segments after this sequence counts no more; 5: it is
// neither here nor in the site's store, but other copies have it; 6: it was condemned, and no copy
// keeps it. A slot that does not verify is left out. A crash tears only slots that nothing relies
// on yet.
//
// A slot of state 1 is written after the segment was fsynced and the next one begun, and before the
// segment could grow again a slot of state 4 is durable. So a slot never claims what the disk may
// not have. It is not fsynced by itself: if a crash takes it, Open reads that segment.
//
// Earlier releases replaced the table as a whole. The table was then, with the magic "WEIRTAB" 0x01
// or 0x02: the link · 4 n · n × { 8 sequence · 8 epoch · 32 salt · 8 length · 32 BLAKE3 · 1 flags:
// 1 = evicted · with 0x02: 4 number of the data key } · 4 CRC-32C of all before. It listed what is
// in a store. It is still read.
//
// If the table is lost, the local segments still describe themselves. Only what was evicted is then
// unknown, and Open reports that.
//
// # Order on disk
//
// The watermark is written after each fsync, before anybody is told of it, and becomes durable with
// the next fsync. It also says how far the log is known to be committed. It has two slots, 4096
// bytes apart, of which the one with the greater generation counts:
//
//	0  8  magic "WEIRDUR" 0x01
//	8  8  generation
//	16 16 identity of the log
//	32 …  durable: 8 sequence · 8 offset; committed: the same
//	64 1  1 = the log lost something, see Disown
//	   4  CRC-32C of all before
//
// The file of the last segment may have zeros behind its last frame, so that an fsync need not
// write how long the file is. They are cut before the fsync that closes the segment.
//
// A segment's file and its name in the directory are fsynced before the next segment's file is
// made. So after a crash only the last segment can be torn. If an earlier one is not whole, it was
// damaged. Truncate removes files from the end, and makes each removal durable before the next.
//
// # Rules
//
// These are the rules of docs/concepts.md that this package keeps.
//
//   - protocol-3. A failed write or fsync is never retried. The log is poisoned for ever. The next
//     Open cuts off what was not durable then, even if it can be read. If Open finds anything wrong
//     beyond a torn tail, the log is in doubt, and accepts nothing new before its owner truncates
//     it. A tail that is missing below the watermark is not torn, but lost.
//   - protocol-8. A crash at any instruction leaves a prefix that has all that was durable.
//   - protocol-9. A closed segment does not change, and the next one names its hash. Package
//     replica ensures that only committed records stay in closed segments: it truncates.
//   - protocol-15. Records that remove something without bringing data, and headers of segments,
//     may use the room that is reserved for them. Nothing else may.
//   - protocol-16. Append seals only in segments begun by this Log since Open or Truncate, and
//     since NewSalt. Ingest copies ciphertext, and may continue any segment.
//   - protocol-19. What does not verify is logged with segment and path, and read from another
//     copy. It is never replaced by zeros.
//
// # Locks, in the order in which they are taken
//
//	writer   one of Append, Ingest, BeginEpoch, Roll, Truncate, Close at a time
//	tableMu  the segment table's file
//	syncMu   fsync of the current segment; held to replace or truncate it
//	mu       everything that readers see; never held over I/O
//
// An idle Log owns no goroutine and no timer. The syncer exists only while there is something to
// sync or to report.
package log
