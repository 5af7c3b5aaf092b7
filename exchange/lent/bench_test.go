// SPDX-License-Identifier: Apache-2.0

package lent_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
)

// BenchmarkStore puts and gets objects of 1 MiB: through a lent store, and in the folder below it
// without one.
func BenchmarkStore(b *testing.B) {
	const size = 1 << 20
	r := newRig(b)
	r.agree(ended, "B", 64<<30, "b-0")
	r.start()
	ctx := b.Context()
	bucket := r.as("B", "b-0", pki.PartGateway).bucket(ended)
	r.eventually("an object is put", func() bool { return put(ctx, bucket, "b-0/first", 1) == nil })
	text := bytes.Repeat([]byte("x"), size)
	for _, x := range []struct {
		name string
		s    store.Store
	}{{"lent", bucket}, {"folder", r.below}} {
		n := 0
		b.Run(x.name+"/put", func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				n++
				if err := x.s.Put(ctx, fmt.Sprintf("b-0/%s-%d", x.name, n), size, bytes.NewReader(text)); err != nil {
					b.Fatal(err)
				}
			}
		})
		p := make([]byte, size)
		b.Run(x.name+"/get", func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				if err := x.s.GetRange(ctx, fmt.Sprintf("b-0/%s-1", x.name), 0, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
