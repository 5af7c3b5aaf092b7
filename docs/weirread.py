#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a Weir volume from the files of a store, with the volume's data keys and nothing of Weir.

It is for rescue, and for whoever wants to see how docs/format.md is read. It needs the packages
python3-cryptography and python3-zstandard of Debian. It verifies all that it shows. What does not
verify is an error that names the object. Zeros are written only where the volume has a hole.
"""
import argparse, hashlib, hmac, itertools, json, os, re, stat, struct, sys
from array import array
from collections import namedtuple

try:
    import zstandard
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError as missing:
    sys.exit(f"weirread: {missing}: install python3-cryptography and python3-zstandard")

MAX_BLOCK, MAX_FRAME, TAG, HEADER, REF, COUNT_BITS, FORMAT = 64 << 10, 16 << 20, 16, 128, 28, 24, 11
PACK_HEAD = 48


class Damaged(Exception):
    """An object that is missing, or that does not verify."""

    def __init__(self, name, why):
        super().__init__(f"{name}: {why}")


# BLAKE3 (https://github.com/BLAKE3-team/BLAKE3-specs). Many chunks are hashed at once: a word of all
# of them is one large number with 64 bits for each chunk, of which the upper 32 are zero.

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
MIXES = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
START, END, PARENT, ROOT, KEYED, LANES = 1, 2, 4, 8, 16, 4096


def compress(cv, m, counter, length, flags, n):
    ones = int.from_bytes(b"\1\0\0\0\0\0\0\0" * n, "little")
    mask = ones * 0xFFFFFFFF
    v = list(cv) + [x * ones for x in IV[:4]] + [counter, 0, length * ones, flags * ones]
    for turn in range(7):
        for i, (a, b, c, d) in enumerate(MIXES):
            for word, r, s in ((m[2 * i], 16, 12), (m[2 * i + 1], 8, 7)):
                v[a] = (v[a] + v[b] + word) & mask
                x = v[d] ^ v[a]
                v[d] = (x >> r | x << 32 - r) & mask
                v[c] = (v[c] + v[d]) & mask
                x = v[b] ^ v[c]
                v[b] = (x >> s | x << 32 - s) & mask
        m = [m[p] for p in PERMUTATION]
    return [v[i] ^ v[i + 8] for i in range(8)]


def words(data):
    w = array("I", data)
    if sys.byteorder == "big":
        w.byteswap()
    return w


def lanes(values):
    """One number of the values, and back."""
    q = array("Q", values)
    return int.from_bytes(q.tobytes() if sys.byteorder == "little" else q.byteswap() or q.tobytes(), "little")


def unlanes(number, n):
    q = array("Q", number.to_bytes(8 * n, "little"))
    if sys.byteorder == "big":
        q.byteswap()
    return q


def blake3_here(data, key=None):
    start, base = (words(key), KEYED) if key else (IV, 0)
    full = max(0, (len(data) - 1) // 1024)  # chunks before the last
    out = [array("Q") for _ in range(8)]
    for first in range(0, full, LANES):
        n = min(LANES, full - first)
        w = words(data[1024 * first:1024 * (first + n)])
        ones = lanes([1] * n)
        cv = [x * ones for x in start]
        for block in range(16):
            m = [lanes(w[16 * block + i::256]) for i in range(16)]
            cv = compress(cv, m, lanes(range(first, first + n)), 64, base | (START if block == 0 else 0) | (END if block == 15 else 0), n)
        for have, more in zip(out, cv):
            have.extend(unlanes(more, n))
    last = data[1024 * full:]
    blocks = max(1, -(-len(last) // 64))
    cv = list(start)
    for i in range(blocks):
        part = last[64 * i:64 * i + 64]
        flags = base | (START if i == 0 else 0) | (END | (0 if full else ROOT) if i == blocks - 1 else 0)
        cv = compress(cv, list(words(part.ljust(64, b"\0"))), full, len(part), flags, 1)
    for have, more in zip(out, cv):
        have.append(more)
    while len(out[0]) > 1:
        pairs, odd = divmod(len(out[0]), 2)
        m = [lanes(w[side:2 * pairs:2]) for side in (0, 1) for w in out]
        ones = lanes([1] * pairs)
        cv = compress([x * ones for x in start], m, 0, 64, base | PARENT | (ROOT if pairs + odd == 1 else 0), pairs)
        out = [unlanes(more, pairs) + w[2 * pairs:] for more, w in zip(cv, out)]
    return struct.pack("<8I", *(w[0] for w in out))


try:
    import blake3 as fast

    def blake3(data, key=None):
        return fast.blake3(data, key=key).digest()
except ImportError:
    blake3 = blake3_here


def hkdf(secret, salt, info):
    """32 bytes of HKDF-SHA256 (RFC 5869)."""
    prk = hmac.new(salt or bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(prk, info + b"\1", hashlib.sha256).digest()


CRC = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC.append(byte)


def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c = c >> 8 ^ CRC[(c ^ b) & 255]
    return c ^ 0xFFFFFFFF


class Fields:
    """Takes fields from the front of bytes."""

    def __init__(self, name, what, data):
        self.name, self.what, self.b, self.at = name, what, data, 0

    def fail(self, why):
        raise Damaged(self.name, f"{self.what}: {why}")

    def take(self, n):
        if n > len(self.b) - self.at:
            self.fail("it is too short")
        self.at += n
        return self.b[self.at - n:self.at]

    def rest(self):
        return self.take(len(self.b) - self.at)

    def numbers(self, form):
        """Big endian: B u8, I u32, Q u64, q signed."""
        return struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))

    def uvarint(self):
        value = shift = 0
        while True:
            b = self.take(1)[0]
            value |= (b & 127) << shift
            if b < 128:
                break
            shift += 7
        if value >> 64 or shift > 63:
            self.fail("a number is too large")
        return value

    def varint(self):
        u = self.uvarint()
        return u >> 1 ^ -(u & 1)

    def bytes(self):
        return self.take(self.uvarint())

    def time(self):
        return self.numbers("qI")

    def done(self):
        if self.at != len(self.b):
            self.fail(f"{len(self.b) - self.at} bytes are left over")


def unpack(name, what, packed, most):
    """Codec byte, then bytes as they are or zstd."""
    if not packed or packed[0] > 1:
        raise Damaged(name, f"{what}: codec {packed[:1].hex()} is not known")
    raw = packed[1:]
    if packed[0] == 1:
        try:
            raw = zstandard.ZstdDecompressor().decompress(raw, max_output_size=most)
        except zstandard.ZstdError as e:
            raise Damaged(name, f"{what}: {e}")
    if len(raw) > most:
        raise Damaged(name, f"{what}: it has {len(raw)} bytes, at most {most} are possible")
    return raw


Ref = namedtuple("Ref", "seq off len counter")
Op = namedtuple("Op", "kind key value end")
SET, DELETE, DELETE_RANGE, SET_BLOCK = 1, 2, 3, 4


class Segment:
    """A segment in the store. Opening one reads its header only."""

    def __init__(self, store, name):
        self.store, self.name = store, name
        self.size = store.size(name)
        seq, digest = re.search(r"/([0-9a-f]{16})-([0-9a-f]{64})$", name).groups()
        self.hash = bytes.fromhex(digest)
        self.header = store.read(name, 0, HEADER)
        f = Fields(name, "header", self.header)
        magic = f.take(8)
        self.key, = f.numbers("I")
        self.volume = f.take(16)
        self.seq, self.epoch = f.numbers("QQ")
        self.salt = f.take(32)
        self.prev_seq, self.prev_len = f.numbers("QQ")
        self.prev_hash = f.take(32)
        crc, = f.numbers("I")
        if magic != b"WEIRSEG\1":
            f.fail(f"magic {magic!r}: no segment, or one of a newer format")
        if crc != crc32c(self.header[:124]):
            f.fail("checksum differs")
        if self.seq != int(seq, 16) or self.volume != store.volume:
            f.fail("it is another segment than its name says")
        if self.seq == 1 and any(self.header[76:124]) or self.seq > 1 and self.prev_seq != self.seq - 1 or self.seq == 0:
            f.fail("its predecessor is impossible")
        self.aead = None
        self.last = None, None

    def open(self, counter, sealed, data, what):
        if self.aead is None:
            key = self.store.key(self.key, self.name)
            self.aead = AESGCM(hkdf(key, self.salt, b"weir segment 1" + self.volume))
        try:
            return self.aead.decrypt(struct.pack(">IQ", 0, counter), sealed, data)
        except InvalidTag:
            raise Damaged(self.name, f"{what} does not verify: it is damaged, or sealed with another data key")

    def block(self, ref):
        """The plain bytes of a block."""
        if self.last[0] == ref:
            return self.last[1]
        what = f"block at byte {ref.off}"
        first = int.from_bytes(self.salt[:5], "big")
        if ref.counter >> COUNT_BITS != first or not TAG < ref.len <= MAX_BLOCK + 1 + TAG:
            raise Damaged(self.name, f"{what} is referred to, but of another segment")
        sealed = self.sealed(ref)
        data = b"b" + struct.pack(">Q", ref.counter) + self.volume + self.salt
        raw = unpack(self.name, what, self.open(ref.counter, sealed, data, what), MAX_BLOCK)
        self.last = ref, raw
        return raw

    def part(self, ref, skip, length, raw):
        """Some bytes of a block that has so many."""
        block = self.block(ref)
        if len(block) != raw:
            raise Damaged(self.name, f"a block of {len(block)} bytes was to have {raw}")
        return block[skip:skip + length]

    def sealed(self, ref):
        return self.store.read(self.name, ref.off, ref.len)

    def records(self, start, whole):
        """The operations of each record from byte start on."""
        b = self.store.read(self.name, 0, self.size)
        if whole and blake3(b) != self.hash:
            raise Damaged(self.name, "its BLAKE3 hash is not the one in its name: it is damaged")
        at = HEADER
        while at < len(b):
            what = f"record at byte {at}"
            f = Fields(self.name, what, b[at:at + 31])
            length, _, kind, epoch, counter, meta, n = f.numbers("IIBQQIH")
            plain = 31 + 4 * n
            if length > MAX_FRAME or length < plain + meta or at + length > len(b):
                f.fail(f"length {length} is impossible")
            if kind != 1 or epoch != self.epoch:
                f.fail(f"kind {kind} of epoch {epoch} in a segment of epoch {self.epoch}")
            sizes = struct.unpack(f">{n}I", b[at + 31:at + plain])
            if plain + sum(sizes) + meta != length:
                f.fail("the lengths of its parts do not add up")
            refs, off = [], at + plain
            for i, size in enumerate(sizes):
                refs.append(Ref(self.seq, off, size, counter + i))
                off += size
            if at >= start:
                data = b"m" + struct.pack(">Q", counter + n) + self.header + struct.pack(">Q", at) + b[at + 8:at + plain]
                yield self.operations(what, self.open(counter + n, b[off:off + meta], data, what), refs)
            elif at + length > start:
                f.fail(f"it has byte {start} in it, at which a record is to begin")
            at += length

    def operations(self, what, meta, refs):
        f = Fields(self.name, what, meta)
        if f.take(1) != b"\1":
            f.fail("version is not known")
        f.varint(), f.bytes(), f.uvarint(), f.uvarint(), f.bytes()  # time, slot, sequence, index, result
        for _ in range(f.uvarint()):
            f.uvarint()  # touched inode
        if f.uvarint() != len(refs):
            f.fail("number of blocks differs")
        for _ in refs:
            f.uvarint()  # its length once unpacked
        ops = []
        for _ in range(f.uvarint()):
            kind, key, value, end = f.take(1)[0], f.bytes(), b"", b""
            if kind == SET:
                value = f.bytes()
            elif kind == DELETE_RANGE:
                end = f.bytes()
            elif kind == SET_BLOCK:
                value, i = f.bytes(), f.uvarint()
                if i >= len(refs):
                    f.fail("an operation refers to a block that is not there")
                value, kind = value + struct.pack(">QQIQ", *refs[i]), SET
            elif kind != DELETE:
                f.fail(f"operation {kind} is not known")
            ops.append(Op(kind, key, value, end))
        f.done()
        return ops


class Checkpoint:
    """A manifest. Its pairs are read by pairs."""

    def __init__(self, store, name):
        self.store, self.name = store, name
        self.content, self.number, self.refs = self.object(name, b"mnfs")
        f = Fields(name, "manifest", self.content)
        version = f.take(1)
        if version not in (b"\1", b"\2"):
            f.fail("version is not known")
        self.seq, self.off, self.epoch = f.uvarint(), f.uvarint(), f.uvarint()
        self.chunks, self.changes = self.list(f), []
        if version == b"\2":
            self.count = f.uvarint()
            self.changes = self.list(f)
        if len(self.chunks) + len(self.changes) != len(self.refs):
            f.fail("number of chunks differs")
        f.done()

    @staticmethod
    def list(f):
        return [(f.uvarint(), f.uvarint(), f.bytes()) for _ in range(f.uvarint())]

    def object(self, name, want):
        b = self.store.read(name, 0, self.store.size(name))
        f = Fields(name, "object", b)
        magic, kind = f.take(8), f.take(4)
        number, = f.numbers("I")
        volume, digest = f.take(16), f.take(32)
        n, = f.numbers("I")
        refs = [f.take(32) for _ in range(n)]
        head = f.at
        salt = f.take(32)
        sealed = f.take(len(b) - f.at - 32)
        if magic != b"WEIRCKP\1" or kind != want:
            f.fail(f"magic {magic!r}, kind {kind!r}: it is of a newer format, or of another kind")
        if blake3(b[:-32]) != b[-32:]:
            f.fail("the BLAKE3 hash at its end differs: it is damaged")
        if volume != self.store.volume or not name.endswith("/" + digest.hex()):
            f.fail("it is another object than its name says")
        key = self.store.key(number, name)
        try:
            object_key = hkdf(key, salt, b"weir checkpoint 1 object" + volume)
            packed = AESGCM(object_key).decrypt(bytes(12), sealed, b[:head + 32])
        except InvalidTag:
            f.fail("its content does not verify: it is damaged, or sealed with another data key")
        content = unpack(name, "content", packed, 256 << 20)
        use = b"weir checkpoint 1 " + (b"chunk" if kind == b"chnk" else b"manifest") + volume
        if blake3(b[64:head] + content, hkdf(key, b"", use)) != digest:
            f.fail("the hash of its content is not the one in its name")
        return content, number, refs

    def pairs(self):
        """All pairs in order, with the changes made."""
        n = len(self.chunks)
        changes, read = self.read(self.refs[n:], self.changes), 0
        change = next(changes, None)
        for key, value in itertools.chain(self.read(self.refs[:n], self.chunks), [(None, None)]):
            here = []
            while change and (key is None or change[0] <= key):
                here.append(change)
                change = next(changes, None)
            now = [(k, v[1:]) for k, v in here if v[:1] == b"\1"]
            if any(v[:1] != b"\1" and v != b"\0" for _, v in here):
                Fields(self.name, "change", b"").fail("it is not known")
            if key is not None and not (here and here[-1][0] == key):
                now.append((key, value))
            read += len(now)
            yield from now
        if self.changes and read != self.count:
            Fields(self.name, "manifest", self.content).fail("number of pairs differs")

    def read(self, refs, chunks):
        last = b""
        for ref, (size, count, first) in zip(refs, chunks):
            name = f"{self.store.uuid}/c/{ref.hex()}"
            content, _, _ = self.object(name, b"chnk")
            f = Fields(name, "chunk", content)
            if f.take(1) != b"\1" or len(content) != size:
                f.fail("version is not known, or its size is not what the manifest says")
            pairs, key = [], b""
            while f.at < len(content):
                shared, rest, value = f.uvarint(), f.uvarint(), f.uvarint()
                key = key[:shared] + f.take(rest)
                pairs.append((key, f.take(value)))
                if key <= last or shared > len(key) - rest:
                    f.fail("its keys are not in order")
                last = key
            if len(pairs) != count or pairs[0][0] != first:
                f.fail("its pairs are not those that the manifest says")
            yield from pairs


class Store:
    """One volume in a store: a folder with a folder for each volume."""

    def __init__(self, root, uuid, keys):
        self.root, self.uuid, self.keys, self.joined = root, uuid, keys, {}
        self.volume = bytes.fromhex(uuid.replace("-", ""))
        if not os.path.isdir(os.path.join(root, uuid)):
            sys.exit(f"weirread: {os.path.join(root, uuid)}: there is no such folder: give the store's folder and the volume's UUID")

    def names(self, folder, pattern):
        path = os.path.join(self.root, self.uuid, folder)
        found = os.listdir(path) if os.path.isdir(path) else []
        return [os.path.join(self.uuid, folder, n) for n in sorted(found) if re.fullmatch(pattern, n)]

    def pieces(self):
        """The names of pieces, by the sequence and the salt of their segment, in order."""
        out = {}
        for name in self.names("t", "[0-9a-f]{16}-[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{8}-[0-9a-f]{64}"):
            seq, salt, _, _, _ = name.rsplit("/", 1)[1].split("-")
            out.setdefault((int(seq, 16), salt), []).append(name)
        return out

    def join(self, seq, names):
        """The segment that the pieces are of, as far as it was when the last one was written."""
        b = b""
        for name in names:
            _, _, start, end, digest = name.rsplit("/", 1)[1].split("-")
            start, end = int(start, 16), int(end, 16)
            if end <= len(b):
                continue  # another gateway's
            if start > len(b):
                raise Damaged(name, f"what comes before it is missing, from byte {len(b)} on")
            b = b[:start] + self.read(name, 0, end - start)
            if blake3(b).hex() != digest:
                raise Damaged(name, "the hash in its name is not that of the segment up to its end")
        name = f"{self.uuid}/{seq:016x}-{blake3(b).hex()}"
        self.joined[name] = b
        return Segment(self, name)

    def size(self, name):
        if name in self.joined:
            return len(self.joined[name])
        try:
            return os.path.getsize(os.path.join(self.root, name))
        except OSError as e:
            raise Damaged(name, e.strerror)

    def read(self, name, off, n):
        if name in self.joined:
            return self.joined[name][off:off + n]
        try:
            with open(os.path.join(self.root, name), "rb") as f:
                f.seek(off)
                b = f.read(n)
        except OSError as e:
            raise Damaged(name, e.strerror)
        if len(b) != n:
            raise Damaged(name, f"it ends at byte {off + len(b)}, {off + n} are needed")
        return b

    def key(self, number, name):
        if number not in self.keys:
            raise Damaged(name, f"it is sealed with data key {number}, which is not in the file of keys: export the keys again")
        return self.keys[number]


class Pack:
    """A pack in the store. Opening one reads its index."""

    def __init__(self, store, name, size):
        self.store, self.name = store, name
        head = store.read(name, 0, PACK_HEAD)
        f = Fields(name, "head", head)
        magic, volume = f.take(8), f.take(16)
        length, segments, blocks, index = f.numbers("QIII")
        crc, = f.numbers("I")
        if magic not in (b"WEIRPAK\1", b"WEIRPAK\2") or crc != crc32c(head[:-4]):
            f.fail("it is no pack, or one of a newer format, or its checksum differs")
        if volume != store.volume or length != size or store.size(name) != size:
            f.fail(f"it is of another volume, or has not the {size} bytes that the metadata say")
        raw = store.read(name, PACK_HEAD, index + 4)
        f = Fields(name, "index", raw[:-4])
        if crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "big"):
            f.fail("its checksum differs")
        self.places, self.cuts, at = {}, {}, PACK_HEAD + index + 4
        if magic == b"WEIRPAK\2":
            self.key, self.salt, self.aead = *f.numbers("I"), f.take(32), None
        for order in range(segments):
            seq, _, end = f.uvarint(), f.take(32), HEADER
            for _ in range(f.uvarint()):
                off = end + f.uvarint()
                n = f.uvarint()
                self.places[seq, off], stored = (at, n), n
                if magic == b"WEIRPAK\2":
                    begin = f.at
                    ranges = f.uvarint()
                    if ranges:
                        _, whole, stored = f.uvarint(), f.uvarint(), f.uvarint()
                        kept, last = [], 0
                        for _ in range(ranges):
                            first = last + f.uvarint()
                            last = first + f.uvarint()
                            kept.append((first, last))
                        self.cuts[seq, off] = at, n, stored, order, whole, kept, f.b[begin:f.at]
                end, at = off + n, at + stored + 4
        f.done()
        if at != size or len(self.places) != blocks:
            f.fail("it does not add up")

    def sealed(self, ref):
        at, n = self.places.get((ref.seq, ref.off), (0, 0))
        if n != ref.len:
            raise Damaged(self.name, f"it does not have the block of {ref.len} bytes at byte {ref.off} of segment {ref.seq}")
        b = self.store.read(self.name, at, n + 4)
        if crc32c(struct.pack(">QQI", ref.seq, ref.off, n) + b[:-4]) != int.from_bytes(b[-4:], "big"):
            raise Damaged(self.name, f"the checksum of the block at byte {at} differs")
        return b[:-4]


    def cut(self, ref, skip, length, raw):
        """Some bytes of a block that the pack has cut."""
        at, n, size, order, whole, kept, said = self.cuts[ref.seq, ref.off]
        if n != ref.len or whole != raw:
            raise Damaged(self.name, f"it has another block at byte {ref.off} of segment {ref.seq}")
        b = self.store.read(self.name, at, size + 4)
        if crc32c(struct.pack(">QQI", ref.seq, ref.off, size) + b[:-4]) != int.from_bytes(b[-4:], "big"):
            raise Damaged(self.name, f"the checksum of the block at byte {at} differs")
        if self.aead is None:
            self.aead = AESGCM(hkdf(self.store.key(self.key, self.name), self.salt, b"weir pack 1" + self.store.volume))
        what = f"what is cut at byte {at}"
        data = b"c" + self.store.volume + struct.pack(">I", self.key) + self.salt + struct.pack(">QQQ", ref.seq, ref.off, n) + said
        try:
            packed = self.aead.decrypt(struct.pack(">IQ", order, ref.off), b[:-4], data)
        except InvalidTag:
            raise Damaged(self.name, f"{what} does not verify: it is damaged, or sealed with another data key")
        text, at = unpack(self.name, what, packed, MAX_BLOCK), 0
        if len(text) != sum(last - first for first, last in kept):
            raise Damaged(self.name, f"{what} has {len(text)} bytes")
        for first, last in kept:
            if first <= skip and skip + length <= last:
                return text[at + skip - first:at + skip - first + length]
            at += last - first
        raise Damaged(self.name, f"bytes {skip} to {skip + length} of the block at byte {ref.off} of segment {ref.seq} were cut away")


class Moved(Segment):
    """The blocks of a segment that are in a pack."""

    def __init__(self, pack, seq, key, salt):
        self.pack, self.store, self.name = pack, pack.store, pack.name
        self.volume, self.seq, self.key, self.salt = pack.store.volume, seq, key, salt
        self.aead = None
        self.last = None, None

    def sealed(self, ref):
        return self.pack.sealed(ref)

    def part(self, ref, skip, length, raw):
        if (self.seq, ref.off) in self.pack.cuts:
            return self.pack.cut(ref, skip, length, raw)
        return super().part(ref, skip, length, raw)


class Log:
    """The segments of the store that follow from one another."""

    def __init__(self, store, tip=None):
        self.store, self.chain, self.why, self.listed, self.older = store, {}, None, {}, {}
        self.moved, self.sealed, self.packs, self.parts = {}, {}, {}, {}
        every, unread = [], {}
        for name in store.names("", "[0-9a-f]{16}-[0-9a-f]{64}"):
            try:
                every.append(Segment(store, name))
            except Damaged as e:
                unread[name] = e
        for (seq, salt), names in store.pieces().items():
            end = max(int(name.split("-")[-2], 16) for name in names)
            if any(s.seq == seq and s.salt[:8].hex() == salt and s.size >= end for s in every):
                continue  # it has ended, and is here
            try:
                every.append(store.join(seq, names))
            except Damaged as e:
                unread[f"{store.uuid}/{seq:016x}-{names[-1][-64:]}"] = e
        followed = {s.prev_hash for s in every}
        tips = sorted((s for s in every if s.hash not in followed), key=lambda s: (s.epoch, s.seq))
        if tip:
            tips = [s for s in every if s.name.endswith(tip)]
            if not tips:
                raise unread.get(tip, Damaged(tip, "there is no such segment that can be read"))
        by_hash = {s.hash: s for s in every}
        s = self.tip = tips[-1] if tips else None
        while s:
            self.chain[s.seq] = s
            before = by_hash.get(s.prev_hash)
            if s.seq > 1 and (before is None or before.size != s.prev_len or before.epoch > s.epoch):
                name = f"{store.uuid}/{s.prev_seq:016x}-{s.prev_hash.hex()}"
                self.why = unread.get(name, Damaged(name, f"it is missing, or has not the {s.prev_len} bytes that the next one says"))
                before = None
            s = before
        if tip:
            return
        for name, e in unread.items():
            # Below the chain it may only be missed by some files. Elsewhere it may be of the log's end.
            if not self.chain or int(name[-81:-65], 16) >= min(self.chain):
                raise e
        rivals = [s for s in tips[:-1] if s.epoch == self.tip.epoch and s.seq >= min(self.chain)]
        if rivals:
            sys.exit("weirread: the log has several ends of one epoch, and nothing here says which was kept: give one with --tip:\n  " +
                     "\n  ".join(s.name for s in rivals + [self.tip]))

    def blocks(self, seq):
        """What has the blocks of a segment: a pack, or the segment."""
        if seq not in self.moved:
            return self.segment(seq)
        if seq not in self.parts:
            digest, size = self.moved[seq]
            if digest not in self.packs:
                self.packs[digest] = Pack(self.store, f"{self.store.uuid}/p/{digest.hex()}", size)
            if seq not in self.sealed:
                raise Damaged(self.packs[digest].name, f"the metadata do not list segment {seq}")
            self.parts[seq] = Moved(self.packs[digest], seq, *self.sealed[seq])
        return self.parts[seq]

    def segment(self, seq):
        """A segment of the chain, or one before it that the metadata list."""
        if seq in self.chain:
            return self.chain[seq]
        if seq not in self.listed:
            raise self.why or Damaged(f"{self.store.uuid}/{seq:016x}-…", "there is no such segment")
        if seq not in self.older:
            size, digest = self.listed[seq]
            s = Segment(self.store, f"{self.store.uuid}/{seq:016x}-{digest.hex()}")
            if s.size != size:
                raise Damaged(s.name, f"it has {s.size} bytes, and is to have {size}")
            self.older[seq] = s
        return self.older[seq]

    def has(self, checkpoint):
        """Whether a checkpoint is of this chain."""
        if checkpoint.seq == 0 or not self.chain:
            return True
        s = self.chain.get(checkpoint.seq)
        if s is None:  # all that is here comes later, or is the very next
            after = self.chain.get(checkpoint.seq + 1)
            return after is not None and after.prev_len == checkpoint.off and checkpoint.epoch <= after.epoch
        return s.epoch == checkpoint.epoch and checkpoint.off <= s.size or s.epoch > checkpoint.epoch and checkpoint.off <= HEADER


class State:
    """The metadata, keys and values, in buckets by the first nine bytes of keys."""

    def __init__(self, uuid):
        self.uuid, self.buckets = uuid, {}

    def apply(self, ops):
        for op in ops:
            if op.kind == SET:
                self.buckets.setdefault(op.key[:9], {})[op.key] = op.value
            elif op.kind == DELETE:
                self.buckets.get(op.key[:9], {}).pop(op.key, None)
            else:
                self.delete(op.key, op.end)

    def delete(self, lo, hi):
        one = lo[:9]
        if len(one) == 9 and (hi[:9] == one or hi == (int.from_bytes(one, "big") + 1).to_bytes(9, "big")):
            near = [one]
        else:
            near = [b for b in self.buckets if b >= lo[:9] and b < hi]
        for b in near:
            bucket = self.buckets.get(b, {})
            for key in [k for k in bucket if lo <= k < hi]:
                del bucket[key]

    def table(self, letter):
        for b, bucket in self.buckets.items():
            if b[:1] == letter:
                yield from bucket.items()

    def body(self, key, value, tail=0):
        """The fields of a value. Its version and checksum are verified."""
        sealed = value[:len(value) - tail]
        f = Fields(self.uuid, f"value of key {key.hex()}", sealed[1:-4])
        if len(sealed) < 5 or sealed[0] != 1 or crc32c(key + sealed[:-4]) != int.from_bytes(sealed[-4:], "big"):
            f.fail("its version is not known, or its checksum differs")
        return f


Snapshot = namedtuple("Snapshot", "gen number time bytes inodes moment name")
Inode = namedtuple("Inode", "ino gen type mode nlink uid gid rdev size used change times content trash")
TYPES = {1: stat.S_IFREG, 2: stat.S_IFDIR, 3: stat.S_IFLNK, 4: stat.S_IFBLK, 5: stat.S_IFCHR, 6: stat.S_IFIFO, 7: stat.S_IFSOCK}
VERSIONED = b"ceinsux"


class Volume:
    def __init__(self, store, log, checkpoint=None, whole=True):
        self.log, self.state = log, State(store.uuid)
        seq, off = 1, 0
        if checkpoint:
            for key, value in checkpoint.pairs():
                self.state.apply([Op(SET, key, value, b"")])
            seq, off = checkpoint.seq or 1, checkpoint.off
            if seq not in log.chain:
                seq, off = seq + 1, 0
        elif log.tip is None:
            raise Damaged(store.uuid, "there is no segment in the store")
        while log.tip and seq <= log.tip.seq:
            s = log.segment(seq)
            for ops in s.records(off, whole):
                self.state.apply(ops)
            seq, off = seq + 1, 0
        self.check_level()
        for key, value in self.state.table(b"g"):
            f = self.state.body(key, value)
            seq, _, number, salt, size, digest = int.from_bytes(key[1:9], "big"), *f.numbers("QI"), f.take(32), *f.numbers("Q"), f.take(32)
            log.listed[seq] = size, digest
            log.sealed[seq] = number, salt
            if seq in log.chain and log.chain[seq].hash != digest:
                raise Damaged(log.chain[seq].name, "the metadata list another segment of this sequence")

        packs = {}
        for key, value in self.state.table(b"b"):
            f = self.state.body(key, value)
            packs[int.from_bytes(key[1:9], "big")] = f.take(32), *f.numbers("Q")
        for key, value in self.state.table(b"m"):
            f = self.state.body(key, value)
            number, = f.numbers("Q")
            f.done()
            if number not in packs:
                f.fail(f"there is no pack {number}")
            log.moved[int.from_bytes(key[1:9], "big")] = packs[number]

    def check_level(self):
        self.rolling = 0
        for key, value in self.state.table(b"v"):
            f = self.state.body(key, value)
            level, = f.numbers("I")
            if level > FORMAT:
                sys.exit(f"weirread: the volume has format level {level}, this program knows {FORMAT}: get the one of a newer release")
            f.numbers("IIQQ"), f.time(), f.time()
            self.rolling, = f.numbers("I")

    def snapshots(self):
        found = []
        for key, value in self.state.table(b"t"):
            f = self.state.body(key, value)
            number, = f.numbers("Q")
            when, (used, inodes, moment) = f.time(), f.numbers("QQB")
            found.append(Snapshot(int.from_bytes(key[1:5], "big"), number, when, used, inodes, moment, f.rest()))
        return sorted(found)

    def look(self, snapshot=None):
        """Finds names, inodes and the rest of the present, or of a snapshot."""
        pairs = {k: v for letter in VERSIONED for k, v in self.state.table(bytes([letter]))}
        if snapshot:
            was = {}
            for h, value in self.state.table(b"h"):
                key, gen = h[1:-4] + bytes(4), int.from_bytes(h[-4:], "big")
                if gen >= snapshot.gen and gen < was.get(key, (1 << 32,))[0]:
                    was[key] = gen, h, value
            for key, (_, h, value) in was.items():
                f = self.state.body(h, value)
                exists, = f.numbers("B")
                pairs.pop(key, None)
                if exists:
                    pairs[key] = f.rest()
        elif self.rolling:
            sys.exit(f"weirread: the volume is being made what it was in snapshot {self.rolling}: look at that one")
        self.inodes, self.entries, self.targets, self.xattrs, self.extents = {}, {}, {}, {}, {}
        for key, value in pairs.items():
            number = int.from_bytes(key[1:9], "big")
            if snapshot and (number > snapshot.number or key[:1] == b"c" and int.from_bytes(key[9:17], "big") > snapshot.number):
                continue  # it was made later
            if key[:1] == b"i":
                self.inodes[number] = self.inode(number, self.state.body(key, value))
            elif key[:1] == b"c":
                f = self.state.body(key, value)
                ino, gen = f.numbers("QQ")
                self.entries.setdefault(number, []).append((key[9:17], f.rest(), ino, gen, f))
            elif key[:1] == b"s":
                self.targets[number] = self.state.body(key, value).rest()
            elif key[:1] == b"x":
                self.xattrs.setdefault(number, {})[key[9:-5]] = self.state.body(key, value).rest()
            elif key[:1] == b"e":
                self.extents.setdefault(number, []).append((key, value))

    @staticmethod
    def inode(ino, f):
        gen, kind, flags, mode, nlink, uid, gid, rdev, size, used, change, _ = f.numbers("QBBIIIIQQQQQ")
        times = [f.time() for _ in range(4)]
        if kind not in TYPES or flags > 15 or flags & 12 and kind != 2:
            f.fail(f"type {kind}, flags {flags}")
        if kind == 2:
            f.numbers("QQQ")
        if flags & 1:
            f.take(8)
        content = f.numbers("Q")[0] if flags & 2 else ino
        trash = f.numbers("Q")[0] if flags & 4 else 0
        f.done()
        return Inode(ino, gen, kind, mode, nlink, uid, gid, rdev, size, used, change, times, content, trash)

    def walk(self, path=b"", ino=1, above=()):
        """The path and the inode of all that is below a directory, which comes first."""
        n = self.inodes.get(ino)
        if n is None:
            raise Damaged(self.log.store.uuid, f"inode {ino} is not there")
        yield path, n
        if n.type != 2:
            return
        for _, name, child, gen, f in sorted(self.entries.get(ino, []), key=lambda e: e[0]):
            if not name or name in (b".", b"..") or b"/" in name or b"\0" in name or child in above:
                f.fail(f"a directory has the entry {name!r}")
            if child not in self.inodes or self.inodes[child].gen != gen:
                f.fail(f"an entry leads to inode {child}, which is not there")
            yield from self.walk(path + b"/" + name if path else name, child, above + (ino,))
        if n.trash:
            if n.trash in above or n.trash not in self.inodes:
                raise Damaged(self.log.store.uuid, f"inode {ino} has a trash that is not there")
            yield from self.walk(path + b"/.trash" if path else b".trash", n.trash, above + (ino,))

    def content(self, n):
        """The runs of bytes of a file, with their offsets. What is between them is holes."""
        last = 0
        for key, value in sorted(self.extents.get(n.content, [])):
            f = self.state.body(key, value, REF)
            length, skip, raw = f.numbers("III")
            f.done()
            off, ref = int.from_bytes(key[9:17], "big"), Ref(*struct.unpack(">QQIQ", value[-REF:]))
            if off < last or skip + length > raw or length == 0:
                f.fail("its extent is impossible, or overlaps with another")
            last = off + length
            yield off, self.log.blocks(ref.seq).part(ref, skip, length, raw)


def show(path):
    return path.decode("utf-8", "backslashreplace")


def describe(volume, path, n):
    d = {"path": show(path) or ".", "type": stat.filemode(TYPES[n.type])[0], "mode": f"{n.mode:04o}", "nlink": n.nlink, "uid": n.uid,
         "gid": n.gid, "size": n.size, "used": n.used, "inode": n.ino, "mtime": f"{n.times[1][0]}.{n.times[1][1]:09d}"}
    if n.type in (4, 5):
        d["device"] = f"{n.rdev >> 32}:{n.rdev & 0xFFFFFFFF}"
    if n.type == 3:
        d["target"] = show(volume.targets.get(n.ino, b""))
    if n.ino in volume.xattrs:
        d["xattrs"] = {show(k): v.hex() for k, v in sorted(volume.xattrs[n.ino].items())}
    return json.dumps(d, ensure_ascii=False)


def make(volume, n, path):
    """Makes one inode that is no directory."""
    if n.type == 3:
        if n.ino not in volume.targets:
            raise Damaged(volume.log.store.uuid, f"the target of symbolic link {n.ino} is not there")
        os.symlink(volume.targets[n.ino], path)
    elif n.type == 1:
        part = path[:path.rfind(b"/") + 1] + b".weirread-part"
        try:
            with open(part, "wb") as f:
                for off, data in volume.content(n):
                    f.seek(off)
                    f.write(data)
                f.truncate(n.size)
            os.rename(part, path)
        finally:
            if os.path.lexists(part):
                os.unlink(part)
    else:
        os.mknod(path, 0o600 | TYPES[n.type], os.makedev(n.rdev >> 32, n.rdev & 0xFFFFFFFF))


def dress(volume, n, path):
    """Gives a file its owner, attributes, mode and times."""
    if os.geteuid() == 0:
        os.chown(path, n.uid, n.gid, follow_symlinks=False)
    for name, value in volume.xattrs.get(n.ino, {}).items():
        os.setxattr(path, b"user." + name, value, follow_symlinks=False)
    if n.type != 3:
        os.chmod(path, n.mode & 0o7777)
    at, mt = (s * 10**9 + ns for s, ns in n.times[:2])
    os.utime(path, ns=(at, mt), follow_symlinks=False)


def extract(volume, to):
    """Returns how many paths could not be extracted, or not in full."""
    to, problems, first, folders = os.fsencode(to), 0, {}, []
    os.makedirs(to, exist_ok=True)
    if os.listdir(to):
        sys.exit(f"weirread: {os.fsdecode(to)} is not empty: give another folder")
    for path, n in volume.walk():
        there = os.path.join(to, path) if path else to
        try:
            if n.type == 2:
                if path:
                    os.mkdir(there, 0o700)
                folders.append((n, there))
            elif n.ino in first:
                os.link(first[n.ino], there, follow_symlinks=False)
            else:
                make(volume, n, there)
                first[n.ino] = there
                dress(volume, n, there)
        except (Damaged, OSError) as e:
            problems += 1
            print(f"weirread: {show(path)}: {e}", file=sys.stderr)
    for n, there in reversed(folders):
        try:
            dress(volume, n, there)
        except OSError as e:
            problems += 1
            print(f"weirread: {e}", file=sys.stderr)
    return problems


def verify(store, log):
    """Returns how many objects are damaged. It reads everything."""
    problems = 0
    for name in store.names("", "[0-9a-f]{16}-[0-9a-f]{64}") + store.names("m", "[0-9a-f]{64}") + store.names("p", "[0-9a-f]{64}"):
        try:
            if "/p/" in name:
                if blake3(store.read(name, 0, store.size(name))).hex() != name[-64:]:
                    raise Damaged(name, "its hash is not that of its name")
                Pack(store, name, store.size(name))
            elif "/m/" in name:
                for _ in Checkpoint(store, name).pairs():
                    pass
            else:
                for _ in Segment(store, name).records(0, True):
                    pass
        except Damaged as e:
            problems += 1
            print(f"weirread: {e}", file=sys.stderr)
    if log.why:
        print(f"weirread: the log is not whole before segment {min(log.chain)}: {log.why}", file=sys.stderr)
    return problems


def read_keys(path):
    """Lines of a number and 64 hex digits, as `weir volume keys NAME --export FILE` writes them."""
    keys = {}
    with open(path, encoding="ascii") as f:
        for i, line in enumerate(f, 1):
            line = line.split("#")[0].split()
            if not line:
                continue
            if len(line) != 2 or not line[0].isdigit() or not re.fullmatch("[0-9a-fA-F]{64}", line[1]):
                sys.exit(f"weirread: {path}, line {i}: want the number of a data key and its 64 hex digits")
            keys[int(line[0])] = bytes.fromhex(line[1])
    return keys


def newest(store, log):
    """The last checkpoint of the log; None: there is none. One that is damaged ends the program."""
    found = [Checkpoint(store, name) for name in store.names("m", "[0-9a-f]{64}")]
    found = [c for c in found if log.has(c)]
    return max(found, key=lambda c: (c.seq, c.off), default=None)


def main():
    p = argparse.ArgumentParser(prog="weirread", description=__doc__.split("\n")[0])
    p.add_argument("--store", required=True, help="folder of the store, or into which its objects were copied")
    p.add_argument("--volume", required=True, help="UUID of the volume")
    p.add_argument("--keys", required=True, help="file of data keys: on each line a number and 64 hex digits")
    p.add_argument("--snapshot", help="name or number of a snapshot, instead of the present")
    p.add_argument("--checkpoint", help="begin there: hash of its manifest")
    p.add_argument("--no-checkpoint", action="store_true", help="begin at the first segment")
    p.add_argument("--tip", help="end of the log: the name of a segment")
    p.add_argument("--damaged", action="store_true", help="read segments whose hash differs, as far as each part verifies")
    p.add_argument("command", choices=["list", "extract", "snapshots", "verify"])
    p.add_argument("to", nargs="?", help="extract: an empty folder")
    a = p.parse_args()
    if (a.command == "extract") != bool(a.to):
        p.error("extract needs a folder, and nothing else does")
    store = Store(a.store, a.volume.lower(), read_keys(a.keys))
    try:
        log = Log(store, a.tip)
        if a.command == "verify":
            sys.exit(1 if verify(store, log) else 0)
        if a.checkpoint:
            checkpoint = Checkpoint(store, f"{store.uuid}/m/{a.checkpoint}")
            if not log.has(checkpoint):
                raise Damaged(checkpoint.name, "it is not of the log that is here")
        else:
            checkpoint = None if a.no_checkpoint else newest(store, log)
        volume = Volume(store, log, checkpoint, not a.damaged)
        snapshot = None
        if a.command == "snapshots":
            for s in volume.snapshots():
                print(json.dumps({"number": s.gen, "name": show(s.name), "time": s.time[0], "bytes": s.bytes, "inodes": s.inodes}))
            return
        if a.snapshot:
            found = [s for s in volume.snapshots() if a.snapshot in (show(s.name), str(s.gen))]
            if not found:
                sys.exit(f"weirread: there is no snapshot {a.snapshot}: the command snapshots lists them")
            snapshot = found[0]
        volume.look(snapshot)
        if a.command == "list":
            for path, n in volume.walk():
                print(describe(volume, path, n))
        elif problems := extract(volume, a.to):
            sys.exit(f"weirread: {problems} paths were not extracted, or not in full")
    except Damaged as e:
        sys.exit(f"weirread: {e}")


if __name__ == "__main__":
    main()
