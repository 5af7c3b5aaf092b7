// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation"
)

// TestMemoryParts: what is not said follows from what is, and the parts with bounds leave a quarter
// of the whole at least.
func TestMemoryParts(t *testing.T) {
	const mib = federation.Bytes(1 << 20)
	for _, c := range []struct {
		name                   string
		text                   string
		memory, cache, clients federation.Bytes
	}{
		{"nothing", "", 512 * mib, 128 * mib, 128 * mib},
		{"the whole", "memory: 2Gi", 2048 * mib, 512 * mib, 512 * mib},
		{"a small whole", "memory: 100Mi", 100 * mib, 25 * mib, 32 * mib},
		{"a cache", "cache: 1Gi", (1536 + 128) * mib / 5 * 8, 1024 * mib, 128 * mib},
		{"a small cache", "cache: 16Mi", 512 * mib, 16 * mib, 128 * mib},
		{"all", "memory: 1Gi\ncache: 256Mi\nclientMemory: 256Mi", 1024 * mib, 256 * mib, 256 * mib},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := load(t, strings.Replace(good, "cache: 256Mi", c.text, 1))
			if err != nil {
				t.Fatal(err)
			}
			if got.Memory != c.memory || got.Cache != c.cache || got.ClientMemory != c.clients {
				t.Errorf("memory %v, cache %v, clients %v, want %v, %v, %v", got.Memory, got.Cache, got.ClientMemory, c.memory, c.cache,
					c.clients)
			}
		})
	}
}
