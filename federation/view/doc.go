// SPDX-License-Identifier: Apache-2.0

// Package view keeps a copy of the registry in memory. The gateway and the operator decide by it.
//
// One watch fills the view; nothing is polled. The view can be older than the registry. Whoever
// must not be late reads the registry itself, and notes the result (Note, Detach).
//
// # Rules
//
//   - view-1: A list is complete. Each watch begins with a list of everything, which KindSynced
//     ends. A record that is known and that the list does not have was deleted in between. It is
//     forgotten then, not earlier: during the list, old and new records count side by side.
//   - view-2: Unknown is not deleted. A record that cannot be read keeps its last readable value.
//   - view-3: What this process wrote itself counts at once. An older event does not undo Note,
//     unless it comes in the list of a new watch: the registry may have been restored.
//   - view-4: A detached node stays out. After Detach no older attachment of the node counts,
//     whatever the watch sends later.
//   - view-5: The owner bounds. What clients of a site may do is no more than the volume's record
//     grants to the site, or a person of the owner wrote in an admission; sites of the owner's own
//     organization may do everything.
//
// # Changes
//
// A change is first visible to all methods. Then the functions that Listen registered run, and then
// the channel that Changed returned is closed. So a waiter calls Changed, looks, and waits:
//
//	for {
//		changed := v.Changed()
//		if done(v) {
//			return
//		}
//		select {
//		case <-changed:
//		case <-ctx.Done():
//			return
//		}
//	}
//
// # Locking and memory
//
// All methods may be called from many goroutines. Each takes one lock once, so that one answer is
// of one moment; two answers may be of two. Only Watch changes the records, but for Note, Detach
// and Attach: run one Watch at a time. What a method returns is shared with the view: read it, and
// do not change it. A Volume is replaced by a change and never modified, so it may be kept.
//
// A view keeps only the kinds of records that it was made for, and control records without their
// history. The names in a list are remembered only until the list ends.
package view
