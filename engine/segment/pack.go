// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Codecs of a packed block.
const (
	codecRaw  = 0
	codecZstd = 1
)

// Compression is how much work is spent to make blocks smaller. Each kind is read alike.
type Compression string

// Kinds of compression.
const (
	Fast   Compression = ""       // zstd at its fastest
	None   Compression = "None"   // blocks are kept as they are
	Strong Compression = "Strong" // zstd, with about four times the work of Fast
)

// The coders are built at first use and shared. Any number of goroutines may call EncodeAll and
// DecodeAll, which pool their buffers. Checksums are left out because the tag covers the packed
// bytes.
var (
	encoders = map[Compression]func() *zstd.Encoder{Fast: coder(zstd.SpeedFastest), Strong: coder(zstd.SpeedBetterCompression)}
	decoderZ = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(MaxBlock))
		if err != nil {
			panic(err) // the options are constants
		}
		return d
	})
)

func coder(level zstd.EncoderLevel) func() *zstd.Encoder {
	return sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(false), zstd.WithWindowSize(MaxBlock))
		if err != nil {
			panic(err) // the options are constants
		}
		return e
	})
}

// Pack returns raw, at most MaxBlock bytes, ready to be sealed: a codec byte and the bytes,
// compressed if that makes them fewer. The caller owns the result. Pack takes about 0.1 ms for 64
// KiB (Fast), so call it outside locks. A kind of compression that nobody knows is Fast.
func Pack(raw []byte, how Compression) []byte {
	if staysAsIs(raw, how) {
		return append(append(make([]byte, 0, 1+len(raw)), codecRaw), raw...)
	}
	return compress(nil, raw, how)
}

// staysAsIs reports whether a block is not even tried to be compressed.
func staysAsIs(raw []byte, how Compression) bool {
	return how == None || how != Strong && looksRandom(raw)
}

// packRoom is how many bytes more than the block compress needs: the codec, and what EncodeAll
// needs for data that does not compress.
const packRoom = 1 + 32

// compress is Pack for a block that may become smaller. The result begins where to does, if to has
// room for packRoom more than raw.
func compress(to, raw []byte, how Compression) []byte {
	if cap(to) < len(raw)+packRoom {
		// With less room EncodeAll would allocate twice the memory.
		to = make([]byte, 0, len(raw)+packRoom)
	}
	encoder := encoders[how]
	if encoder == nil {
		encoder = encoders[Fast]
	}
	out := append(to[:0], codecZstd)
	if z := encoder().EncodeAll(raw, out); len(z) < len(raw)+1 {
		return z
	}
	return append(append(out[:0], codecRaw), raw...)
}

const (
	// sampleParts parts of samplePart bytes are what looksRandom looks at.
	sampleParts, samplePart = 16, 128
	// sampleAlike is the most pairs of equal bytes in what looks random. Of 2 048 random bytes it
	// is 8 188 in the mean, with a standard deviation of 90.
	sampleAlike = 8700
)

// looksRandom reports whether it is in vain to compress a block: it is encrypted or compressed
// already. It looks at a sample, in about a microsecond. A block that repeats itself does not look
// random, though each part of it may.
func looksRandom(raw []byte) bool {
	if len(raw) < sampleParts*samplePart*4 {
		return false
	}
	var counts [256]uint32
	step := len(raw) / sampleParts
	first := binary.LittleEndian.Uint64(raw)
	for i := range sampleParts {
		for _, b := range raw[i*step : i*step+samplePart] {
			counts[b]++
		}
	}
	pairs := uint32(0)
	for _, n := range counts {
		pairs += n * (n - 1) / 2
	}
	for at := 4096; at+8 <= len(raw); at += 4096 {
		if binary.LittleEndian.Uint64(raw[at:]) == first {
			return false
		}
	}
	return pairs <= sampleAlike
}

// Unpack is the inverse of Pack. The result uses dst's memory if its capacity suffices. The error
// is a CorruptError if pack is not a packed block, or unpacks to more than MaxBlock bytes.
func Unpack(pack, dst []byte) ([]byte, error) {
	if len(pack) == 0 {
		return nil, &CorruptError{Field: "block codec", Why: "empty"}
	}
	switch pack[0] {
	case codecRaw:
		if len(pack)-1 > MaxBlock {
			return nil, &CorruptError{Field: "block size", Why: fmt.Sprint(len(pack) - 1)}
		}
		return append(dst[:0], pack[1:]...), nil
	case codecZstd:
		raw, err := decoderZ().DecodeAll(pack[1:], dst[:0])
		if err != nil {
			return nil, &CorruptError{Field: "block zstd", Why: err.Error()}
		}
		if len(raw) > MaxBlock {
			return nil, &CorruptError{Field: "block size", Why: fmt.Sprint(len(raw))}
		}
		return raw, nil
	}
	return nil, &CorruptError{Field: "block codec", Why: fmt.Sprintf("%d; written by a newer version?", pack[0])}
}
