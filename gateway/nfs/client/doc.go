// SPDX-License-Identifier: Apache-2.0

// Package client is a small NFSv4.1 and 4.2 client (RFC 8881, RFC 7862, RFC 8276)
// for tests, tools and benchmarks. Applications mount with their kernel.
//
// A Client has one session on one TCP connection. Requests run concurrently, one
// per slot. When the connection ends, the client dials again, and repeats the
// requests without an answer, with the same slot and sequence number. The server
// answers a request that it has executed from its slot, so nothing is done twice.
//
// # Rules
//
//   - client-1. A slot's sequence number is used for one request only, until its
//     answer came, also if the caller does not wait for it any longer. What the
//     request refers to is copied before the caller gets its memory back.
//   - client-2. A request without Compound.Cache may be executed twice: the server
//     need not keep its reply. If the reply is lost, the request is sent with a new
//     sequence number.
//   - client-3. Do sends a COMPOUND once and returns the server's answer. The methods
//     that are named after file operations ask again after NFS4ERR_DELAY and
//     NFS4ERR_GRACE, with a new sequence number, until their context ends.
//   - client-4. Every error of the server is an *Error that wraps an xdr.Status, as
//     in errors.Is(err, xdr.NFS4ERR_NOENT).
//
// # What is not there
//
// A backchannel (so no delegations), caching, RPCSEC_GSS, RPC over several
// connections, renewing the lease in the background (Renew does it on demand),
// and recovery from a lost session: NewSession begins another one.
package client
