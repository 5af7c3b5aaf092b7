// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/segment"
)

// kind is what an object is.
type kind string

// The kinds of objects. Their four bytes are part of the format.
const (
	chunkKind    kind = "chnk"
	manifestKind kind = "mnfs"
)

var magic = []byte("WEIRCKP\x01")

// Offsets in an object, as in the package comment. What comes after them moves with the references.
const (
	kindAt   = 8
	keyAt    = 12
	volumeAt = 16
	hashAt   = 32
	refsAt   = 64
	plain    = 68 // bytes before the references
	hashSize = 32
	tagSize  = 16

	minObject = plain + hashSize + tagSize + 1 + hashSize
)

// nonce is that of every object: each has a key of its own.
var nonce [12]byte

// name returns the name of an object in a store.
func name(volume segment.VolumeID, k kind, hash Hash) string {
	v := volume[:]
	folder := map[kind]string{chunkKind: "c", manifestKind: "m"}[k]
	return fmt.Sprintf("%x-%x-%x-%x-%x/%s/%x", v[:4], v[4:6], v[6:8], v[8:10], v[10:], folder, hash)
}

// parseName is the inverse of name. It accepts only names that name makes.
func parseName(text string) (volume segment.VolumeID, k kind, hash Hash, err error) {
	bad := fmt.Errorf("name of a checkpoint's object %q: want <volume uuid>/c/<64 hex digits> or <volume uuid>/m/<64 hex digits>", text)
	parts := strings.Split(text, "/")
	if len(parts) != 3 || len(parts[2]) != 2*hashSize {
		return volume, "", hash, bad
	}
	switch parts[1] {
	case "c":
		k = chunkKind
	case "m":
		k = manifestKind
	}
	id, err := hex.DecodeString(strings.ReplaceAll(parts[0], "-", ""))
	if err != nil || len(id) != len(volume) {
		return volume, "", hash, bad
	}
	copy(volume[:], id)
	if _, err := hex.Decode(hash[:], []byte(parts[2])); err != nil || k == "" || name(volume, k, hash) != text {
		return volume, "", hash, bad
	}
	return volume, k, hash, nil
}

// ManifestName returns the name of the manifest of a checkpoint.
func ManifestName(volume segment.VolumeID, hash Hash) string {
	return name(volume, manifestKind, hash)
}

// ManifestHash returns the hash in the name of a manifest.
func ManifestHash(object string) (Hash, error) {
	_, k, hash, err := parseName(object)
	if err == nil && k != manifestKind {
		err = fmt.Errorf("%q is no name of a manifest", object)
	}
	return hash, err
}

// appendRefs appends the number of references and the references.
func appendRefs(dst []byte, refs []Hash) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(refs)))
	for _, r := range refs {
		dst = append(dst, r[:]...)
	}
	return dst
}

// seal returns the object with this content, and its content hash. pack compresses.
func (s *secrets) seal(k kind, hash Hash, refs []Hash, content []byte, pack packer) ([]byte, error) {
	head := plain + hashSize*len(refs)
	b := make([]byte, 0, head+hashSize+1+len(content)+64+tagSize+hashSize)
	b = append(b, magic...)
	b = append(b, k...)
	b = binary.BigEndian.AppendUint32(b, s.number)
	b = append(b, s.volume[:]...)
	b = append(b, hash[:]...)
	b = appendRefs(b, refs)
	b = append(b, make([]byte, hashSize)...) // the salt comes here
	b = pack(b, content)
	packed := b[head+hashSize:]
	salt := keyed(s.salt, b[:head], packed)
	copy(b[head:], salt[:])
	aead, err := s.aead(salt[:])
	if err != nil {
		return nil, err
	}
	b = aead.Seal(b[:head+hashSize], nonce[:], packed, b[:head+hashSize])
	sum := blake3.Sum256(b)
	return append(b, sum[:]...), nil
}

// parsed is an object whose lengths and last hash were verified. It shares the object's memory.
type parsed struct {
	kind   kind
	number uint32
	volume segment.VolumeID
	hash   Hash
	refs   []Hash
	plain  []byte // up to the sealed content; the salt is its end
	sealed []byte
}

// parse verifies an object against itself, without a key. It is an error that wraps ErrCorrupt if
// the object is not whole or of a newer format.
func parse(b []byte) (p parsed, err error) {
	if len(b) < minObject {
		return p, corrupt("length", "%d bytes", len(b))
	}
	if !bytes.Equal(b[:kindAt], magic) {
		return p, corrupt("magic", "%x; written by a newer version?", b[:kindAt])
	}
	body := b[:len(b)-hashSize]
	if sum := blake3.Sum256(body); !bytes.Equal(sum[:], b[len(body):]) {
		return p, corrupt("hash of its bytes", "differs")
	}
	n := uint64(binary.BigEndian.Uint32(b[refsAt:]))
	p.kind = kind(b[kindAt:keyAt])
	if p.kind != chunkKind && p.kind != manifestKind || p.kind == chunkKind && n != 0 {
		return p, corrupt("kind", "%q with %d references", string(p.kind), n)
	}
	if n > uint64(len(b)-minObject)/hashSize {
		return p, corrupt("references", "%d in %d bytes", n, len(b))
	}
	head := plain + hashSize*(int(n)+1)
	p.number = binary.BigEndian.Uint32(b[keyAt:])
	copy(p.volume[:], b[volumeAt:])
	copy(p.hash[:], b[hashAt:])
	p.refs = make([]Hash, n)
	for i := range p.refs {
		copy(p.refs[i][:], b[plain+hashSize*i:])
	}
	p.plain, p.sealed = body[:head:head], body[head:]
	return p, nil
}

// Check verifies an object against itself and against its name. It needs no key, so it finds damage
// but no forgery. It returns the names of the objects that this one refers to. The error is an
// ObjectError.
func Check(object string, b []byte) (refers []string, err error) {
	p, err := parseAs(object, b)
	if err != nil {
		return nil, about(object, err)
	}
	for _, r := range p.refs {
		refers = append(refers, name(p.volume, chunkKind, r))
	}
	return refers, nil
}

// Verify is Check with the key: the object was sealed with it, and its content has the hash that
// its name says. So what another made up is not taken. keys is as that of Open. It does not change
// b. An error that wraps ErrCorrupt is of damage, or of a forgery; else the key is not here.
func Verify(object string, b []byte, keys func(number uint32) (segment.DataKey, bool)) error {
	p, err := parseAs(object, bytes.Clone(b)) // open decrypts in place
	if err != nil {
		return about(object, err)
	}
	s, err := secretsOf(p, keys)
	if err == nil {
		_, err = s.open(p)
	}
	return about(object, err)
}

// secretsOf returns what opens an object.
func secretsOf(p parsed, keys func(number uint32) (segment.DataKey, bool)) (*secrets, error) {
	key, ok := keys(p.number)
	if !ok {
		return nil, fmt.Errorf("data key %d is not known here: read the volume's keyring again", p.number)
	}
	return newSecrets(p.volume, p.number, &key)
}

// parseAs parses the object that is to have a name.
func parseAs(object string, b []byte) (p parsed, err error) {
	volume, k, hash, err := parseName(object)
	if err != nil {
		return p, err
	}
	if p, err = parse(b); err != nil {
		return p, err
	}
	if p.volume != volume || p.kind != k || p.hash != hash {
		return p, corrupt("name", "the object is %s", name(p.volume, p.kind, p.hash))
	}
	return p, nil
}

// open verifies and unpacks the content of an object. It decrypts in place.
func (s *secrets) open(p parsed) ([]byte, error) {
	if p.number != s.number || p.volume != s.volume {
		return nil, corrupt("data key", "number %d, want %d", p.number, s.number)
	}
	aead, err := s.aead(p.plain[len(p.plain)-hashSize:])
	if err != nil {
		return nil, err
	}
	packed, err := aead.Open(p.sealed[:0], nonce[:], p.sealed, p.plain)
	if err != nil {
		return nil, corrupt("tag", "differs")
	}
	content, err := unpack(packed)
	if err != nil {
		return nil, err
	}
	if s.hash(p.kind, p.refs, content) != p.hash {
		return nil, corrupt("content hash", "differs")
	}
	return content, nil
}

// Codecs of a packed content.
const (
	codecRaw  = 0
	codecZstd = 1
)

// packer appends the packed content to dst.
type packer func(dst, content []byte) []byte

// zstdPacker returns a packer that compresses with this much work.
func zstdPacker(level zstd.EncoderLevel) packer {
	encoder := sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(false),
			zstd.WithWindowSize(1<<20), zstd.WithEncoderConcurrency(workers))
		if err != nil {
			panic(err) // the options are constants
		}
		return e
	})
	return func(dst, content []byte) []byte {
		n := len(dst)
		z := encoder().EncodeAll(content, append(dst, codecZstd))
		if len(z)-n <= len(content) {
			return z
		}
		return append(append(dst[:n], codecRaw), content...)
	}
}

var (
	fast    = zstdPacker(zstd.SpeedFastest)
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxContent))
		if err != nil {
			panic(err) // the options are constants
		}
		return d
	})
)

// maxContent is the most bytes of content in an object: a manifest of a million chunks has fewer.
const maxContent = 256 << 20

// unpack is the inverse of a packer. The result may share packed's memory.
func unpack(packed []byte) ([]byte, error) {
	switch {
	case len(packed) == 0:
		return nil, corrupt("codec", "empty")
	case packed[0] == codecRaw:
		return packed[1:], nil
	case packed[0] == codecZstd:
		content, err := decoder().DecodeAll(packed[1:], nil)
		if err != nil {
			return nil, corrupt("zstd", "%v", err)
		}
		return content, nil
	}
	return nil, corrupt("codec", "%d; written by a newer version?", packed[0])
}
