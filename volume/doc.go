// SPDX-License-Identifier: Apache-2.0

// Package volume is the page from which Weir is learned: what a file-system
// volume is, what can be asked of it, and every outcome.
//
// A volume is a POSIX tree of inodes under one root. It is implemented three
// times: memvol (in memory, the reference), engine (over a log, at the
// volume's home) and the gateway's router (which sends changes to the home and
// answers reads from the local follower). All three pass volumetest. The NFS
// server knows only this package, and this package knows no protocol.
//
// # Rules that every implementation keeps
//
// They are rules of docs/concepts.md, with their numbers there.
//
//   - protocol-2. A method that changes the volume returns nil only when the
//     change is committed. The single exception is Write with stable = false: a
//     later Commit that returns the same Verifier commits its data. A method that
//     reads never reveals a namespace change that is not committed.
//   - protocol-19. Data that cannot be read is ErrIO, never zeros. A hole is only
//     what was recorded as a hole.
//   - protocol-20. A Handle means the same inode at every gateway for ever. Inode
//     numbers are never used again.
//   - protocol-21. Attr.Change differs whenever content or attributes differ.
//   - protocol-22. A change that carries an OpID is executed once. A repeat returns
//     the recorded result of the first execution, also after a restart or a
//     takeover.
//   - protocol-24. The Verifier changes whenever unstable data may have been lost.
//
// # Outcomes
//
// Every method returns nil or an error that wraps exactly one of the Err values
// of this package; errors.Is tells which. A method blocks while the volume moves
// from one home to another. It returns ErrDelay only if it surely changed nothing.
// If ctx ends while the outcome of a change is not known, the error wraps
// ErrUnknown. Then only a repeat with the same OpID can find the outcome, and a
// caller that cannot repeat must not answer its client.
//
// If several outcomes apply, a method returns the first of this list, so that all
// implementations answer alike. They share the functions of permits.go, setattr.go
// and create.go for the same reason.
//
//  1. What is wrong with the arguments alone: ErrInvalid, ErrNameTooLong, ErrTooBig.
//  2. ErrStale for a handle, in the order of the arguments.
//  3. The wrong type of a handle's inode: ErrNotDir, ErrIsDir, ErrInvalid.
//  4. ErrReadOnly, unless Create would only return an existing file.
//  5. ErrAccess, because the caller may not search a directory.
//  6. The presence of names: ErrNotExist, ErrExist. A removed directory that Hold
//     keeps has no names and takes none: ErrNotExist.
//  7. What the caller may not do: ErrAccess and ErrPerm, by the shared functions.
//     Then the remaining types: ErrIsDir, ErrNotDir. Then ErrNotEmpty and
//     ErrTooManyLinks.
//  8. ErrNoSpace.
//
// # Memory and locking
//
// Every method may be called from any goroutine. Byte slices and strings passed
// in belong to the caller again when the method returns. Slices returned belong
// to the caller.
package volume
