// SPDX-License-Identifier: Apache-2.0

// Package cryptfs encrypts every file of a Pebble file system. On a pool, names lie only inside
// Pebble's encrypted files (protocol-18).
//
// A file is a header of 32 bytes and the content. The content is encrypted with AES-256 in counter
// mode (NIST SP 800-38A, section 6.5), so that any range of it can be read alone:
//
//	0   8  magic "WEIRPBL1"
//	8  16  random initial counter block, one for each file ever created
//	24  8  zero
//	32     content; byte i is encrypted with counter block + i/16
//
// The key is HKDF-SHA256 of the volume's data key (RFC 5869) with the info "weir pebble". Names of
// files, which Pebble chooses, are not encrypted.
//
// Counter mode hides content and does not protect it from changes. Pebble's own checksums and those
// of package meta detect damage.
//
// # Rules
//
//   - cryptfs-1. No byte of a key stream is used for two contents. So a file is only appended to.
//     Opening a file for update is refused, and reusing one makes a new file. A machine that runs
//     on twice from one picture of its memory breaks this for the files that were open in it.
//   - cryptfs-2. A file shorter than its header, as a crash may leave it, is an empty file.
package cryptfs
