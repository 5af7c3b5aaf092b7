// SPDX-License-Identifier: Apache-2.0

// Package routing serves volumes to the clients of one gateway, wherever their homes are. A Router
// is a volume.Volume: reads go to the local copy if it may serve, everything else to the home. A
// Server is the home's side: it executes what other gateways send.
//
// # Rules
//
//   - routing-1: A read is answered from the local copy only if its replica may serve. Otherwise
//     the home answers it (protocol-4, protocol-26).
//   - routing-2: An operation whose outcome is not known is sent again with the same OpID, to the
//     home of that time (protocol-22). Without an OpID it is not sent again, and volume.ErrUnknown
//     is returned.
//   - routing-3: After a change at a home elsewhere, the client is answered when the change is
//     applied here (protocol-25).
//   - routing-4: A home executes a gateway's operation only if that gateway's site has a copy of
//     the volume or admitted clients (protocol-18), and a change only if the volume's owner lets
//     that site write (view-5). An operation that ends earlier work is always executed.
//   - routing-5: A change or a lock operation belongs to a registration of its gateway: see package
//     locks.
package routing
