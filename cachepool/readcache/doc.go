// SPDX-License-Identifier: Apache-2.0

// Package readcache keeps blocks of sealed segments on a gateway's pool, as they are in the
// segments: sealed. What a volume's log does not have on the pool any more, and what was read from
// a store or from another gateway, is then read here the next time.
//
// # Rules
//
//   - readcache-1: What is read here is what the store has, or it is read elsewhere. A block that
//     does not verify is forgotten (protocol-19).
//   - readcache-2: A volume's Reserve is not pushed out by other volumes, nor by their logs.
//   - readcache-3: What is read once, however much, does not push out what is read often.
//   - readcache-4: All that is here gives way to the logs, but for reserves and what is pinned,
//
// which
//
//	  leave them a quarter at least (protocol-15).
//	- readcache-5: What is pinned stays whatever is read, until nobody wants it pinned.
//
// # What is kept, and what goes
//
// All volumes of a gateway share the pool's room. What is kept goes by use over all volumes, as in
// S3-FIFO (Yang et al., SOSP 2023), with files instead of single objects in its queues:
//
//   - The small queue has what nobody has asked for again yet: files of blocks that were read from
//     elsewhere, and the logs' own segment files that a store has too. If it takes more than a
//     tenth of all, its oldest file goes. Blocks of that file that were asked for again move to the
//     main queue.
//   - The main queue has the rest. If the small queue is short, the oldest file of the main queue
//     goes. Blocks that were asked for since they came there move to its end.
//   - A block that went from the small queue and is wanted again soon comes into the main queue at
//     once. The cache remembers what went for that (a ghost).
//
// What is pinned is in files of its own, in no queue. It goes when a pass over all that is to be
// pinned did not want it, or when it is more than logs and metadata leave to it.
//
// So a reader of much, once, takes no more than the small queue from the others. A volume's Limit
// bounds what is kept of it. Its Reserve is what other volumes cannot push out.
//
// # Files
//
// A volume's files are in its own folder of the pool, so that a pool of datasets treats them as
// the volume's. A file is filled from its start, gets an index at its end, and never changes after
// that. A file without an index is of a process that crashed: it is removed. No file is fsynced.
// What is read may be damaged or zeros after a loss of power: the reader verifies each block by
// its tag, and says so with Forget (protocol-19).
//
// # Locking
//
// Cache.evicting lets one goroutine at a time remove files; it is held during input and output.
// Cache.mu guards everything else, and is held only briefly. evicting is taken before mu. Methods
// may be called from any goroutine.
package readcache
