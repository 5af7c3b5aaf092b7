// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"testing"

	"github.com/weir-storage/weir/gateway/report"
	"github.com/weir-storage/weir/volume"
)

// BenchmarkCreate creates files in a volume that two of three sites acknowledge, all on this
// machine's disk, from the home and from another site.
func BenchmarkCreate(b *testing.B) {
	for _, at := range []string{"a", "b"} {
		b.Run(map[string]string{"a": "home", "b": "elsewhere"}[at], func(b *testing.B) {
			c := newCluster(b, "a", "b", "c")
			id := c.create("v", manifest("v", 2))
			c.router("b", id)
			v := c.router(at, id)
			cl := &client{name: at}
			for i := 0; b.Loop(); i++ {
				if _, err := v.Create(b.Context(), cl.next(), volume.Root, fmt.Sprint("f", i), volume.CreateArgs{Type: volume.Regular}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkObserveIdle is what a home costs every second at which nothing changed.
func BenchmarkObserveIdle(b *testing.B) {
	c := newCluster(b, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	c.router("b", id)
	g := c.nodes["a"].gateway
	last := new(report.Written)
	for b.Loop() {
		if err := g.reporter.Observe(b.Context(), g.copies.Copy(id), last); err != nil {
			b.Fatal(err)
		}
	}
}
