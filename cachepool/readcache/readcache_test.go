// SPDX-License-Identifier: Apache-2.0

package readcache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
)

const (
	testFile  = 16 << 10
	testBlock = 1 << 10
	testLimit = 1 << 20
)

// bed is a pool with a cache.
type bed struct {
	*testing.T
	disk  *crashfs.Disk
	pool  cachepool.Pool
	cache *Cache
}

func newBed(t *testing.T, limit int64) *bed {
	b := &bed{T: t, disk: crashfs.NewDisk(crashfs.Config{Gateway: "g", Limit: limit, Rand: rand.New(rand.NewPCG(1, 2))})}
	b.start()
	return b
}

// start opens the pool after a crash, or for the first time.
func (b *bed) start() {
	b.Helper()
	pool, err := b.disk.Open()
	if err != nil {
		b.Fatal(err)
	}
	b.pool, b.cache = pool, New(Config{Room: pool.Room(), FileSize: testFile, Slack: 1})
}

// kept is what is kept of a volume.
func (b *bed) kept(name string) int64 { return b.cache.Status().Volumes[name].Used() }

func (b *bed) volume(name string, share Share) *Volume {
	b.Helper()
	dir, err := b.pool.Volume(name)
	if err != nil {
		b.Fatal(err)
	}
	v, err := b.cache.Open(name, dir, share)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// room checks that the pool's room counts exactly the files that are there.
func (b *bed) room() {
	b.Helper()
	names, err := b.pool.ListVolumes()
	if err != nil {
		b.Fatal(err)
	}
	var want int64
	for _, name := range names {
		dir, err := b.pool.Volume(name)
		if err != nil {
			b.Fatal(err)
		}
		files, err := dir.List()
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range files {
			want += f.Size
		}
	}
	if got := b.pool.Room().Status().Used; got != want {
		b.Errorf("the room counts %d bytes, the files have %d", got, want)
	}
}

func seg(n uint64) Segment {
	s := Segment{Seq: n}
	binary.BigEndian.PutUint64(s.Hash[:], n*7919)
	return s
}

// sealed is what a block has.
func sealed(v string, s Segment, n int) []byte {
	b := make([]byte, testBlock)
	r := rand.NewChaCha8([32]byte{byte(s.Seq), byte(s.Seq >> 8), byte(n), byte(n >> 8), v[0]})
	_, _ = r.Read(b) // never fails
	return b
}

func at(n int) Block { return Block{Off: uint32(100 + n*testBlock), Len: testBlock} }

// until waits for what nobody tells of.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not come true that %s", what)
		}
	}
}

// put keeps blocks from to to.
func put(v *Volume, s Segment, from, to int) (left int64) {
	var blocks []Block
	var data [][]byte
	for n := from; n < to; n++ {
		blocks = append(blocks, at(n))
		data = append(data, sealed(v.name, s, n))
	}
	return v.Put(s, blocks, data)
}

// has counts which of the blocks are there, and checks them.
func has(t *testing.T, v *Volume, s Segment, from, to int) (there int) {
	t.Helper()
	p := make([]byte, testBlock)
	for n := from; n < to; n++ {
		if _, ok := v.Get(s, at(n).Off, p); ok {
			there++
			if !bytes.Equal(p, sealed(v.name, s, n)) {
				t.Errorf("block %d of segment %d is not what was put", n, s.Seq)
			}
		}
	}
	return there
}

// What was put is there, also after a restart. A process that crashes loses the file that it wrote.
func TestKeeps(t *testing.T) {
	b := newBed(t, testLimit)
	v := b.volume("a", Share{})
	if left := put(v, seg(1), 0, 40); left != 0 {
		t.Fatalf("%d bytes are not kept", left)
	}
	put(v, seg(2), 5, 10)
	put(v, seg(2), 0, 12) // some twice
	if n := has(t, v, seg(1), 0, 50) + has(t, v, seg(2), 0, 20); n != 52 {
		t.Errorf("%d blocks are kept, want 52", n)
	}
	for s, n := range map[uint64]int{3: testBlock, 1: testBlock - 1} {
		if _, ok := v.Get(seg(s), at(0).Off, make([]byte, n)); ok {
			t.Errorf("%d bytes of segment %d are there, which nobody put", n, s)
		}
	}
	b.room()
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if b.cache.blocks != 0 {
		t.Errorf("%d blocks are counted after the end", b.cache.blocks)
	}
	b.room()
	b.start2()
	v = b.volume("a", Share{})
	if n := has(t, v, seg(1), 0, 50) + has(t, v, seg(2), 0, 20); n != 52 {
		t.Errorf("%d blocks are kept after a restart, want 52", n)
	}
	put(v, seg(3), 0, 3)
	b.disk.Crash()
	b.start()
	v = b.volume("a", Share{})
	b.room()
	if n := has(t, v, seg(3), 0, 3); n != 0 {
		t.Errorf("%d blocks are kept of a file without an index", n)
	}
}

// start2 opens the pool again, in order.
func (b *bed) start2() {
	b.Helper()
	if err := b.pool.Close(); err != nil {
		b.Fatal(err)
	}
	b.start()
}

// Of a file that is damaged nothing is believed but what its checksum covers.
func TestDamagedIndex(t *testing.T) {
	const index = trailerSize + 4 + segmentSize + 4*blockSize
	for off := int64(1); off <= index; off += 7 {
		b := newBed(t, testLimit)
		v := b.volume("a", Share{})
		put(v, seg(1), 0, 4)
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		files, err := v.dir.List()
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		f, err := v.dir.Open(files[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1)
		_, _ = f.ReadAt(p, files[0].Size-off)
		p[0] ^= 0x10
		if _, err := f.WriteAt(p, files[0].Size-off); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		v = b.volume("a", Share{})
		if n := has(t, v, seg(1), 0, 4); n != 0 {
			t.Errorf("byte %d before the end is damaged: %d blocks are read", off, n)
		}
		b.room()
	}
}

// A block that is not right is forgotten, and can be kept again.
func TestForget(t *testing.T) {
	b := newBed(t, testLimit)
	v := b.volume("a", Share{})
	put(v, seg(1), 0, 2)
	was, _ := v.Get(seg(1), at(0).Off, make([]byte, testBlock))
	v.Forget(seg(1), at(0).Off, was)
	if v.Has(seg(1), at(0)) || !v.Has(seg(1), at(1)) {
		t.Error("the wrong block is forgotten")
	}
	put(v, seg(1), 0, 1)
	v.Forget(seg(1), at(0).Off, was) // somebody who read it before
	if n := has(t, v, seg(1), 0, 2); n != 2 {
		t.Errorf("%d blocks are there", n)
	}
}

// What is kept never takes more than the room, the limit of the volume, and the number of blocks.
func TestBounds(t *testing.T) {
	b := newBed(t, testLimit)
	b.cache.cfg.Blocks = 500
	v, w := b.volume("a", Share{Limit: testLimit / 8}), b.volume("b", Share{})
	for s := range uint64(40) {
		put(v, seg(s), 0, 30)
		put(w, seg(s), 0, 30)
		b.cache.mu.Lock()
		used, blocks := v.used(), b.cache.blocks
		b.cache.mu.Unlock()
		if used > testLimit/8 || blocks > 500 {
			t.Fatalf("%d bytes and %d blocks are kept", used, blocks)
		}
		b.room()
	}
	if n := has(t, w, seg(39), 0, 30); n != 30 {
		t.Errorf("%d of the last blocks are kept", n)
	}
	if left := put(v, seg(50), 0, 200); left != 200*testBlock {
		t.Errorf("more than the limit: %d bytes are not kept", left)
	}
	v.SetShare(Share{Limit: testLimit / 32})
	until(t, "the smaller limit is kept", func() bool { return b.kept("a") <= testLimit/32 })
	b.room()
}

// A log that needs room gets it.
func TestMakeRoom(t *testing.T) {
	b := newBed(t, testLimit)
	v := b.volume("a", Share{})
	for s := range uint64(50) {
		put(v, seg(s), 0, 30)
	}
	room := b.pool.Room()
	if room.Reserve(testLimit/2) == nil {
		t.Fatal("the pool is not full")
	}
	for room.Reserve(testLimit/2) != nil {
		if b.cache.MakeRoom("c", testLimit/4) == 0 {
			t.Fatal("nothing goes")
		}
	}
	room.Release(testLimit / 2)
	if freed := b.cache.MakeRoom("c", testLimit); freed == 0 || b.cache.Status().Volumes["a"].Used() != 0 {
		t.Errorf("all can go, and %d bytes went", freed)
	}
	if freed := b.cache.MakeRoom("c", 1); freed != 0 {
		t.Errorf("nothing can go, and %d bytes went", freed)
	}
	b.room()
}

// A disk that fails costs what is kept, and nothing else.
func TestFailures(t *testing.T) {
	for _, op := range []crashfs.Op{crashfs.OpCreate, crashfs.OpWrite, crashfs.OpRead, crashfs.OpRemove} {
		t.Run(fmt.Sprint(op), func(t *testing.T) {
			b := newBed(t, testLimit)
			v := b.volume("a", Share{})
			for s := range uint64(200) {
				if s%3 == 0 {
					b.disk.Fail(op, 1+int(s%5), errors.New("the disk fails"))
				}
				put(v, seg(s), 0, 20)
				has(t, v, seg(s/2), 0, 20)
			}
			if err := v.Close(); err != nil {
				t.Error(err)
			}
			for range 10 {
				_, _ = v.dir.List() // meets what is left of the faults of reading
			}
			if op != crashfs.OpRemove { // what could not be removed takes room
				b.room()
			}
			b.start2()
			b.volume("a", Share{})
			b.room()
		})
	}
}

// What is kept of a volume that nobody has open goes as all else does, and what is left of it is
// there when it is opened again.
func TestClosedVolumes(t *testing.T) {
	b := newBed(t, testLimit)
	v := b.volume("a", Share{Reserve: testLimit / 2})
	for s := range uint64(20) {
		put(v, seg(s), 0, 30)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	kept := b.cache.Status().Closed
	if kept < 20*30*testBlock {
		t.Fatalf("%d bytes are kept of a closed volume", kept)
	}
	if freed := b.cache.MakeRoom("b", kept/2); freed < kept/2 {
		t.Errorf("of a closed volume %d bytes can go", freed)
	}
	b.room()
	v = b.volume("a", Share{})
	there := 0
	for s := range uint64(20) {
		there += has(t, v, seg(s), 0, 30)
	}
	if there < 200 || there > 320 {
		t.Errorf("%d blocks are left of 600", there)
	}
	if b.cache.Status().Closed != 0 {
		t.Error("the volume counts as closed")
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	// After a restart it is known before anybody opens it.
	b.start2()
	dir, err := b.pool.Volume("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.cache.Leave("a", dir); err != nil {
		t.Fatal(err)
	}
	if freed := b.cache.MakeRoom("b", 1); freed == 0 {
		t.Error("nothing goes of a volume that was not opened yet")
	}
	if err := b.cache.Drop("a", dir); err != nil {
		t.Fatal(err)
	}
	if used := b.pool.Room().Status().Used; used != 0 {
		t.Errorf("%d bytes are used of an empty pool", used)
	}
}

// Everything at once.
func TestConcurrent(t *testing.T) {
	b := newBed(t, testLimit)
	var work sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		work.Go(func() {
			for round := range 4 {
				v := b.volume(name, Share{Limit: testLimit / 2, Reserve: testLimit / 8})
				l := &fakeLog{b: b, name: name}
				v.Attach(l)
				var users sync.WaitGroup
				for k := range 4 {
					users.Go(func() {
						r := rand.New(rand.NewPCG(uint64(k), uint64(round)))
						next := zipf(2000, r)
						for i := range 400 {
							s, n := next()
							n = n / 4 * 4
							if has(t, v, s, n, n+4) < 4 {
								put(v, s, n, n+4)
							}
							switch i % 50 {
							case 7:
								b.cache.MakeRoom(name, testFile)
							case 8:
								if was, ok := v.Get(s, at(n).Off, make([]byte, testBlock)); ok {
									v.Forget(s, at(n).Off, was)
								}
							case 9:
								v.Used(s, at(n))
							case 10:
								v.SetShare(Share{Limit: testLimit / int64(2+k)})
							case 11:
								b.cache.Status()
							case 12:
								if b.pool.Room().Reserve(testFile) == nil {
									l.mu.Lock()
									l.have = append(l.have, uint64(10_000+k*1000+i))
									l.mu.Unlock()
									b.cache.Stored(name)
								}
							}
						}
					})
				}
				users.Wait()
				v.Detach()
				if err := v.Close(); err != nil {
					t.Error(err)
				}
				for _, s := range append([]uint64{}, l.have...) {
					l.Evict(s, func() {})
				}
			}
		})
	}
	work.Wait()
	if b.cache.blocks != 0 {
		t.Errorf("%d blocks are counted after the end", b.cache.blocks)
	}
	b.room()
}
