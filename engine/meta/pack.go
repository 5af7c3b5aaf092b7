// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"encoding/binary"

	"github.com/weir-storage/weir/engine/segment"
)

// Pack is a pack that has blocks of segments that were condemned because of it (ADR 56).
type Pack struct {
	Number uint64 // from 1
	Hash   segment.Hash
	Len    uint64 // bytes
	Made   uint64 // number of the checkpoint at which its blocks were listed
	// Condemned is the number of the checkpoint at which the pack was condemned; 0: it was not.
	Condemned uint64
	// Into is the number of the pack that has its live blocks since then; 0: none of them lives.
	Into uint64
	From []uint64 // numbers of packs that blocks came from
}

// PackKey is the key of a pack.
func PackKey(n uint64) []byte { return finish(number(key(Packs, 8), n)) }

// Encode returns the key and the value of p.
func (p *Pack) Encode() (key, value []byte) {
	key = PackKey(p.Number)
	b := append(begin(64+8*len(p.From)), p.Hash[:]...)
	for _, n := range append([]uint64{p.Len, p.Made, p.Condemned, p.Into}, p.From...) {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return key, seal(key, b)
}

// DecodePack parses the value of a PackKey.
func DecodePack(key, value []byte) (Pack, error) {
	r, err := open(key, value)
	if err != nil {
		return Pack{}, err
	}
	p := Pack{Number: first(key)}
	copy(p.Hash[:], r.take(32))
	p.Len, p.Made, p.Condemned, p.Into = r.u64(), r.u64(), r.u64(), r.u64()
	for len(r.left) > 0 {
		p.From = append(p.From, r.u64())
	}
	return p, r.done()
}

// PackIndexKey is the key of what a pack begins with, up to its blocks.
func PackIndexKey(n uint64) []byte { return finish(number(key(PackIndexes, 8), n)) }

// MovedKey is the key of a segment whose live blocks are in a pack.
func MovedKey(seq uint64) []byte { return finish(number(key(Moved, 8), seq)) }

// EncodeMoved returns the key and the value of a segment whose live blocks are in a pack.
func EncodeMoved(seq, pack uint64) (key, value []byte) {
	key = MovedKey(seq)
	return key, seal(key, binary.BigEndian.AppendUint64(begin(8), pack))
}

// DecodeMoved parses the value of a MovedKey.
func DecodeMoved(key, value []byte) (seq, pack uint64, err error) {
	r, err := open(key, value)
	if err != nil {
		return 0, 0, err
	}
	seq, pack = first(key), r.u64()
	return seq, pack, r.done()
}

// recodePack is recode for what is about packs.
func recodePack(k, value []byte) ([]byte, error) {
	var again []byte
	var err error
	switch Table(k[0]) {
	case Packs:
		var p Pack
		p, err = DecodePack(k, value)
		_, again = p.Encode()
	case Moved:
		var seq, pack uint64
		seq, pack, err = DecodeMoved(k, value)
		_, again = EncodeMoved(seq, pack)
	default:
		var b []byte
		b, err = DecodeBytes(k, value)
		again = EncodeBytes(k, b)
	}
	return again, err
}
