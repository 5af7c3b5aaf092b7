// SPDX-License-Identifier: Apache-2.0

// Package locks arbitrates the byte-range locks of a volume between gateways (protocol-23).
//
//	Table      at the home: who holds which lock in this reign, and which changes of other gateways run
//	Registrar  at every gateway: what this gateway's own clients hold, and what the home knows of it
//
// A gateway registers the locks of its clients with each new home. A registration has a number that
// grows. Lock operations and changes belong to a registration, so that one which was given up, and
// arrives late, does nothing.
//
// # Rules
//
//   - locks-1: A table begins empty with each reign. Until every gateway that lives has registered,
//     it grants only what clients reclaim.
//   - locks-2: Locks of a gateway whose heartbeat has ended go to whoever asks. When that gateway
//     registers again, it hears which of its locks are lost. So it does if others had a lock
//     meanwhile and gave it up: its client must not go on with what it read under the lock (RFC 8881
//     section 8.4.2.1).
//   - locks-3: Only the newest registration of a gateway counts, of the incarnation that the registry
//     has. When a registration is answered, nothing of an older one runs at the home any more, and
//     nothing of it will (ADR 8).
//   - locks-4: A reign begins when no change of a former reign runs any more.
//   - locks-5: A registration is alone: no lock of this gateway's clients changes while it runs. So
//     the home hears exactly what was granted.
//   - locks-6: A lock is noted as released here before the home is asked to release it. A home that
//     has let go of it, and is lost before it answers, may have granted it to others.
package locks
