// SPDX-License-Identifier: Apache-2.0

package zfs_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool/zfs"
	"github.com/weir-storage/weir/cachepool/zfs/zfstest"
)

// rewindable is a pool with volumes one and two, each with a file, and a snapshot of them.
func rewindable(t *testing.T) (name string, config zfs.Config, p *zfs.Pool) {
	t.Helper()
	name, config = tank(t, zfs.Devices{Data: []string{device(t, "data")}})
	p = reopen(t, config)
	for _, v := range []string{"one", "two"} {
		d, err := p.Volume(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d.Path(), "log"), []byte("before"), 0o600); err != nil {
			t.Fatal(err)
		}
		zfstest.Run(t, "zfs", "snapshot", name+"/weir/volumes/"+v+"@s")
	}
	return name, config, p
}

func reopen(t *testing.T, config zfs.Config) *zfs.Pool {
	t.Helper()
	p, err := zfs.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// isRewound checks of which of the volumes the pool says that they may have lost something.
func isRewound(t *testing.T, p *zfs.Pool, when string, one, two bool) {
	t.Helper()
	for v, want := range map[string]bool{"one": one, "two": two} {
		if why := p.Rewound(v); (why != nil) != want {
			t.Errorf("%s: volume %s: %v, want rewound: %v", when, v, why, want)
		}
	}
}

// TestRewoundWhileClosed: a dataset that went back to a snapshot while nobody used it is known to
// have done so until whoever uses it knows, over restarts (protocol-3).
func TestRewoundWhileClosed(t *testing.T) {
	name, config, p := rewindable(t)
	isRewound(t, p, "at first", false, false)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	zfstest.Run(t, "zfs", "rollback", name+"/weir/volumes/one@s")
	for range 2 {
		p = reopen(t, config)
		isRewound(t, p, "after the rollback", true, false)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	p = reopen(t, config)
	if err := p.Settled("one"); err != nil {
		t.Fatal(err)
	}
	isRewound(t, p, "settled", false, false)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = reopen(t, config)
	isRewound(t, p, "settled, after a restart", false, false)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	zfstest.Run(t, "zfs", "rollback", name+"/weir/volumes/two@s")
	p = reopen(t, config)
	isRewound(t, p, "after a second rollback", false, true)
	if err := p.RenameVolume("two", "aside-two"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Volume("two"); err != nil {
		t.Fatal(err)
	}
	isRewound(t, p, "set aside", false, false)
}

// TestRewoundInUse: a dataset that goes back while it is used is told of, once it happened, and
// over restarts.
func TestRewoundInUse(t *testing.T) {
	name, config, p := rewindable(t)
	ctx, stop := context.WithCancel(t.Context())
	heard := make(chan string, 1000)
	var watching sync.WaitGroup
	watching.Go(func() {
		p.Watch(ctx, 50*time.Millisecond, func(volume string, why error) { heard <- volume + ": " + why.Error() })
	})
	defer watching.Wait()
	defer stop()
	mark := filepath.Join(config.Path, "volumes", "two", "mark")
	for first := ""; ; time.Sleep(10 * time.Millisecond) { // Watch is to have been there twice
		text, err := os.ReadFile(mark)
		if first == "" {
			first = string(text)
		}
		if err == nil && first != "" && string(text) != first {
			break
		}
	}
	select {
	case v := <-heard:
		t.Fatalf("volume %s is said to have gone back", v)
	default:
	}
	zfstest.Run(t, "zfs", "rollback", name+"/weir/volumes/two@s")
	if got := <-heard; !strings.HasPrefix(got, "two: dataset "+name+"/weir/volumes/two") {
		t.Errorf("heard %q", got)
	}
	isRewound(t, p, "after the rollback", false, true)
	stop()
	watching.Wait()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = reopen(t, config)
	isRewound(t, p, "after a restart", false, true)
}
