// SPDX-License-Identifier: Apache-2.0

package data

import (
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-storage/weir/test/e2e/bed"
)

// scene is a volume with its home at a, and a machine there that has it mounted at /mnt/v.
type scene struct {
	*bed.Scene
	guest *bed.Machine
}

func newScene(t *testing.T, cfg bed.Config) *scene {
	t.Helper()
	s := &scene{Scene: bed.NewScene(t, cfg, bed.Manifest("v", 2, "a"))}
	s.guest = s.Machine("a", "wa")
	return s
}

// size is how many bytes of files there are below a folder.
func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// settled waits until all copies have everything and no store grows. It returns the bytes in the
// stores.
func (s *scene) settled() map[string]int64 {
	s.T.Helper()
	s.Await("a", func(st bed.Status) bool {
		for _, r := range st.Replicas {
			if r.LagBytes == nil || *r.LagBytes != 0 {
				return false
			}
		}
		return len(st.Replicas) == 3
	})
	at := map[string]int64{}
	for calm := 0; calm < 2; {
		if s.Ctx.Err() != nil {
			s.T.Fatal("stores do not come to rest")
		}
		time.Sleep(6 * time.Second) // longer than half of maxLag, after which what is new is sealed and uploaded
		calm++
		for _, name := range s.Bed.Names() {
			if n := size(s.T, s.Bed.Site(name).S3.Dir()); n != at[name] {
				at[name], calm = n, 0
			}
		}
	}
	return at
}

func TestChangingOneByteMovesLittle(t *testing.T) {
	s := newScene(t, bed.Config{})
	t.Log(s.guest.Do(s.Tool + " fill /mnt/v/big 1024 one"))
	before := s.settled()
	links := map[string]uint64{}
	count := func(name string) uint64 {
		rx, tx, err := s.Bed.Stage.LinkBytes(s.Ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return rx + tx
	}
	for _, name := range s.Bed.Names() {
		links[name] = count(name)
	}
	begin := time.Now()
	s.guest.Do("printf x | dd of=/mnt/v/big bs=1 seek=777777777 conv=notrunc,fsync status=none")
	time.Sleep(3 * time.Second) // for what is still to travel; what the registry says all the time is counted too
	for _, name := range s.Bed.Names() {
		n := count(name) - links[name]
		t.Logf("link of %s: %d bytes in %.1f s, the registry's included", name, n, time.Since(begin).Seconds())
		if n >= 1<<20 {
			t.Errorf("one byte changed, and %d bytes crossed the link of %s", n, name)
		}
	}
	for name, n := range s.settled() {
		t.Logf("store of %s: %d bytes", name, n-before[name])
		if n-before[name] >= 1<<20 {
			t.Errorf("one byte changed, and the store of %s got %d bytes", name, n-before[name])
		}
		if n < 1<<30 {
			t.Errorf("store of %s has %d bytes of a file of 1 GiB", name, n)
		}
	}
}

func TestAFileThreeTimesThePool(t *testing.T) {
	s := newScene(t, bed.Config{PoolSize: map[string]string{"a": "256Mi", "b": "256Mi", "c": "256Mi"}})
	s.guest.Do(s.Tool + " fill /mnt/v/big 768 three")
	t.Log(s.guest.Do("echo 3 > /proc/sys/vm/drop_caches; " + s.Tool + " check /mnt/v/big 768 three"))
	for _, name := range s.Bed.Names() {
		t.Logf("pool of %s: %d MiB, store: %d MiB", name, size(t, s.Bed.Site(name).PoolDir())>>20, size(t, s.Bed.Site(name).S3.Dir())>>20)
	}
}
