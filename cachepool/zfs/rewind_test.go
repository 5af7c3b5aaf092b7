// SPDX-License-Identifier: Apache-2.0

package zfs_test

import (
	"context"
	"errors"
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
	if err := p.Settled("one", p.Rewound("one")); err != nil {
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
// over restarts. It goes back between two marks: zfs-fuse, while it unmounts a dataset, waits for
// ever if something is asked in it at that moment.
func TestRewoundInUse(t *testing.T) {
	name, config, p := rewindable(t)
	ctx, stop := context.WithCancel(t.Context())
	heard := make(chan string, 1000)
	var watching sync.WaitGroup
	watching.Go(func() {
		p.Watch(ctx, time.Second, func(volume string, why error) { heard <- volume + ": " + why.Error() })
	})
	defer watching.Wait()
	defer stop()
	mark := filepath.Join(config.Path, "volumes", "two", "mark0")
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

// TestCloneIsNotTheVolume: a clone of a volume's dataset, which somebody made to look at something,
// does not take the place of the volume; one that does take its place is known not to be it.
func TestCloneIsNotTheVolume(t *testing.T) {
	name, config, p := rewindable(t)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	above := name + "/weir/volumes/"
	zfstest.Run(t, "zfs", "clone", above+"one@s", above+"one-look")
	path := filepath.Join(config.Path, "volumes")
	if err := os.WriteFile(filepath.Join(path, "one", "one", "log"), []byte("after"), 0o600); err != nil {
		t.Fatal(err)
	}
	p = reopen(t, config)
	isRewound(t, p, "beside a clone", false, false)
	d, err := p.Volume("one")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(d.Path(), "log")); err != nil || string(text) != "after" {
		t.Errorf("the volume has %q, %v", text, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	zfstest.Run(t, "zfs", "clone", above+"one@s", above+"three")
	if err := os.Rename(filepath.Join(path, "three", "one"), filepath.Join(path, "three", "three")); err != nil {
		t.Fatal(err)
	}
	p = reopen(t, config)
	if why := p.Rewound("three"); why == nil || !strings.Contains(why.Error(), "cloned") {
		t.Errorf("a clone in a volume's place: %v", why)
	}
	for _, v := range []string{"one", "two", "three"} { // snapshots keep the datasets of the first two
		if err := p.RemoveVolume(v); err != nil {
			t.Fatal(err)
		}
	}
}

// TestIdentityWentBack: the gateway's own dataset goes back, and the pool counts its openings on.
func TestIdentityWentBack(t *testing.T) {
	name, config, p := rewindable(t)
	zfstest.Run(t, "zfs", "snapshot", name+"/weir@s")
	id, boot := p.Incarnation(), p.Boot()
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		p = reopen(t, config)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	zfstest.Run(t, "zfs", "rollback", name+"/weir@s")
	if p = reopen(t, config); p.Incarnation() != id || p.Boot() != boot+3 {
		t.Errorf("it is %s at boot %d, want %s at boot %d", p.Incarnation(), p.Boot(), id, boot+3)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = reopen(t, config)
	next, err := p.NewIncarnation()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	zfstest.Run(t, "zfs", "rollback", name+"/weir@s")
	if p = reopen(t, config); p.Incarnation() == id || p.Incarnation() == next {
		t.Errorf("a former incarnation is back: %s, was %s and then %s", p.Incarnation(), id, next)
	}
}

// TestUnmounted: below the mountpoint of a dataset that somebody unmounted nothing is written.
func TestUnmounted(t *testing.T) {
	name, config, p := rewindable(t)
	zfstest.Run(t, "zfs", "unmount", name+"/weir/volumes/one")
	if _, err := p.Volume("one"); err == nil || !strings.Contains(err.Error(), "zfs mount "+name+"/weir/volumes/one") {
		t.Errorf("a volume whose dataset is not mounted: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(config.Path, "volumes", "one", "other")
	if err := os.WriteFile(below, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p = reopen(t, config)
	if _, err := p.Volume("one"); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a volume whose mountpoint has something: %v", err)
	}
	if _, err := p.Volume("two"); err != nil {
		t.Errorf("the other volume: %v", err)
	}
	if err := errors.Join(p.Close(), os.Remove(below)); err != nil {
		t.Fatal(err)
	}
	p = reopen(t, config)
	if _, err := p.Volume("one"); err != nil {
		t.Error(err)
	}
}
