// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"time"
)

// Random returns what source returns, each 32 bytes hashed with the clocks as they are then. A
// machine that is resumed from a picture of its memory may get the same from source as the machine
// that the picture was taken of: the kernel seeds its generator anew only if the hypervisor tells
// it. The clocks are read in nanoseconds, and hardly ever show the same twice. They are
// no secret, and what is returned is as hard to guess as what source returns.
func Random(source io.Reader, now func() time.Time, boottime func() time.Duration) io.Reader {
	return &mixed{source, now, boottime}
}

type mixed struct {
	source   io.Reader
	now      func() time.Time
	boottime func() time.Duration
}

// Read fills p, or fails.
func (m *mixed) Read(p []byte) (n int, err error) {
	for n < len(p) {
		var b [sha256.Size + 8 + 8]byte
		if _, err := io.ReadFull(m.source, b[:sha256.Size]); err != nil {
			return n, err
		}
		binary.BigEndian.PutUint64(b[sha256.Size:], uint64(m.now().UnixNano()))
		binary.BigEndian.PutUint64(b[sha256.Size+8:], uint64(m.boottime()))
		sum := sha256.Sum256(b[:])
		n += copy(p[n:], sum[:])
	}
	return n, nil
}
