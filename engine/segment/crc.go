// SPDX-License-Identifier: Apache-2.0

package segment

// polynomial is Castagnoli's (RFC 3720 B.4), reflected: the highest bit is the coefficient of x^0.
const polynomial = 0x82f63b78

// squares has x^(2^k) modulo the polynomial, for each k.
var squares = func() (t [32]uint32) {
	t[0] = 1 << 30 // x
	for k := 1; k < len(t); k++ {
		t[k] = product(t[k-1], t[k-1])
	}
	return t
}()

// product multiplies two residues modulo the polynomial.
func product(a, b uint32) (p uint32) {
	for m := uint32(1) << 31; m != 0; m >>= 1 {
		if a&m != 0 {
			p ^= b
		}
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= polynomial
		}
	}
	return p
}

// joinCRC returns the CRC-32C of a followed by b, of which it knows the checksums and the length of
// b. So parts of a frame are summed up by several processors, while they are in their caches. The
// method is zlib's crc32_combine.
func joinCRC(a, b uint32, n int) uint32 {
	shift := uint32(1) << 31 // x^0
	for k := 3; n > 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			shift = product(squares[k&31], shift)
		}
	}
	return product(shift, a) ^ b
}
