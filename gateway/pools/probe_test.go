// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/weir-storage/weir/cachepool/crashfs"
)

// TestProbeOutlivesAFailedFsync: one fsync that failed is told, and the next one is at a file that
// can be synced again.
func TestProbeOutlivesAFailedFsync(t *testing.T) {
	disk := crashfs.NewDisk(crashfs.Config{Gateway: "g", Limit: 1 << 20, Rand: rand.New(rand.NewPCG(1, 1))})
	pool, err := disk.Open()
	if err != nil {
		t.Fatal(err)
	}
	p := &probe{pool: pool}
	defer p.close()
	look := p.sync
	if err := errors.Join(look(), look()); err != nil {
		t.Fatal(err)
	}
	for _, op := range []crashfs.Op{crashfs.OpSync, crashfs.OpWrite} {
		disk.Fail(op, 1, crashfs.ErrIO)
		if err := look(); !errors.Is(err, crashfs.ErrIO) {
			t.Fatalf("with a disk that fails: %v", err)
		}
		if err := look(); err != nil {
			t.Errorf("when the disk is well again: %v", err)
		}
	}
}
