// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/memory"
	"github.com/weir-storage/weir/store/storetest"
)

func TestSuite(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memory.New() })
}

// The counting wrapper is a store, and counts what passed.
func TestCounting(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memory.NewCounting(memory.New()) })
	ctx := t.Context()
	m := memory.New()
	c := memory.NewCounting(m)
	down := errors.New("down")
	m.SetFault(func(op, _ string) error {
		if op == "put" {
			return down
		}
		return nil
	})
	if err := c.Put(ctx, "a", 5, strings.NewReader("hello")); !errors.Is(err, down) {
		t.Fatal(err)
	}
	m.SetFault(nil)
	if err := c.Put(ctx, "a", 5, strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	m.Damage("a", func(p []byte) []byte { p[0] ^= 1; return p })
	p := make([]byte, 2)
	if err := c.GetRange(ctx, "a", 0, p); err != nil || string(p) != "ie" {
		t.Fatalf("%q, %v", p, err)
	}
	if err := c.GetRange(ctx, "a", 4, p); !errors.Is(err, store.ErrShort) {
		t.Fatal(err)
	}
	if c.Puts.Load() != 2 || c.BytesIn.Load() != 5 || c.Gets.Load() != 2 || c.BytesOut.Load() != 2 {
		t.Fatalf("counted puts %d of %d bytes, gets %d of %d bytes", c.Puts.Load(), c.BytesIn.Load(), c.Gets.Load(), c.BytesOut.Load())
	}
}
