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
const watchEvery = 3 * time.Second

// watch looks how a pool is until ctx ends, see gateway.Config.
type watch func(ctx context.Context, lost func(volume string, why error))

// reporter tells how the storage below a pool is.
type reporter interface{ Report() cachepool.Report }

// opened is an open pool.
type opened struct {
	cachepool.Pool
	reporter
	watch watch // nil: nothing need be watched
}

// openPool opens the cache pool.
func openPool(ctx context.Context, c *config.Config, random io.Reader, logger *slog.Logger) (*opened, error) {
	z := c.Pool.ZFS
	if z == nil {
		p, err := pooldir.Open(pooldir.Config{Path: c.Pool.Path, Gateway: c.Gateway, Limit: int64(c.Pool.Size),
			Random: random, Log: logger})
		if err != nil {
			return nil, fmt.Errorf("pool.path: %w", err)
		}
		return &opened{p, p, nil}, nil
	}
	cfg := zfs.Config{Path: c.Pool.Path, Dataset: z.Dataset, Gateway: c.Gateway, Limit: int64(c.Pool.Size), Random: random,
		Log: logger, Tools: zfs.Tools{Root: z.HostRoot}}
	if d := z.Devices; d != nil {
		cfg.Devices = &zfs.Devices{Data: d.Data, Layout: zfs.Layout(d.Layout), Cache: d.Cache, Log: d.Log, MirrorLog: d.MirrorLog}
	}
	p, err := zfs.Open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("pool.zfs: %w", err)
	}
	return &opened{p, p, func(ctx context.Context, lost func(string, error)) { p.Watch(ctx, watchEvery, lost) }}, nil
}
