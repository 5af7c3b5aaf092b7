// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	pooldir "github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/cachepool/zfs"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/gateway/pools"
)

// watchEvery is how often the gateway asks how its ZFS pool is.
const watchEvery = 3 * time.Second

// openPools opens the cache pools, the main one first. The caller closes those that are returned.
func openPools(ctx context.Context, c *config.Config, random io.Reader, logger *slog.Logger) (out []pools.Pool, err error) {
	for i, one := range append([]config.Pool{c.Pool}, c.Pools...) {
		field := "pool"
		if i > 0 {
			field = fmt.Sprintf("pools[%d]", i-1)
		}
		p, err := OpenPool(ctx, one, c.Gateway, random, logger)
		if err != nil {
			return out, fmt.Errorf("%s.%w", field, err)
		}
		p.Name, p.Labels = one.Name, one.Labels
		out = append(out, p)
	}
	return out, nil
}

// closePools closes them.
func closePools(all []pools.Pool) (err error) {
	for _, p := range all {
		err = errors.Join(err, p.Close())
	}
	return err
}

// OpenPool opens a cache pool. The caller closes it.
func OpenPool(ctx context.Context, c config.Pool, gateway string, random io.Reader, logger *slog.Logger) (pools.Pool, error) {
	z := c.ZFS
	if z == nil {
		p, err := pooldir.Open(pooldir.Config{Path: c.Path, Gateway: gateway, Limit: int64(c.Size), Random: random, Log: logger})
		if err != nil {
			return pools.Pool{}, fmt.Errorf("path: %w", err)
		}
		return pools.Pool{Pool: p, Report: p.Report}, nil
	}
	cfg := zfs.Config{Path: c.Path, Dataset: z.Dataset, Gateway: gateway, Limit: int64(c.Size), Random: random,
		Log: logger, Tools: zfs.Tools{Root: z.HostRoot}}
	if d := z.Devices; d != nil {
		cfg.Devices = &zfs.Devices{Data: d.Data, Layout: zfs.Layout(d.Layout), Cache: d.Cache, Log: d.Log, MirrorLog: d.MirrorLog}
	}
	p, err := zfs.Open(ctx, cfg)
	if err != nil {
		return pools.Pool{}, fmt.Errorf("zfs: %w", err)
	}
	return pools.Pool{Pool: p, Report: p.Report,
		Watch: func(ctx context.Context, lost func(string, error)) { p.Watch(ctx, watchEvery, lost) }}, nil
}
