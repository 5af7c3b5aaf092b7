// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func TestJoinCRC(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	all := noise(300_000)
	for range 2000 {
		n := rng.IntN(len(all))
		if rng.IntN(4) == 0 {
			n = rng.IntN(20)
		}
		k := rng.IntN(n + 1)
		a, b := crc32.Checksum(all[:k], castagnoli), crc32.Checksum(all[k:n], castagnoli)
		if got, want := joinCRC(a, b, n-k), crc32.Checksum(all[:n], castagnoli); got != want {
			t.Fatalf("%d and %d bytes: %x, want %x", k, n-k, got, want)
		}
	}
}
