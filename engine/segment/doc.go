// SPDX-License-Identifier: Apache-2.0

// Package segment is the byte format of a volume's log: blocks, records, and the segments that
// contain them. It does no I/O. Its only state is the counter of a [Sealer]. Package engine/log
// puts these bytes on disks.
//
// # Segment
//
// A segment is one header frame followed by record frames. It has at most [MaxSize] bytes, and is
// immutable once closed. Its object name is
//
//	<volume uuid>/<sequence, 16 hex digits>-<BLAKE3-256 of all its bytes, 64 hex digits>
//
// All integers are big endian. Checksums are CRC-32C (Castagnoli, RFC 3720 B.4). They let a host
// that has no key find damage. The GCM tags protect against a host that forges checksums.
//
// # Header frame, 128 bytes, plain
//
//	 0   8  magic "WEIRSEG" 0x01 (format 1)
//	 8   4  number of the data key, from 0; releases that know one key per volume refuse others
//	12  16  volume
//	28   8  sequence, from 1
//	36   8  epoch of every record in the segment
//	44  32  salt, random
//	76   8  predecessor's sequence ┐
//	84   8  predecessor's length   │ all zero in the first segment
//	92  32  predecessor's BLAKE3   ┘
//	124  4  CRC-32C of bytes 0..124
//
// # Record frame
//
//	 0   4  length of the frame, these four bytes included, at most MaxFrame
//	 4   4  CRC-32C of bytes 0..4 and 8..length
//	 8   1  kind: 1 = record
//	 9   8  epoch, equal to the header's
//	17   8  first nonce counter
//	25   4  length of the sealed meta
//	29   2  n, number of blocks
//	31  4n  lengths of the sealed blocks
//	        sealed blocks, counters first, first+1, …
//	        sealed meta, counter first+n
//
// A frame whose first four bytes are "WEIR" is a header: as a length they would exceed MaxFrame. So
// a stream of frames may cross from one segment to the next.
//
// # Sealing (protocol-16)
//
//	segment key = HKDF-SHA256(secret = data key, salt = header's salt,
//	              info = "weir segment 1" ‖ volume)            RFC 5869
//	sealed      = AES-256-GCM(key, nonce = 0⁴ ‖ counter, data)  NIST SP 800-38D; tag last
//	block's associated data = 'b' ‖ counter ‖ volume ‖ salt
//	meta's associated data  = 'm' ‖ counter ‖ header frame ‖ offset of the record frame ‖
//	                          record frame from byte 8 up to the first sealed byte
//
// The counter of a segment starts at the salt's first five bytes followed by three zero bytes.
// Sealing a block or a meta consumes one number, whether or not the bytes reach a disk. Blocks may
// be sealed before their record has its place, so numbers need not ascend along a segment.
//
// The start is random so that a reference to a truncated block fails in the segment that took its
// sequence. Secrecy does not depend on that. Only a Sealer seals. It makes its own fresh salt,
// so no process can seal under a salt that it did not make. Meta's associated data ties a record to
// its place, so that frames that were moved, dropped or put under another header do not open.
//
// # Block, before sealing
//
//	0  1  codec: 0 = as is, 1 = zstd (RFC 8878)
//	1  …  at most MaxBlock bytes once unpacked
//
// # Meta, before sealing
//
// Everything that comes from users is in sealed parts (protocol-18).
//
//	version byte 1, then
//	time varint · slot bytes · sequence uvarint · index uvarint · result bytes ·
//	n uvarint, n × touched inode uvarint ·
//	n uvarint, n × raw length of block uvarint ·
//	n uvarint, n × op
//	op: kind byte · key bytes · { Set: value bytes | Delete: nothing |
//	    DeleteRange: end bytes | SetBlock: value bytes · index of the block uvarint }
//	bytes: length uvarint, then that many bytes
//
// # Block reference, 28 bytes, in metadata values
//
//	0  8 sequence · 8 8 offset · 16 4 sealed length · 20 8 counter
//
// # Rules
//
// These are the rules of docs/concepts.md that this package keeps.
//
//   - protocol-16. Sealing, as above.
//   - protocol-18. What is sealed, as above.
//   - protocol-19. What does not verify or parse is a [CorruptError], never zeros and never a
//     guess.
package segment
