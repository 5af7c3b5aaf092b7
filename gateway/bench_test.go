// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"testing"

	"github.com/weir-storage/weir/gateway/report"
	"github.com/weir-storage/weir/volume"
)

// BenchmarkCreate creates files from the home and from another site. Two of three sites
// acknowledge, and all are on this machine's disk.
func BenchmarkCreate(b *testing.B) {
	for _, at := range []string{"a", "b"} {
		b.Run(map[string]string{"a": "home", "b": "elsewhere"}[at], func(b *testing.B) {
			c := newCluster(b, "a", "b", "c")
			id := c.create("v", manifest("v", 2))
			c.router("b", id)
			v := c.router(at, id)
			cl := &client{name: at}
			for i := 0; b.Loop(); i++ {
				if _, err := v.Create(b.Context(), cl.next(), volume.Root, fmt.Sprint("f", i),
					volume.CreateArgs{Type: volume.Regular}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkObserveIdle measures what a home costs in a second in which nothing changed.
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
