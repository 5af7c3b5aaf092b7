// SPDX-License-Identifier: Apache-2.0

// Package protocol is the part of the rules that keep data which decides:
// who may append to one volume's log, what is committed, who may serve reads
// and who takes over. It is a pure state machine for one volume at one gateway:
// Step takes the time and one event and returns effects; it does no input or
// output, starts no goroutine, reads no clock and draws no random number.
// Package replica is the shell around it that does those things.
//
// # Numbered rules kept here
//
//	 1  the control record changes only by compare-and-swap: Swap effects name
//	    the revision they replace; an unknown outcome is settled by reading back and, if
//	    the old record is still there, by issuing the very same swap again. An epoch begins with the answer to its
//	    swap, never with what is read: an earlier life of the gateway may have made that record.
//	 2  commit = the smallest durable position over all members. With fewer members than
//	    wanted it stands still, unless the policy says Continue.
//	 3  only the home changes members. A joiner counts for commit from before the
//	    swap that adds it; while a swap is under way commit needs old and new members.
//	 4  a home serves only while it holds a promise of every other member. A promise counts
//	    at the home from the sending of the message that the member answered,
//	    at the member from the arrival of that message, so that it ends at the home first.
//	    Members promise, and take over, only with evidence of a recent fsync; a home without it falls silent if there
//	    are other members.
//	 5  takeover: a member whose promise has ended stops acknowledging, swaps
//	    itself in with the next epoch, begins the epoch in its log, and serves when the beginning
//	    is durable on all members. A home that starts again does the same, at once if its log holds its epoch's beginning.
//	 6  a follower truncates to the longest prefix that its log shares with the home's,
//	    found by comparing which epoch began where in both logs.
//	 7  without the registry nothing changes: no swap succeeds, serving goes on.
//	26  a member may answer reads from its own copy while it holds a lease from the home. A home
//	    that removes a member waits until the lease it gave has ended before it commits without it.
//
// One rule is ours, as in Raft section 5.4.2: a home of epoch e counts nothing as committed before the
// header that begins e is durable on all members. So a member that
// took part in e has e in its log, and refuses earlier epochs after a restart without a file of its own.
//
// # Time
//
// Time is a reading of a clock that never goes back and counts suspend. Clocks
// of different gateways are never compared; a message carries its sender's Stamp and
// the newest Stamp received from the other side as Echo. Durations shrink by 1/16 at the side that
// relies on them, which allows clocks to differ in speed by 6 %.
//
// # Ownership
//
// A Core is not safe for concurrent use. Its owner calls Step with
// events in the order they happened and carries out the effects in order.
package protocol
