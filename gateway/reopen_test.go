// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/volume"
)

// TestReopenOfManySegments: a gateway is killed while clients write to a volume with many segments.
// It prints how long the next one takes until the volume answers, and what memory the process has.
// With WEIR_SOAK=1 there are 16 000 segments, as of 1 TiB.
func TestReopenOfManySegments(t *testing.T) {
	segments := uint64(800)
	if os.Getenv("WEIR_SOAK") == "1" {
		segments = 16_000
	}
	c := newCluster(t)
	disk := crashfs.NewDisk(crashfs.Config{Gateway: "ga", Limit: 4 << 30, Rand: mathrand.New(mathrand.NewPCG(16, 16))})
	c.pool = func(_ string, other cachepool.Pool) cachepool.Pool {
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		p, err := disk.Open()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	c.fs = func(string) vfs.FS { return disk.FS() }
	c.due = checkpoints.Due{Bytes: 1 << 40, Shrunk: 1 << 40, Segments: segments / 4, Grace: time.Hour}
	c.add("a")
	id := c.create("v", manifest("v", 1))
	r := c.router("a", id)
	cl := &client{name: "fill"}
	h := file(t, r, cl, "f")
	for seq := r.Copy().Log.End().Seq; seq < segments; seq++ {
		if _, err := r.Write(t.Context(), cl.next(), h, seq*10, []byte("0123456789"), true); err != nil {
			t.Fatal(err)
		}
		r.Copy().Replica.Roll()
		c.until("a segment ends", func() error {
			if r.Copy().Log.End().Seq <= seq {
				return fmt.Errorf("it is %d", seq)
			}
			return nil
		})
	}

	ctx, cancel := context.WithCancel(t.Context())
	var names []string
	done := make(chan error, 1)
	go func() {
		cl := &client{name: "load"}
		for {
			n := fmt.Sprint("load ", len(names))
			_, err := r.Create(ctx, cl.next(), volume.Root, n, volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
			if err != nil {
				done <- err
				return
			}
			names = append(names, n)
		}
	}()
	time.Sleep(time.Second)
	disk.Kill()
	cancel()
	t.Log("under load:", len(names), "files,", <-done)
	n := c.nodes["a"]
	n.stop()
	t.Log("it ends:", <-n.done)
	n.stop = nil
	runtime.GC()

	began := time.Now()
	c.start("a")
	r = c.router("a", id)
	took := time.Since(began)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	t.Logf("%d segments: the volume answers %v after the start; heap %d MiB, with the disk and the store of the test",
		r.Copy().Log.End().Seq, took.Round(time.Millisecond), (mem.HeapSys-mem.HeapReleased)>>20)
	has(t, r, names)
	p := make([]byte, 10*segments+1)
	if got, _, err := r.Read(t.Context(), volume.Request{}, h, 0, p); err != nil || uint64(got) != 10*segments {
		t.Errorf("read %d of %d: %v", got, 10*segments, err)
	}
}
