// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/weir-storage/weir/store"
)

// Counting is a store that counts what passes through it. Read the counters at any time.
type Counting struct {
	under store.Store

	// Operations, failed ones too.
	Puts, Gets, Stats, Lists, Deletes atomic.Int64
	// BytesIn and BytesOut are those of objects in successful Puts and GetRanges.
	BytesIn, BytesOut atomic.Int64
}

var _ store.Store = (*Counting)(nil)

// NewCounting counts what passes to under.
func NewCounting(under store.Store) *Counting { return &Counting{under: under} }

// Put implements Store.
func (c *Counting) Put(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
	c.Puts.Add(1)
	err := c.under.Put(ctx, name, size, body)
	if err == nil {
		c.BytesIn.Add(size)
	}
	return err
}

// Replace implements store.Replacer. It counts as a Put.
func (c *Counting) Replace(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
	c.Puts.Add(1)
	err := store.Replace(ctx, c.under, name, size, body)
	if err == nil {
		c.BytesIn.Add(size)
	}
	return err
}

// GetRange implements Store.
func (c *Counting) GetRange(ctx context.Context, name string, off int64, p []byte) error {
	c.Gets.Add(1)
	err := c.under.GetRange(ctx, name, off, p)
	if err == nil {
		c.BytesOut.Add(int64(len(p)))
	}
	return err
}

// Stat implements Store.
func (c *Counting) Stat(ctx context.Context, name string) (store.Info, error) {
	c.Stats.Add(1)
	return c.under.Stat(ctx, name)
}

// List implements Store.
func (c *Counting) List(ctx context.Context, prefix string, fn func(store.Info) error) error {
	c.Lists.Add(1)
	return c.under.List(ctx, prefix, fn)
}

// Delete implements Store.
func (c *Counting) Delete(ctx context.Context, name string) error {
	c.Deletes.Add(1)
	return c.under.Delete(ctx, name)
}
