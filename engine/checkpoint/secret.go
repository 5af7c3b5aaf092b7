// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/segment"
)

// Hash names the content of a chunk or of a manifest. It is keyed: who has no data key of the
// volume learns nothing from it but which contents are equal.
type Hash = [32]byte

// secrets are what the objects of one volume under one data key are made with. They are not changed
// once made, and any number of goroutines may use them.
type secrets struct {
	volume  segment.VolumeID
	number  uint32 // of the data key
	data    segment.DataKey
	border  [32]byte
	salt    [32]byte
	content map[kind][32]byte
}

// newSecrets derives the keys of the package comment.
func newSecrets(volume segment.VolumeID, number uint32, data *segment.DataKey) (*secrets, error) {
	s := &secrets{volume: volume, number: number, data: *data}
	var chunk, manifest [32]byte
	for use, key := range map[string]*[32]byte{"border": &s.border, "salt": &s.salt, "chunk": &chunk, "manifest": &manifest} {
		k, err := s.derive(use, nil)
		if err != nil {
			return nil, err
		}
		copy(key[:], k)
	}
	s.content = map[kind][32]byte{chunkKind: chunk, manifestKind: manifest}
	return s, nil
}

func (s *secrets) derive(use string, salt []byte) ([]byte, error) {
	k, err := hkdf.Key(sha256.New, s.data[:], salt, "weir checkpoint 1 "+use+string(s.volume[:]), 32)
	if err != nil {
		return nil, fmt.Errorf("derive key of a checkpoint's %s: %w", use, err)
	}
	return k, nil
}

// aead returns the cipher of the one object that has this salt.
func (s *secrets) aead(salt []byte) (cipher.AEAD, error) {
	k, err := s.derive("object", salt)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(k)
	if err != nil {
		return nil, fmt.Errorf("make cipher of a checkpoint's object: %w", err)
	}
	return cipher.NewGCM(block)
}

// hash is the content hash of an object of kind k.
func (s *secrets) hash(k kind, refs []Hash, content []byte) Hash {
	key := s.content[k]
	return keyed(key, appendRefs(make([]byte, 0, 4+len(refs)*len(Hash{})), refs), content)
}

// keyed is the keyed BLAKE3-256 hash of all parts, one after the other.
func keyed(key [32]byte, parts ...[]byte) (sum Hash) {
	h := newHasher(key)
	for _, p := range parts {
		_, _ = h.Write(p) // it never fails
	}
	h.Sum(sum[:0])
	return sum
}

func newHasher(key [32]byte) *blake3.Hasher {
	h, err := blake3.NewKeyed(key[:])
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	return h
}
