// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/federation"
)

// tuned is a pool that remembers how it is to treat volumes.
type tuned struct {
	cachepool.Pool
	mu    *sync.Mutex
	asked map[string]cachepool.Tuning
}

func (p tuned) Tune(id string, t cachepool.Tuning) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[id] = t
}

// How a volume's blocks are made, kept in memory and treated by ZFS changes with its record, while
// it is open, and is so after a restart.
func TestTuningIsLive(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	var mu sync.Mutex
	asked := map[string]cachepool.Tuning{}
	c.pool = func(_ string, p cachepool.Pool) cachepool.Pool { return tuned{p, &mu, asked} }
	again := func() {
		c.stop("a")
		mu.Lock()
		clear(asked)
		mu.Unlock()
		c.start("a")
	}
	again()
	id := c.create("v", manifest("v", 1))
	r, cl := c.router("a", id), &client{name: "x"}
	f := file(t, r, cl, "f")
	until := func(when string, want cachepool.Tuning) {
		t.Helper()
		c.until("the pool treats it so "+when, func() error {
			mu.Lock()
			defer mu.Unlock()
			if got, ok := asked[id]; !ok || got != want {
				return fmt.Errorf("asked for is %+v (%t)", got, ok)
			}
			return nil
		})
	}
	blocks := func(off uint64) int {
		t.Helper()
		if _, err := c.router("a", id).Write(within(t, hang), cl.next(), f, off, mib(1)[:64<<10], true); err != nil {
			t.Fatal(err)
		}
		refs, _, err := c.at("a").copies.Copy(id).Engine.Blocks(within(t, hang), f, off, 100)
		if err != nil {
			t.Fatal(err)
		}
		return len(refs)
	}
	until("at first", cachepool.Tuning{})
	if n := blocks(1 << 20); n != 1 {
		t.Errorf("64 KiB are %d blocks", n)
	}
	c.change(id, func(v *federation.Volume) {
		v.Spec.Cache = federation.Cache{ARC: federation.KeptMetadata, L2ARC: federation.KeptNone, Log: federation.LogThroughput,
			BlockSize: 8 << 10, Compression: federation.CompressionNone}
	})
	want := cachepool.Tuning{ARC: "Metadata", L2ARC: "None", Log: "Throughput", RecordSize: 32 << 10}
	until("once it is asked for", want)
	c.until("blocks are small", func() error {
		if n := blocks(2 << 20); n != 8 {
			return fmt.Errorf("64 KiB are %d blocks", n)
		}
		return nil
	})
	again()
	until("after a restart", want)
}

// A reserve that is more than the pool can keep is told with what is kept of it.
func TestReserveAboveThePool(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	id := c.create("v", strings.Replace(manifest("v", 1), "spec:\n", "spec:\n  cache: {reserve: 3Gi}\n", 1))
	c.router("a", id)
	if k := kept(c.at("a"), id); k.Asked != 3<<30 || k.Reserve <= 0 || k.Reserve > 1<<30*3/4 {
		t.Errorf("%+v", k)
	}
	c.change(id, func(v *federation.Volume) { v.Spec.Cache.Reserve = 100 << 20 })
	c.until("what fits is kept", func() error {
		if k := kept(c.at("a"), id); k.Asked != 100<<20 || k.Reserve != k.Asked {
			return fmt.Errorf("%+v", k)
		}
		return nil
	})
}
