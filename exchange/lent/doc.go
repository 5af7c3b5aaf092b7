// SPDX-License-Identifier: Apache-2.0

// Package lent is a store in front of room that a site lends: it checks capabilities, room and
// counts by itself (ADR 35).
//
// # Rules
//
//   - lent-1: a request is served only with a capability of this store that has not ended, on a
//     connection whose certificate is of the organization and the gateway that it names, in the
//     bucket that it names, while the agreement allows it (package federation/paper).
//   - lent-2: a gateway puts objects into its own folder only. It reads, lists and deletes those of
//     all gateways of its organization in the bucket. An object is never replaced.
//   - lent-3: the first byte beyond a gateway's room, or the agreement's amount, is refused, also
//     when many come at once. What both have signed is on this store's disk, so that this holds
//     without a registry.
//   - lent-4: the store's time is the later of its clock and of the newest time that others signed,
//     or that a gatekeeper took from it. So a clock that was set back revives nothing.
//   - lent-5: everything of an agreement is deleted when the host's answer in the registry says so,
//     and never by time alone.
//
// # How a request goes
//
//	gateway ── TLS, certificate ──▶ front: lent-1, lent-2 ── UNIX socket ──▶ versitygw: signature
//	     ──▶ Objects: lent-2, lent-3, counts ──▶ store.Store
//
// What is refused is logged with audit=refused, and counted.
package lent
