// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/store"
)

// StoreSource reads sealed segments from a site's store. Its errors are the store's.
type StoreSource struct {
	Store store.Store
	Site  string
}

var _ log.Source = StoreSource{}

// String implements log.Source.
func (s StoreSource) String() string { return "store of site " + s.Site }

// ReadSegment implements log.Source.
func (s StoreSource) ReadSegment(ctx context.Context, name string, off int64, p []byte) error {
	return s.Store.GetRange(ctx, name, off, p)
}
