// SPDX-License-Identifier: Apache-2.0

// Package outline lets gateways that have no copy of a volume follow its log without its blocks
// (ADR 22). The home sends headers of segments, and records without the data that they refer to, as
// soon as they are committed. The follower applies them to an engine. So names and attributes are
// there, and blocks are read from wherever they are.
//
// # Rules
//
//   - outline-1. Only what is committed is sent, and so only a forced takeover can cut what a
//     follower has (protocol-6). Then a home's log is not the one that the follower has, which
//     the salt of its last segment shows, or ends before it. The follower begins anew: it has
//     nothing that others lack.
//   - outline-2. A follower asks how far the log reaches, with its own clock. If the home serves
//     after that, it holds the promises of all members, and nobody else acknowledged anything: all
//     that was acknowledged when the follower asked lies before the end of the home's log. The home
//     answers when it has sent all of that. It is a claim about a time of the follower's own clock,
//     as in protocol-26, and no clock of another machine is believed.
//   - outline-3. A claim counts once the follower has applied what was sent before it. Claims end
//     when another epoch is known, and when the follower's clock may have stood still.
//   - outline-4. A read of a Strong volume asks when it begins, and is answered from the follower's
//     state when a claim of that time or later counts. One of a Bounded volume is answered while
//     the newest claim that counts is young enough.
//   - outline-5. A follower is sent the log while its site may use the volume.
//   - outline-6. A follower of a Strong volume tells how often its clients read, and the home may
//     lend it a lease (protocol-26). With the lease the home tells how far its log reaches, and
//     while it lasts, how far it has grown, before anything else. The follower notes that, answers
//     that it knows, and from then on answers reads only with a state that has all of it. The home
//     acknowledges no change before the follower knows of it, or the lease has ended. A lease ends
//     with its time, when another epoch is known, and when the follower's clock may have stood
//     still.
package outline
