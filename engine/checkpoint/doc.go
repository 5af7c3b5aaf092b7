// SPDX-License-Identifier: Apache-2.0

// Package checkpoint is the byte format of checkpoints: the metadata of a volume at one position of
// its log. A copy that starts with nothing reads a checkpoint and replays only the log after it.
// The package reads and writes objects through a small port. It has no disk, no network and no
// clock.
//
// A checkpoint is sorted pairs of keys and values. They are cut into chunks, and a manifest lists
// the chunks. The name of a chunk is a hash of its content, so two checkpoints share what is equal
// in them. Every copy that has the same pairs and the same data key makes the same chunks, the same
// names and the same hash of the manifest, on every machine and in every release (ADR 42).
//
// # Names of objects
//
//	<volume uuid>/c/<content hash, 64 hex digits>    chunk
//	<volume uuid>/m/<content hash, 64 hex digits>    manifest
//
// They lie in the folder of the volume's segments, so that whoever deletes all of a volume deletes
// them too. Whoever lists that folder for segments looks for names of segments, and passes over
// these, which segment.ParseName refuses.
//
// # Object
//
// All integers are big endian.
//
//	      0    8  magic "WEIRCKP" 0x01 (format 1)
//	      8    4  kind: "chnk" or "mnfs"
//	     12    4  number of the data key
//	     16   16  volume
//	     32   32  content hash, as in the name
//	     64    4  n, number of chunks that the object refers to; 0 in a chunk
//	     68  32n  content hashes of these chunks, in order
//	 68+32n   32  salt
//	100+32n    …  sealed content, tag last
//	 end-32   32  BLAKE3-256 of all bytes before
//
// What comes before the sealed content is plain, and is the associated data of the sealing. The
// last hash lets a host without keys find damage ([Check]). It depends on the compressor, so no
// name and no other object has it.
//
// # Sealing
//
// The keys are HKDF-SHA256 (RFC 5869) of the data key, without salt but for the last one:
//
//	border key    info = "weir checkpoint 1 border"   ‖ volume
//	chunk key     info = "weir checkpoint 1 chunk"    ‖ volume
//	manifest key  info = "weir checkpoint 1 manifest" ‖ volume
//	salt key      info = "weir checkpoint 1 salt"     ‖ volume
//	object key    info = "weir checkpoint 1 object"   ‖ volume, salt = the object's salt
//
//	content hash  = keyed BLAKE3(chunk key or manifest key, bytes 64 to 68+32n ‖ content)
//	salt          = keyed BLAKE3(salt key, bytes 0 to 68+32n ‖ packed content)
//	sealed        = AES-256-GCM(object key, nonce = 0¹², packed content)   NIST SP 800-38D
//
// The salt is a hash of everything that is sealed and of its associated data. So one key seals one
// message, whatever compressor packed it. To seal the same again gives the same bytes.
//
// The packed content is a codec byte, 0 for as is or 1 for zstd (RFC 8878), and the bytes.
//
// # Content of a chunk
//
//	version byte 1, then pairs:
//	shared uvarint · rest uvarint · value's length uvarint · rest of the key · value
//
// shared is the length of the longest prefix that the key has in common with the key before it in
// the chunk. It is 0 in the first pair.
//
// A chunk ends after a pair if the chunk has 64 KiB or more, and
//
//	first 8 bytes of keyed BLAKE3(border key, key) < size × 2⁶⁴ / 2¹⁸
//
// where size is the length of key and value, rounded up to a power of two. It ends before a pair
// with which it would have more than 1 MiB, unless it is empty. So a value that changes moves no
// border while its size stays similar, and the number of pairs in a chunk follows their sizes.
//
// # Content of a manifest
//
//	version byte 1 · sequence uvarint · offset uvarint · epoch uvarint ·
//	n uvarint, n × chunk
//	chunk: bytes of content uvarint · pairs uvarint · length of key uvarint · first key
//
// Of a checkpoint that is a change of an earlier one (ADR 58), the version is 2, and there follow:
//
//	pairs of the whole checkpoint uvarint · n uvarint, n × chunk of changes
//
// Values in a chunk of changes begin with a byte: 1, the key has the value that follows; 0, the key
// is gone. Where these chunks have a key, that of the other chunks does not count. They are cut
// where the keys of the earlier checkpoint's chunks begin: the bytes of changes between two of
// these, each with its key and value, are at most an eighth of the bytes of the chunk. Where there
// are more, the pairs are cut anew.
//
// The hashes of the chunks are in the plain part, so that a host without keys can copy a
// checkpoint.
//
// # Rules
//
// Rules named protocol-N are those of docs/concepts.md.
//
//   - checkpoint-1. The names and the hash of a manifest depend on pairs, position, epoch, volume
//     and data key only. They do not depend on the compressor, on time, or on what a store has.
//   - checkpoint-2. A manifest is put after all its chunks. What an interrupted Write leaves is
//     chunks that no manifest names.
//   - checkpoint-3. No pair of a chunk is given to anybody before the whole chunk is verified: its
//     tag, its content hash and the order of its keys (protocol-19).
//   - protocol-16. One key and nonce never seals two messages, as above.
//   - protocol-18. Keys, values and the position are in sealed parts.
package checkpoint
