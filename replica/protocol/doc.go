// SPDX-License-Identifier: Apache-2.0

// Package protocol decides for one volume at one gateway who may append to the volume's log, what
// is committed, who may serve reads, and who takes over. It is a pure state machine: Step takes the
// time and one event, and returns effects. It does no input or output, starts no goroutine, reads
// no clock and draws no random number. Package replica is the shell around it that carries out the
// effects.
//
// # Rules kept here
//
// The numbers are those of docs/concepts.md.
//
//   - protocol-1: The control record changes only by compare-and-swap. A Swap effect names the
//     revision that it replaces. An unknown outcome is settled by reading the record. If the old
//     record is still there, the same swap is issued again. An epoch begins with the answer to its
//     swap, never with a record that was read: the gateway may have written that record before a
//     restart.
//
//   - protocol-2: The commit position is the smallest durable position over all members. With fewer
//     members than wanted it stands still, unless the policy says Continue.
//
//   - protocol-3: Only the home changes members. A joiner counts for commit from before the swap
//     that adds it. While a swap is under way, commit needs old and new members.
//
//   - protocol-4: A home serves only while it has a promise of every other member. The home counts
//     a promise from when it sent the message that the member answered. The member counts it from
//     the arrival of that message. So it ends at the home first. Members promise, and take over,
//     only with evidence of a recent fsync. A home without such evidence stops sending if there are
//     other members.
//
//   - protocol-5: Takeover: a member whose promise has ended stops acknowledging. It makes itself
//     home of the next epoch by a swap, begins the epoch in its log, and serves when that beginning
//     is durable on all members. A home that starts again does the same, at once if its log has its
//     epoch's beginning.
//
//   - protocol-6: A follower truncates its log to the longest prefix that it shares with the home's
//     log. The prefix is found by comparing which epoch began where in both logs. What is committed
//     is cut only after an epoch that a person forced, by the control record. A home speaks to the
//     gateways that have a copy or may have one; a copy that does not hear of its home asks it (ADR
//     44).
//
//   - protocol-7: Without the registry no swap succeeds, so nothing changes hands. Serving goes on.
//
//   - protocol-26: A member may answer reads from its own copy while it has a lease from the home.
//     A home that removes a member waits until the member's lease has ended before it commits
//     without it. So it does for a lease that its earlier process may have given. It hands over
//     only when no lease lasts longer than the next home gives the members to be heard. Others that
//     read get a lease on demand. While it lasts, commit needs them as it needs the members; but
//     they have no vote.
//
//   - protocol-28: A blind member waits for keyed ones to take over. If none does, it becomes a
//     steward: it begins an epoch, makes a keyed follower a member, and hands over to it. A home
//     hands over to no blind copy, and no blind copy makes a volume's first record.
//
// One more rule is as in Raft section 5.4.2: a home of epoch e counts nothing as committed before
// the header that begins e is durable on all members. So every member that took part in e has e in
// its log, and refuses earlier epochs after a restart without a file of its own.
//
// # Time
//
// Time is a reading of a clock that never goes back and counts suspend. Clocks of different
// gateways are never compared. A message carries its sender's Stamp, and as Echo the newest Stamp
// received from the other side. The side that relies on a duration shortens it by 1/16, which
// allows clocks to differ in speed by 6 %.
//
// # Ownership
//
// A Core is not safe for concurrent use. Its owner calls Step with events in the order in which
// they happened, and carries out the effects in order.
package protocol
