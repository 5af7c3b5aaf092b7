// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/weir-storage/weir/volume"
)

func testReadDir(e *env) {
	e.sub("all", func(e *env, dir volume.Handle) {
		if got := e.list(dir, 1); len(got) != 0 {
			e.Errorf("an empty directory has %v", names(got))
		}
		want := make(map[string]volume.Handle)
		for i := range 100 {
			name := fmt.Sprintf("%d", i*7919%100)
			if i%2 == 0 {
				want[name] = e.file(dir, name, 0o644)
			} else {
				want[name] = e.mkdir(dir, name, 0o755)
			}
		}
		var first []volume.Entry
		for _, limit := range []int{1, 2, 7, 100, 101, 5000} {
			got := e.list(dir, limit)
			if len(got) != len(want) {
				e.Errorf("limit %d: %d entries, want %d", limit, len(got), len(want))
			}
			for _, entry := range got {
				if entry.Attr.Handle != want[entry.Name] || exact(entry.Attr) != exact(e.lookup(dir, entry.Name)) {
					e.Errorf("limit %d: entry %q has attributes %+v", limit, entry.Name, entry.Attr)
				}
			}
			if first == nil {
				first = got
			} else if !slices.Equal(names(first), names(got)) {
				e.Errorf("limit %d: the order differs", limit)
			}
		}
		// A cookie stays a position when its entry is removed.
		middle := first[49].Cookie
		e.remove(dir, first[49].Name)
		e.remove(dir, first[50].Name)
		got, _, err := e.v.ReadDir(e.ctx, e.req(), dir, middle, 1)
		e.ok(err)
		if len(got) != 1 || got[0].Name != first[51].Name || got[0].Cookie != first[51].Cookie {
			e.Errorf("after a removed entry comes %+v, want %q", got, first[51].Name)
		}
		got, eof, err := e.v.ReadDir(e.ctx, e.req(), dir, first[99].Cookie, 10)
		e.ok(err)
		if len(got) != 0 || !eof {
			e.Errorf("after the last entry: %v, end %v", names(got), eof)
		}
	})
	e.sub("outcomes", func(e *env, dir volume.Handle) {
		_, _, err := e.v.ReadDir(e.ctx, e.req(), e.file(dir, "f", 0o644), 0, 10)
		e.fails(err, volume.ErrNotDir)
		_, _, err = e.v.ReadDir(e.ctx, e.req(), dir, 0, 0)
		e.fails(err, volume.ErrInvalid)
	})
	e.sub("replaced names", func(e *env, dir volume.Handle) {
		for _, name := range []string{"a", "b", "c"} {
			e.file(dir, name, 0o644)
		}
		before := e.list(dir, 10)
		half, _, err := e.v.ReadDir(e.ctx, e.req(), dir, 0, 2)
		e.ok(err)
		e.file(dir, "temporary", 0o644)
		replaced := half[0].Name
		e.ok(e.rename(dir, "temporary", dir, replaced))
		rest, eof, err := e.v.ReadDir(e.ctx, e.req(), dir, half[1].Cookie, 10)
		e.ok(err)
		if got := append(names(half), names(rest)...); !eof || !slices.Equal(got, names(before)) {
			e.Errorf("listed %v while %q was replaced, want %v", got, replaced, names(before))
		}
	})
}

// testReadDirWhileChanging lists a directory while others change it. An entry that
// exists all the time must be listed exactly once.
func testReadDirWhileChanging(e *env) {
	e.sub("all", func(e *env, dir volume.Handle) {
		const stay = 150
		for i := range stay {
			e.file(dir, fmt.Sprintf("stay%d", i), 0o644)
			e.file(dir, fmt.Sprintf("go%d", i), 0o644)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				var err error
				switch name := fmt.Sprintf("go%d", i/3%stay); i % 3 {
				case 0:
					_, err = e.v.Remove(e.ctx, e.req(), dir, name)
				case 1:
					_, err = e.v.Create(e.ctx, e.req(), dir, "new", fileArgs(0o644))
				case 2:
					err = e.rename(dir, "new", dir, name)
				}
				if err != nil {
					e.Errorf("changing the directory: %v", err)
					return
				}
			}
		})
		for round := range 10 {
			seen := make(map[string]int)
			for _, entry := range e.list(dir, 1+round*5) {
				seen[entry.Name]++
			}
			for i := range stay {
				if name := fmt.Sprintf("stay%d", i); seen[name] != 1 {
					e.Errorf("%s was listed %d times", name, seen[name])
				}
			}
		}
		close(stop)
		wg.Wait()
	})
}
