// SPDX-License-Identifier: Apache-2.0

package segment

import "sync"

// Memory of blocks is used again. To get it anew costs more than to decrypt what is read into it:
// the kernel and the runtime both clear it first.

// bufferSlack is how much longer than a size a buffer is. A block that does not compress begins one
// byte behind its sealed bytes, so a buffer is a byte shorter each time that it is used again.
const bufferSlack = 8

// buffers has what Recycle got, by size: MaxBlock, and each half of that down to minBuffer.
var buffers [5]sync.Pool // of *[]byte

const minBuffer = MaxBlock >> 4

// bufferClass returns the smallest size that has n bytes and what sealing adds.
func bufferClass(n int) (class, size int) {
	class, size = len(buffers)-1, minBuffer
	for class > 0 && n > size+size/bufferSlack {
		class, size = class-1, 2*size
	}
	return class, size + size/bufferSlack
}

// Buffer returns memory of n bytes for a sealed block. It may have any content. The caller owns it,
// and may give it to Recycle, or not.
func Buffer(n int) []byte {
	class, size := bufferClass(n)
	if b, ok := buffers[class].Get().(*[]byte); ok && cap(*b) >= n {
		return (*b)[:n]
	}
	return make([]byte, n, max(n, size))
}

// Recycle has Buffer return memory again. Nobody uses b, or what shares its memory, from now on. It
// may be the block that OpenBlock opened in place.
func Recycle(b []byte) {
	n := cap(b)
	if n < minBuffer+minBuffer/16 {
		return // there is no room for one of the smallest blocks any more
	}
	class, size := 0, MaxBlock
	for n < size+size/(2*bufferSlack) {
		class, size = class+1, size/2
	}
	b = b[:n]
	if invariants {
		for i := range b {
			b[i] = 0xdb // who still reads it is found out
		}
	}
	buffers[class].Put(&b)
}
