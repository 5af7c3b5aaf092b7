// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// Test starts clusters for a test and removes them at its end, also when the test is interrupted.
// It skips the test unless root runs it. When the test fails, Test keeps the logs of all processes
// and pods and what the API servers know, and logs their folder.
func Test(t *testing.T, cfg Config) *Clusters {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces and virtual machines need root: run it with sudo")
	}
	dir, err := os.MkdirTemp("", "weir-kube-")
	if err != nil {
		t.Fatal(err)
	}
	cfg.StateDir, cfg.Progress, cfg.Log = dir, t.Output(), slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	c, err := Up(ctx, cfg)
	if err != nil {
		stop()
		t.Fatalf("%v; logs are in %s", err, dir)
	}
	t.Cleanup(func() {
		interrupted := ctx.Err() != nil
		if t.Failed() && !interrupted {
			dump, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			if err := c.Dump(dump); err != nil {
				t.Error(err)
			}
			cancel()
		}
		if err := c.Down(); err != nil {
			t.Error(err)
		}
		stop()
		if left := c.Leftovers(); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		if t.Failed() && !interrupted {
			t.Logf("logs are in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	// An interrupted test would go on without its clusters until its deadline.
	go func() {
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), context.Canceled) && t.Context().Err() == nil {
			_ = c.Down()
			os.Exit(130)
		}
	}()
	return c
}
