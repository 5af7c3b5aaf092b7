// SPDX-License-Identifier: Apache-2.0

// Package xdr reads and writes what NFSv4.1 and 4.2 send over TCP: XDR
// primitives (RFC 4506), ONC RPC headers and record marking (RFC 5531), and the
// constants of RFC 8881, RFC 7862 and RFC 8276 under the names they have there.
//
// # Memory
//
// A Decoder never copies: the byte slices it returns alias the record they were
// read from and live as long as that record. An Encoder takes large data by
// reference (OpaqueRef) and yields net.Buffers, so that the payload of a READ or
// WRITE is copied by the kernel only. Records are read into pooled buffers. The owner
// of a Buffer calls Free once, when nothing aliases it any more.
//
// # Rules
//
//   - xdr-1. A length that was received is compared with a limit before anything is
//     allocated for it.
//   - xdr-2. A Decoder's error is sticky: after the first one every method returns
//     zero values, and Err returns the error. Callers check Err before they use what
//     they decoded.
package xdr
