// SPDX-License-Identifier: Apache-2.0

// Package copies manages the copies of volumes on one gateway's pool. A Copy is an engine, a log
// and a replica, which are connected through package journal. The Manager opens copies as volumes
// appear, changes their policy, and deletes them when the site is not to have them any more. At a
// site without a copy whose clients use a volume it keeps an Outline (ADR 22), which is no copy.
//
// # Rules
//
//   - copies-1: A log that is in doubt or gone is not replaced by an empty one while the control
//     record counts on it (protocol-3). See doubt.go.
//   - copies-2: A copy that a forced takeover left out is kept aside under another name. It is
//     deleted by no program before its volume is purged, or the grace is over of the agreement by
//     which it was here.
//   - copies-3: A copy is deleted only when, as read with a quorum, the site is not to have it, the
//     control record does not name this gateway, and the home has reported that every site which is
//     to have a copy has all that is committed. The volume's segments in the site's store stay
//     there.
//   - copies-4: A volume is opened only with its data key, which this site's private key unwraps.
//     Its home wraps the key for sites that are new (protocol-17).
//   - copies-5: See package gateway/reaping.
//   - copies-6: What this gateway has of a purged volume is deleted only when the registry itself
//     says so, and is believed afterwards. The salvage and the site's store go with it.
//   - copies-7: When a site has the volume's newest data key and is not to read what is written
//     later (no copy, no member, nothing that the owner allows), the home has another follow, which
//     it wraps for the others. What is sealed a second later is sealed with that.
//
// # Locking and lifetime
//
// Manager.mu guards the map of volumes, and is locked only briefly. One goroutine, Manager.Run,
// opens and closes copies. Code that works on a Copy calls Use before, and done after: Close waits
// for it.
package copies
