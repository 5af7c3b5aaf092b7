// SPDX-License-Identifier: Apache-2.0

// Package pack is the byte format of packs: objects with the live blocks of segments that are
// mostly dead. Blocks are moved as they are, sealed, so whoever moves them needs no key; unless
// they are cut (see below). The package counts what is live, chooses what is packed, builds packs
// and reads them. It has no disk, no network and no clock.
//
// A block's address stays what it was: sequence, offset and length in the segment that it was
// written in. A block's seal does not name its place (protocol-16), but the segment's salt. So the
// segment table of the metadata keeps the entry of each segment of which a pack has blocks, also
// when the segment is deleted.
//
// Every copy that builds a pack from the same blocks of the same segments makes the same bytes. So
// the home commits the name of a pack, and no payload crosses a link (ADR 54, ADR 56).
//
// # Name
//
//	<volume uuid>/p/<BLAKE3-256 of all bytes of the pack, 64 hex digits>
//
// It lies in the folder of the volume's segments, so that whoever deletes all of a volume deletes
// it too. Whoever lists that folder for segments passes over it, as segment.ParseName refuses it.
//
// # Pack
//
// Integers of a fixed size are big endian. Checksums are CRC-32C (Castagnoli, RFC 3720 B.4). A
// uvarint is that of encoding/binary, in the fewest bytes.
//
//	   0   8  magic "WEIRPAK" 0x01 (format 1), or 0x02: blocks are cut
//	   8  16  volume
//	  24   8  length of the whole pack
//	  32   4  s, number of segments, 1 to MaxSegments
//	  36   4  n, number of blocks, 1 to MaxBlocks
//	  40   4  x, length of the index, at most 4 MiB
//	  44   4  CRC-32C of bytes 0..44
//	  48   x  index
//	48+x   4  CRC-32C of bytes 48..48+x
//	52+x   …  n × block
//
//	index: s × segment
//	  segment: sequence uvarint · BLAKE3 of the segment, 32 bytes · b uvarint · b × place
//	  place: gap uvarint · length uvarint
//
//	block: its sealed bytes · CRC-32C of sequence u64, offset u64, length u32 and these bytes
//
// A gap is the number of bytes between the end of the block before, in the old segment, and this
// one. Before a segment's first block it is what follows the header. So blocks of one segment are
// in the order of their offsets, and do not overlap. Segments are in the order in which the plan
// lists them, each once, with one block at least. The blocks follow in the order of the index, so
// the places of blocks in the pack need not be listed.
//
// A block's checksum covers its address, so bytes of another block are not taken for it.
//
// # Cut blocks
//
// Of a block that is mostly dead a pack may have some ranges of its plaintext only, compressed and
// sealed anew (ADR 64). Then its magic ends in 2, the index begins with key u32 · salt 32 bytes,
// and each place goes on:
//
//	place: gap uvarint · length uvarint · n uvarint, number of ranges; 0: the block is whole
//	  if n > 0: counter uvarint · raw uvarint · size uvarint · n × (gap uvarint · length uvarint)
//
// One range that is all of the block says that it is whole, and sealed anew with another data key
// (ADR 67). Its text stays as it was compressed, so size is its length in the segment.
//
// raw is how many bytes the whole block has once unpacked, and size how many sealed bytes the pack
// has of it, with which the checksum is made. How they are sealed is in Sealing and docs/format.md.
//
// # What a host learns
//
// All but the index is ciphertext, which the host had before. The index tells which blocks of the
// segments were live when the pack was planned, and the checksums tell nothing that the ciphertext
// does not. A host that has no key can damage or forge a pack. A forged block does not open, and a
// forged pack has another name than the one that the log has.
//
// # Rules
//
// Rules named protocol-N are those of docs/concepts.md.
//
//   - pack-1. The bytes of a pack follow from the volume and the listed blocks of the listed
//     segments, in their order. No compressor, no randomness and no time is in them; but for blocks
//     that are cut, which depend on the compressor and on the data key.
//   - pack-2. Build verifies the hash of each source, whole, and that each listed block is a block
//     of it. If anything is wrong, it returns an error, and what it wrote is no pack. Segments are
//     deleted because a pack has their blocks, so a mistake could not be undone.
//   - pack-3. All live blocks of a segment are in one object: the segment itself, or one pack. So
//     what is known of a segment's sequence says where its blocks are.
//   - pack-4. A block counts once, however many extents refer to it.
//   - pack-5. The key of cut blocks is derived from all that is sealed with it, as it was
//     compressed. So no key and nonce is used for two texts (protocol-16).
//   - pack-6. A byte that was cut away is an error, never zeros: Slice alone reads what is cut.
//   - protocol-19. What does not verify or parse is an [ObjectError] that wraps [ErrCorrupt], never
//     zeros and never other bytes.
package pack
