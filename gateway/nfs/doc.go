// SPDX-License-Identifier: Apache-2.0

// Package nfs serves volumes over NFSv4.1 and NFSv4.2 (RFC 8881, RFC 7862, RFC
// 8276) on TCP, for the Linux kernel client first.
//
// A connection's reader takes one RPC record after the other; each runs on its
// own goroutine as a call: a COMPOUND whose operations are decoded in place and
// executed one by one. ops.go is the table of operations, op_*.go hold them by
// groups, attrs.go the attributes, status.go maps the outcomes of volumes.
// Package state remembers clients, sessions, opens and locks.
//
// # Name space
//
// The root that every client sees is not a volume: it lists the volumes to which
// the client's address is admitted, each with its own fsid. Whether it is
// admitted is asked anew with each file handle that arrives, so that revoking
// works at once; only CLOSE is let through, to say what was revoked. A file handle is 37 bytes:
//
//	version 1 (1) ‖ volume id (16) ‖ snapshot, 0 (4) ‖ inode (8) ‖ generation (8)
//
// and the root's has the volume id 0 and inode 1.
//
// # Rules, with the numbers of the rules that keep data
//
//   - Rule 20: handles and cookies are the volume's own, the same at every gateway.
//   - Rule 22, exactly once: sessions are persistent. Every change carries the
//     OpID (client id ‖ session id ‖ slot, sequence number, index of the operation
//     in the COMPOUND, plus 1<<16 for an operation's second change). While the
//     server runs, a repeat is answered from the slot. After a restart a slot is
//     unknown: the first request on it is executed whatever its sequence
//     number, and the volume returns what it recorded if it was executed before.
//     If the outcome of a change is not known, the connection is closed without
//     an answer, the slot is unknown again, and the client's repeat tells.
//   - Rule 24: write verifiers are the volume's.
//   - Rule 27: server owner and scope are configured, client ids are random.
//
// Operations are not cancelled when their connection ends, because the client
// repeats them on the next; they are when the server shuts down.
//
// # Grace, as the Linux client needs it
//
// After a restart the sessions of old are good, and SEQUENCE flags
// SEQ4_STATUS_RESTART_RECLAIM_NEEDED until RECLAIM_COMPLETE. Linux
// (nfs41_handle_server_reboot) then drains its session, confirms its client id
// with EXCHANGE_ID, makes a further session and reclaims. Therefore:
//
//   - Draining waits for all requests, so none may wait for the end of grace:
//     what has to wait is answered NFS4ERR_GRACE or NFS4ERR_DELAY, upon which Linux
//     frees the slot and asks again with a new sequence number.
//   - READ, WRITE, SETATTR, LOCKU and CLOSE with a stateid from before the
//     restart get NFS4ERR_DELAY while the client may reclaim: Linux asks again,
//     with the stateid that it reclaimed. NFS4ERR_BAD_STATEID would make it mark the
//     open as lost, NFS4ERR_STALE_STATEID check a lease that is in order. Once
//     the client cannot reclaim any more, it is NFS4ERR_BAD_STATEID.
//   - Reclaiming what the client holds already succeeds at any time after a restart. A reply that
//     was overtaken can still carry the flag and begin a second round of reclaims
//     after RECLAIM_COMPLETE; refusing it would make Linux give its locks up.
//   - status flags are written into a reply when it is complete, not when it
//     begins, which makes such replies rare.
//
// An OPEN that creates must not fail with NFS4ERR_EXIST because it succeeded
// before the restart. Linux uses GUARDED4 for O_EXCL in persistent sessions,
// repeats the same slot and sequence number after the restart, and would ask
// with a new one after NFS4ERR_GRACE. So on an unknown slot an OPEN that creates is
// executed also in grace. If it was executed before, its recorded outcome is
// returned. If it made the file, only an open with a deny mode that somebody made
// between that and the restart could be in the way, and Linux makes none. If the file was there and the mode is
// GUARDED4, NFS4ERR_EXIST is true. Else (UNCHECKED4, or an equal verifier) the
// answer is NFS4ERR_GRACE, which a retry with a new sequence number gets over,
// and nothing was truncated: truncating waits until the file can be opened. On a
// slot that is not unknown the sequence number is new, nothing was created, and
// the answer is NFS4ERR_GRACE.
//
// # Lease expiry
//
// A silent client loses its opens and locks, durably first, but keeps its
// sessions for a while, so that what it repeats after a long partition is still
// recognized (rule 22). SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED tells it; Linux then
// replaces its client id twice (an impossible verifier, then its own), reopens
// what it can, and fails I/O under locks that it lost.
//
// # Revoked locks
//
// A gateway that was cut off for long can find that a home does not keep what its
// clients have locked. RevokeLocks takes the lock-owner's stateid away: uses of it
// are answered NFS4ERR_ADMIN_REVOKED until the client frees it or closes the file.
// Linux then tests the file's stateids (nfs41_check_expired_locks), frees that one, and
// fails I/O of whoever held the lock with EIO; its other opens and locks go on.
// SEQUENCE does not tell: see state.Table.StatusFlags.
//
// A lock-owner whose former locks on a file are still being given up (the volume
// could not, when the file was closed or the lease expired) gets NFS4ERR_DELAY for a
// new one: giving up takes the whole file, and would take the new lock with it.
//
// # What one client can take
//
// Clients and connections of one address, sessions, opens, locks and ranges of one
// client, and the bytes of one connection's requests and replies are bounded
// (op_session.go, conn.go, state/client.go). A connection on which a reply waits for
// a whole lease to be read is closed. Who is admitted to nothing cannot replace a
// client of another address by using its name.
//
// # What is not there
//
// Delegations, pNFS, ACLs, named attributes, RPCSEC_GSS, server-side copy and the
// backchannel; their operations are answered NFS4ERR_NOTSUPP. NFSv3 and NFSv4.0
// are refused with the version mismatch of their protocol.
package nfs
