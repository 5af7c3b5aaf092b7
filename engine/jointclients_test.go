// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/volume"
)

// register is a file with one writer. Its contents are the number of the last write.
type register struct {
	handle volume.Handle
	stable bool
	begun  atomic.Uint64 // the newest number that may be there
	acked  atomic.Uint64 // the newest that must be there
	seen   atomic.Uint64 // the newest that a reader got; of a stable register it stays, too
}

// contentOf is what the nth write writes.
func contentOf(n uint64) []byte {
	return bytes.Repeat(binary.BigEndian.AppendUint64(nil, n), 20+int(n*37%150))
}

func raise(v *atomic.Uint64, to uint64) {
	for old := v.Load(); old < to && !v.CompareAndSwap(old, to); old = v.Load() {
	}
}

// clients are writers and readers of registers on one gateway.
type clients struct {
	*testing.T
	j         *joint
	registers []*register
}

// write makes the next write of a register.
func (c *clients) write(r *register) error {
	n := r.begun.Add(1)
	ctx := context.Background()
	// All writes are of one length, so that a shorter one leaves nothing of a longer.
	data := make([]byte, 1500)
	copy(data, contentOf(n))
	if _, err := c.j.engine.Write(ctx, asRoot, r.handle, 0, data, r.stable); err != nil {
		return err
	}
	if !r.stable {
		if n%4 != 0 {
			return nil
		}
		if _, err := c.j.engine.Commit(ctx, asRoot, r.handle); err != nil {
			return err
		}
	}
	raise(&r.acked, n)
	return nil
}

// read reads a register, which must have what the last write wrote that ended before, or a later
// one.
func (c *clients) read(r *register) error {
	low := max(r.acked.Load(), r.seen.Load())
	p := make([]byte, 2000)
	n, _, err := c.j.engine.Read(context.Background(), asRoot, r.handle, 0, p)
	if err != nil {
		return err
	}
	high := r.begun.Load()
	got := uint64(0)
	if n > 0 {
		got = binary.BigEndian.Uint64(p)
		want := make([]byte, 1500)
		copy(want, contentOf(got))
		if !bytes.Equal(p[:n], want) {
			return fmt.Errorf("%w: write %d is there in part: %x", errWrong, got, p[:n])
		}
	}
	if got < low || got > high {
		return fmt.Errorf("%w: a read got write %d, after %d was acknowledged or read, and before %d began", errWrong, got, low, high+1)
	}
	raise(&r.seen, got)
	return nil
}

var errWrong = errors.New("wrong answer")

// tend is what the gateway does by itself meanwhile.
func (c *clients) tend(r *rand.Rand) error {
	switch r.IntN(5) {
	case 0:
		return c.j.log.Roll()
	case 1:
		return c.j.upload()
	case 2:
		return c.j.evict(r)
	case 3:
		return c.j.engine.Flush()
	}
	return c.j.log.SyncWatermark()
}

// rest checks what a crash left, and makes it what later reads begin with.
func (c *clients) rest() {
	for i, r := range c.registers {
		if !r.stable {
			r.seen.Store(0)
		}
		if err := c.read(r); err != nil {
			c.Fatalf("after a crash: register %d: %v", i, err)
		}
	}
}

// TestJointClients has several clients write and read at once, until the power goes. Each file is a
// register with one writer, so its history is linearizable if no read goes back.
func TestJointClients(t *testing.T) {
	if raced {
		t.Skip("a test of disks that fail runs without the race detector")
	}
	const seeds, rounds = 250, 3
	var crashes atomic.Int64
	t.Run("all", func(t *testing.T) {
		forSeeds(t, seeds, func(t *testing.T, seed uint64) {
			random := rand.New(rand.NewPCG(seed, 31))
			c := &clients{T: t, j: newJoint(t.Name(), seed, 1<<30)}
			start := func() {
				err := errors.Join(c.j.open())
				if err == nil {
					err = errors.Join(c.j.settle(), c.j.lead())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			start()
			for i := range 3 {
				args := volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded}
				made, err := c.j.engine.Create(t.Context(), asRoot, volume.Root, fmt.Sprint(i), args)
				if err != nil {
					t.Fatal(err)
				}
				c.registers = append(c.registers, &register{handle: made.Attr.Handle, stable: i != 0})
			}
			for range rounds {
				c.j.disk.CrashAt(20 + random.IntN(150))
				c.round(random)
				crashes.Add(1)
				c.j.end()
				start()
				c.rest()
			}
			if err := c.j.close(); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Logf("%d crashes", crashes.Load())
}

// round has all at work until the power goes.
func (c *clients) round(random *rand.Rand) {
	var wg sync.WaitGroup
	work := func(do func(r *rand.Rand) error) {
		r := rand.New(rand.NewPCG(random.Uint64(), 1))
		wg.Go(func() {
			for {
				err := do(r)
				if c.j.died() {
					if errors.Is(err, errWrong) {
						c.Error(err)
					}
					return
				}
				if err != nil && !errors.Is(err, cachepool.ErrFull) {
					c.Error(err)
					c.j.disk.Crash()
					return
				}
			}
		})
	}
	for _, r := range c.registers {
		work(func(*rand.Rand) error { return c.write(r) })
	}
	for range 2 {
		work(func(r *rand.Rand) error { return c.read(c.registers[r.IntN(len(c.registers))]) })
	}
	work(func(r *rand.Rand) error { return c.tend(r) })
	wg.Wait()
}
