// SPDX-License-Identifier: Apache-2.0

package xdr

// bitmapWords is how many 32-bit words of a bitmap are kept; it covers all
// attributes and operations that RFC 8881, 7862, 8275 and 8276 define.
const bitmapWords = 3

// maxBitmapWords is how long a received bitmap may be; bits above bitmapWords
// are read and remembered only as Extra.
const maxBitmapWords = 64

// Bitmap is a bitmap4 (RFC 8881 section 3.3.7), the form of attribute masks.
type Bitmap struct {
	words [bitmapWords]uint32
	Extra bool // bits beyond words were set in what was decoded
}

// NewBitmap returns a bitmap of the given bits.
func NewBitmap(bits ...uint32) Bitmap {
	var b Bitmap
	for _, n := range bits {
		b.Set(n)
	}
	return b
}

// Set adds bit n, which must be below 32*bitmapWords.
func (b *Bitmap) Set(n uint32) { b.words[n/32] |= 1 << (n % 32) }

// Clear removes bit n.
func (b *Bitmap) Clear(n uint32) { b.words[n/32] &^= 1 << (n % 32) }

// Has tells whether bit n is set.
func (b Bitmap) Has(n uint32) bool {
	return n/32 < bitmapWords && b.words[n/32]&(1<<(n%32)) != 0
}

// Empty tells whether no bit is set.
func (b Bitmap) Empty() bool { return b == Bitmap{} }

// And returns the bits that are in both.
func (b Bitmap) And(o Bitmap) Bitmap {
	for i := range b.words {
		b.words[i] &= o.words[i]
	}
	b.Extra = b.Extra && o.Extra
	return b
}

// Or returns the bits that are in either.
func (b Bitmap) Or(o Bitmap) Bitmap {
	for i := range b.words {
		b.words[i] |= o.words[i]
	}
	b.Extra = b.Extra || o.Extra
	return b
}

// Without returns the bits of b that are not in o.
func (b Bitmap) Without(o Bitmap) Bitmap {
	for i := range b.words {
		b.words[i] &^= o.words[i]
	}
	return b
}

// Bitmap reads a bitmap4.
func (d *Decoder) Bitmap() Bitmap {
	var b Bitmap
	n := d.Count(maxBitmapWords, 4)
	for i := range n {
		w := d.Uint32()
		switch {
		case i < bitmapWords:
			b.words[i] = w
		case w != 0:
			b.Extra = true
		}
	}
	return b
}

// Bitmap appends a bitmap4 without trailing zero words.
func (e *Encoder) Bitmap(b Bitmap) {
	n := bitmapWords
	for n > 0 && b.words[n-1] == 0 {
		n--
	}
	e.Uint32(uint32(n))
	for _, w := range b.words[:n] {
		e.Uint32(w)
	}
}
