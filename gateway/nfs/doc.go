// SPDX-License-Identifier: Apache-2.0

// Package nfs serves volumes over NFSv4.1 and NFSv4.2 (RFC 8881, RFC 7862, RFC
// 8276) on TCP, for the Linux kernel client first.
//
// A connection's reader takes one RPC record after the other. Each record becomes a
// call on a goroutine of its own: a COMPOUND, whose operations are decoded in place
// and executed one by one. ops.go is the table of operations, op_*.go implement them
// in groups, attrs.go has the attributes, and status.go maps the outcomes of volumes
// to status codes. Package state remembers clients, sessions, opens and locks.
//
// # Name space
//
// The root that every client sees is not a volume. It lists the volumes that admit
// the client's address, each with its own fsid. Each file handle that arrives is
// checked for admission again, so that revoking works at once. Only CLOSE passes
// without it, because its answer says what was revoked. A file handle is 37 bytes:
//
//	version 1 (1) ‖ volume id (16) ‖ snapshot, 0 (4) ‖ inode (8) ‖ generation (8)
//
// and the root's has the volume id 0 and inode 1.
//
// # Rules
//
// Each is how this package keeps the rule of docs/concepts.md that it names.
//
//   - nfs-1, for protocol-20. Handles and cookies are the volume's own. So they are
//     the same at every gateway.
//   - nfs-2, for protocol-22. Sessions are persistent (RFC 8881 section 2.10.6.5).
//     Every change carries an OpID: client id ‖ session id ‖ slot, sequence number,
//     index of the operation in the COMPOUND, plus 1<<16 for an operation's second
//     change. While the server runs, the slot answers repeats. After a restart a
//     slot is unknown (state-3). It executes its first request whatever the sequence
//     number, and the volume returns the recorded result of a change that was
//     executed before. If the outcome of a change is not known, the server closes
//     the connection without an answer, and the slot is unknown again. The client
//     repeats the request, and so finds the outcome.
//   - nfs-3, for protocol-24. Write verifiers are the volume's.
//   - nfs-4, for protocol-27. Server owner and scope come from the configuration.
//     Client ids are random.
//   - nfs-5. The end of a connection does not cancel its operations, because the
//     client repeats them on the next connection. Shutdown cancels them.
//
// # Grace, as the Linux client needs it
//
// After a restart the former sessions are good, and SEQUENCE has the flag
// SEQ4_STATUS_RESTART_RECLAIM_NEEDED until RECLAIM_COMPLETE. Linux
// (nfs41_handle_server_reboot) then drains its session, confirms its client id with
// EXCHANGE_ID, makes a further session and reclaims. Therefore:
//
//   - nfs-6. No request waits for the end of grace, because draining waits for all
//     requests. What has to wait is answered NFS4ERR_GRACE or NFS4ERR_DELAY. Linux
//     then frees the slot, and asks again with a new sequence number.
//   - nfs-7. READ, WRITE, SETATTR, LOCKU and CLOSE with a stateid from before the
//     restart are answered NFS4ERR_DELAY while the client may reclaim. Linux asks
//     again, with the stateid that it got from reclaiming. With NFS4ERR_BAD_STATEID
//     it would mark the open as lost, and with NFS4ERR_STALE_STATEID it would check
//     a lease that is in order. When the client may not reclaim any more, the answer
//     is NFS4ERR_BAD_STATEID.
//   - nfs-8. After a restart, a client may always reclaim what it already has. A
//     reply that arrives late can still carry the flag, and make Linux reclaim a
//     second time, after RECLAIM_COMPLETE. Refusing that would make it give its
//     locks up.
//   - nfs-9. Status flags are written into a reply when it is complete, not when it
//     begins. That makes such late flags rare.
//
// An OPEN that creates must not fail with NFS4ERR_EXIST because it succeeded before
// the restart. Linux uses GUARDED4 for O_EXCL in persistent sessions. After the
// restart it repeats the same slot and sequence number; after NFS4ERR_GRACE it would
// use a new one. So on an unknown slot an OPEN that creates is executed also in
// grace:
//
//   - If it was executed before, the volume returns its recorded outcome.
//   - If it makes the file now, only an open with a deny mode could forbid it, made
//     by another client between the creation and the restart. Linux makes none.
//   - If the file existed and the mode is GUARDED4, NFS4ERR_EXIST is right.
//   - Else (UNCHECKED4, or an equal verifier) the answer is NFS4ERR_GRACE. A retry
//     with a new sequence number succeeds after grace. Nothing was truncated:
//     truncating waits until the file can be opened.
//
// On a slot that is not unknown the sequence number is new, nothing was created, and
// the answer is NFS4ERR_GRACE.
//
// # Lease expiry
//
// A silent client loses its opens and locks; its record says so first. It keeps its
// sessions for a while, so that repeats of its requests are recognized even after it
// was cut off for long (protocol-22). SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED informs
// it. Linux then replaces its client id twice (an impossible verifier, then its own),
// opens again what it can, and fails I/O under locks that it lost.
//
// # Revoked locks
//
// A gateway that was cut off for long can find that a home does not have the locks of
// its clients any more. RevokeLocks then takes the lock-owner's stateid away. Uses of
// it are answered NFS4ERR_ADMIN_REVOKED until the client frees it or closes the file.
// Linux tests the file's stateids (nfs41_check_expired_locks), frees that one, and
// fails with EIO the I/O of the process that had the lock. Its other opens and locks
// go on. SEQUENCE has no flag for it: see state.Table.StatusFlags.
//
// If the volume could not release a lock-owner's locks on a file when the file was
// closed or the lease expired, the server tries again. Until that succeeds, a new
// lock of the owner is answered NFS4ERR_DELAY: the release covers the whole file, and
// would take the new lock with it (state-6).
//
// # What one client can take
//
// These are bounded: clients and connections of one address; sessions, opens, locks
// and ranges of one client; and of all together connections, clients, sessions, states,
// and the memory of requests and replies under way (bounds.go, state/bounds.go). Of
// what all have together, an address gets a fair share (package fair).
//
//   - nfs-10. A request for which there is no memory waits for some, while nothing more is
//     read from its connection. Before that costs a lease, its beginning is read, the rest
//     is thrown away, SEQUENCE is executed, and the operation after it is answered
//     NFS4ERR_DELAY. So leases are renewed whatever a client's volumes do.
//   - nfs-11. A connection is closed if its client does not read a reply for a whole lease,
//     if half of a request came and no more, or if it says nothing and no client with a
//     lease uses it.
//   - nfs-12. A client that no volume admits is refused before anything is written or
//     remembered for it (state-9). It has few connections, and of its requests
//     only the beginning is kept.
//
// # What one volume can take
//
// A Linux client has one session for all volumes of a server, and a volume whose home
// is away, or that lacks members, answers nothing. So no volume can hold all slots of a
// session (package share): what comes above its share is answered NFS4ERR_DELAY at
// PUTFH or LOOKUP, before anything is executed. When slots become scarce, operations
// that wait for longer than a second are asked to give up. They are answered
// NFS4ERR_DELAY if they surely changed nothing (volume.Request.Yield). So are those of a
// client whose lease is over. A quarter of a lease later, what still runs is ended as for
// a client that is expelled (volume.Request.Revoked), and the client loses its state when
// it has ended: no later, however long a volume waits, and no sooner, so that nothing of
// it comes after what others do under its former locks. A listing of the
// pseudo root waits a second for volumes that do not answer, and lists them with
// rdattr_error.
//
// # What is not there
//
// Delegations, pNFS, ACLs, named attributes, RPCSEC_GSS, server-side copy and the
// backchannel; their operations are answered NFS4ERR_NOTSUPP. NFSv3 and NFSv4.0
// are refused with the version mismatch of their protocol.
package nfs
