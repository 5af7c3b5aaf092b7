// SPDX-License-Identifier: Apache-2.0

// Package log keeps one volume's log on a directory of the cache pool: append,
// group commit, seal, ingest, read, replay, truncate, evict. Who may append, what is
// committed and who is told is decided above it, in package replica.
//
// # Files
//
//	<sequence, 16 hex digits>.seg   one segment, as package segment draws it
//	segments                        the segment table
//	poisoned                        how far the log was durable when a write or fsync failed
//	*.tmp                           unfinished; removed by Open
//
// The segment table lists the segments that are stored elsewhere, whether or not
// a copy is still here. It is replaced as a whole: temporary file, fsync, rename,
// fsync of the directory. Big endian:
//
//	0  8  magic "WEIRTAB" 0x01
//	8 48  link (sequence, length, BLAKE3) of the segment before the first known; zero as a rule
//	56 4  n
//	60 …  n × { 8 sequence · 8 epoch · 32 salt · 8 length · 32 BLAKE3 · 1 flags: 1 = evicted }
//	   4  CRC-32C of all before
//
// Without it the local segments still tell everything about themselves; only
// what was evicted is then unknown, and Open says so.
//
// # Order on disk
//
// A segment's file and its name in the directory are fsynced before the next
// segment's file is made. So after a crash only the last segment can be torn,
// and all before it is whole or somebody damaged it. Truncate removes files from
// the end, each removal durable before the next.
//
// # Rules owned here
//
//   - 3: a failed write or fsync is never retried; the log is poisoned for ever, and what was not durable then is cut
//     by the next Open, whatever reads of it show.
//     What Open finds wrong beyond a torn tail is a doubt, and such a log takes
//     nothing new before its owner truncates it.
//   - 8: a crash at any instruction leaves a prefix, with all that was durable.
//   - 9: a closed segment does not change and the next names its hash. (That only
//     committed records stay sealed is replica's part: it truncates.)
//   - 15: records that take something away without bringing data, and headers of segments, may use the room that is
//     kept for them; nothing else may.
//   - 16: Append seals only in segments begun by this Log since Open or Truncate.
//     Ingest copies ciphertext and may go on with a segment.
//   - 19: what does not verify is logged with segment and path, and read from
//     another copy; never zeros.
//
// # Locks, in the order in which they are taken
//
//	writer   one of Append, Ingest, BeginEpoch, Roll, Truncate, Close at a time
//	tableMu  the segment table's file
//	syncMu   fsync of the current segment; held to replace or truncate it
//	mu       everything that readers see; never held over I/O
//
// An idle Log owns no goroutine and no timer: the syncer lives only while there is
// something to sync or to tell.
package log
