// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weir-storage/weir/cachepool/crashfs"
)

// TestProbeOutlivesAFailedFsync: the gateway is unready after one fsync that failed, and ready
// again when the disk is well.
func TestProbeOutlivesAFailedFsync(t *testing.T) {
	disk := crashfs.NewDisk(crashfs.Config{Gateway: "g", Limit: 1 << 20, Rand: rand.New(rand.NewPCG(1, 1))})
	pool, err := disk.Open()
	if err != nil {
		t.Fatal(err)
	}
	h := &Health{heard: true, listening: true}
	p := &probe{pool: pool}
	defer p.close()
	look := func() error { return h.probe(p.sync()) }
	if err := errors.Join(look(), look(), h.Ready()); err != nil {
		t.Fatal(err)
	}
	for _, op := range []crashfs.Op{crashfs.OpSync, crashfs.OpWrite} {
		disk.Fail(op, 1, crashfs.ErrIO)
		if err := look(); !errors.Is(err, crashfs.ErrIO) {
			t.Fatalf("with a disk that fails: %v", err)
		}
		if err := h.Ready(); err == nil || !strings.Contains(err.Error(), "the pool takes no writes") {
			t.Errorf("with a disk that fails it is ready: %v", err)
		}
		if err := errors.Join(look(), h.Ready()); err != nil {
			t.Errorf("when the disk is well again: %v", err)
		}
	}
}
