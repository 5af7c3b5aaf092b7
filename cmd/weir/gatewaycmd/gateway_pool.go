// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/weir-storage/weir/cachepool"
	pooldir "github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/cachepool/zfs"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
)

// watchEvery is how often the gateway asks how its ZFS pool is.
const watchEvery = 5 * time.Second

// watch looks how a pool is until ctx ends, see gateway.Config.
type watch func(ctx context.Context, lost func(volume string, why error))

// openPool opens the cache pool. It returns how to watch it; nil: nothing watches it.
func openPool(ctx context.Context, c *config.Config, random io.Reader, logger *slog.Logger) (cachepool.Pool, watch, error) {
	z := c.Pool.ZFS
	if z == nil {
		p, err := pooldir.Open(pooldir.Config{Path: c.Pool.Path, Gateway: c.Gateway, Limit: int64(c.Pool.Size),
			Random: random, Log: logger})
		if err != nil {
			return nil, nil, fmt.Errorf("pool.path: %w", err)
		}
		return p, nil, nil
	}
	cfg := zfs.Config{Path: c.Pool.Path, Dataset: z.Dataset, Gateway: c.Gateway, Limit: int64(c.Pool.Size), Random: random, Log: logger}
	if d := z.Devices; d != nil {
		cfg.Devices = &zfs.Devices{Data: d.Data, Layout: zfs.Layout(d.Layout), Cache: d.Cache, Log: d.Log, MirrorLog: d.MirrorLog}
	}
	p, err := zfs.Open(ctx, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("pool.zfs: %w", err)
	}
	return p, func(ctx context.Context, lost func(string, error)) { p.Watch(ctx, watchEvery, lost) }, nil
}
