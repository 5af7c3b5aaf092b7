// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/weir-storage/weir/volume"
)

// testConcurrent lets many goroutines change one small tree. Then it checks what
// must be true of the result in any order of the changes.
func testConcurrent(e *env) {
	e.sub("namespace", func(e *env, work volume.Handle) {
		allowed := []error{nil, volume.ErrNotExist, volume.ErrExist, volume.ErrNotDir, volume.ErrIsDir, volume.ErrNotEmpty, volume.ErrInvalid, volume.ErrStale}
		var wg sync.WaitGroup
		for g := range uint64(8) {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(g, 1))
				dirs := []volume.Handle{work}
				pick := func() (volume.Handle, string) {
					return dirs[rnd.IntN(len(dirs))], string(rune('a' + rnd.IntN(5)))
				}
				for i := range 150 {
					var err error
					r := volume.Request{ID: volume.OpID{Slot: fmt.Sprint("g", g), Seq: uint32(i)}}
					dir, name := pick()
					switch rnd.IntN(8) {
					case 0, 1:
						_, err = e.v.Create(e.ctx, r, dir, name, fileArgs(0o644))
					case 2, 3:
						var c volume.Created
						if c, err = e.v.Create(e.ctx, r, dir, name, dirArgs(0o755)); err == nil {
							dirs = append(dirs, c.Attr.Handle)
						}
					case 4:
						_, err = e.v.Remove(e.ctx, r, dir, name)
					case 5, 6:
						to, newName := pick()
						_, _, err = e.v.Rename(e.ctx, r, dir, name, to, newName)
					case 7:
						var a volume.Attr
						if a, err = e.v.Lookup(e.ctx, r, dir, name); err == nil {
							to, newName := pick()
							_, err = e.v.Link(e.ctx, r, a.Handle, to, newName)
						}
					}
					if !slices.Contains(allowed, outcome(err)) {
						e.Errorf("unexpected outcome: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		e.checkTree(work)
	})
	e.sub("one winner", func(e *env, work volume.Handle) {
		for round := range 10 {
			var wg sync.WaitGroup
			won := make([]bool, 8)
			for g := range won {
				wg.Go(func() {
					_, err := e.v.Create(e.ctx, e.req(), work, fmt.Sprint(round), fileArgs(0o644))
					won[g] = err == nil
					if err != nil && outcome(err) != volume.ErrExist {
						e.Errorf("unexpected outcome: %v", err)
					}
				})
			}
			wg.Wait()
			if n := len(slices.DeleteFunc(won, func(w bool) bool { return !w })); n != 1 {
				e.Errorf("%d goroutines created one name", n)
			}
		}
	})
	e.sub("data", func(e *env, work volume.Handle) {
		f := e.file(work, "f", 0o644)
		const size = 10000
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				data := slices.Repeat([]byte{byte('a' + g)}, size)
				for i := 0; i < size; i += 1000 {
					if _, err := e.v.Write(e.ctx, e.req(), f, uint64(g*size+i), data[i:i+1000], i%2000 == 0); err != nil {
						e.Errorf("write: %v", err)
					}
					if _, _, err := e.v.Read(e.ctx, e.req(), f, 0, make([]byte, 1000)); err != nil {
						e.Errorf("read: %v", err)
					}
				}
				if _, err := e.v.Commit(e.ctx, e.req(), f); err != nil {
					e.Errorf("commit: %v", err)
				}
			})
		}
		wg.Wait()
		got := e.content(f)
		for g := range 8 {
			for i := range size {
				if got[g*size+i] != byte('a'+g) {
					e.Fatalf("byte %d is %q, want %q", g*size+i, got[g*size+i], byte('a'+g))
				}
			}
		}
	})
}

// checkTree walks everything below dir and checks link counts, parents, and that
// every name leads to its inode.
func (e *env) checkTree(dir volume.Handle) {
	e.Helper()
	found := make(map[volume.Handle]uint32)
	attrs := make(map[volume.Handle]volume.Attr)
	var walk func(h volume.Handle)
	walk = func(h volume.Handle) {
		subdirs := uint32(0)
		for _, entry := range e.list(h, 3) {
			a := e.attr(entry.Attr.Handle)
			attrs[a.Handle] = a
			found[a.Handle]++
			if got := e.lookup(h, entry.Name); got.Handle != a.Handle {
				e.Errorf("%q is listed as inode %d and looked up as %d", entry.Name, a.Ino, got.Ino)
			}
			if a.Type != volume.Directory {
				continue
			}
			subdirs++
			if found[a.Handle] > 1 {
				e.Fatalf("directory %d is found twice", a.Ino)
			}
			if up := e.lookup(a.Handle, ".."); up.Handle != h {
				e.Errorf("the parent of directory %d is %d, want %d", a.Ino, up.Ino, h.Ino)
			}
			walk(a.Handle)
		}
		if n := e.attr(h).Nlink; n != 2+subdirs {
			e.Errorf("directory %d with %d subdirectories has %d links", h.Ino, subdirs, n)
		}
	}
	walk(dir)
	for h, a := range attrs {
		if a.Type != volume.Directory && a.Nlink != found[h] {
			e.Errorf("file %d has %d names and %d links", h.Ino, found[h], a.Nlink)
		}
	}
}

// testConcurrentOnce sends one change from many goroutines at once.
func testConcurrentOnce(e *env) {
	e.sub("all", func(e *env, work volume.Handle) {
		for round := range uint32(10) {
			r := volume.Request{ID: volume.OpID{Slot: "all at once", Seq: round}}
			results := make([]any, 8)
			var wg sync.WaitGroup
			for g := range results {
				wg.Go(func() {
					c, err := created(e.v.Create(e.ctx, r, work, fmt.Sprint(round), fileArgs(0o644)))
					if err != nil {
						e.Errorf("create: %v", err)
					}
					results[g] = c
				})
			}
			wg.Wait()
			for _, got := range results {
				if got != results[0] {
					e.Errorf("results of one change differ: %+v and %+v", got, results[0])
				}
			}
		}
	})
}
