// SPDX-License-Identifier: Apache-2.0

// Package locks arbitrates the byte-range locks of a volume between gateways (protocol-23).
//
//	Table      at the home: the locks of this reign, and other gateways' changes under way
//	Registrar  at every gateway: its own clients' locks, and their registration with the home
//
// A gateway registers the locks of its clients with each new home. Registrations are numbered in
// growing order. Lock operations and changes belong to a registration, so that an operation that
// was given up and arrives late does nothing.
//
// # Rules
//
//   - locks-1: A table is empty at the beginning of each reign. Until every living gateway has
//     registered, it grants only locks that clients reclaim.
//   - locks-2: Locks of a gateway whose heartbeat has ended are granted to others who ask. When
//     that gateway registers again, it learns which of its locks are lost. A lock is also lost if
//     others had it meanwhile and released it: the client must not go on with what it read under
//     the lock (RFC 8881 section 8.4.2.1).
//   - locks-3: Only the newest registration of a gateway counts, with the incarnation that the
//     registry has. When a registration is answered, no operation of an older one is under way at
//     the home, and none will begin (ADR 8).
//   - locks-4: A reign begins when no change of a former reign is under way any more.
//   - locks-5: A registration is exclusive: no lock of this gateway's clients changes while it is
//     under way. So it has exactly what was granted.
//   - locks-6: A lock is recorded as released here before the home is asked to release it. A home
//     that released it and is lost before it answers may have granted it to others.
package locks
