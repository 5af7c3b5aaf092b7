// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// changes counts changes of names, and keeps the time that the longest took.
type changes struct {
	dir     string
	record  *os.File
	longest time.Duration
}

func (x *changes) do(what string, f func() error) error {
	begin := time.Now()
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	x.longest = max(x.longest, time.Since(begin))
	_, err := fmt.Fprintln(x.record, what)
	return err
}

// names repeats namespace operations, each of which must succeed exactly once. EEXIST or ENOENT
// means that one was executed twice.
func names(dir, record, stop string) error {
	r, err := os.OpenFile(record, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	pause, err := pace()
	if err != nil {
		return err
	}
	x := &changes{dir: dir, record: r}
	n := 0
	for ; !exists(stop); n++ {
		time.Sleep(pause)
		p := func(s string) string { return filepath.Join(dir, fmt.Sprintf("%s%d", s, n)) }
		create := func(path string) func() error {
			return func() error {
				f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
				if err != nil {
					return err
				}
				return f.Close()
			}
		}
		for _, s := range []struct {
			what string
			do   func() error
		}{
			{"mkdir", func() error { return os.Mkdir(p("d"), 0o755) }},
			{"create", create(p("d") + "/f")},
			{"rename", func() error { return os.Rename(p("d")+"/f", p("d")+"/g") }},
			{"link", func() error { return os.Link(p("d")+"/g", p("l")) }},
			{"unlink", func() error { return os.Remove(p("d") + "/g") }},
			{"rename directory", func() error { return os.Rename(p("d"), p("e")) }},
			{"rmdir", func() error { return os.Remove(p("e")) }},
			{"unlink link", func() error { return os.Remove(p("l")) }},
		} {
			if err := x.do(fmt.Sprintf("%s %d", s.what, n), s.do); err != nil {
				return err
			}
		}
		for _, gone := range []string{p("d"), p("e"), p("l")} {
			if _, err := os.Lstat(gone); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s is still there: %v", gone, err)
			}
		}
	}
	fmt.Printf("%d rounds of 8 changes, longest stall %d ms\n", n, x.longest.Milliseconds())
	return nil
}

// excl creates files that must all be new.
func excl(dir, record, stop string) error {
	r, err := os.OpenFile(record, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	x := &changes{dir: dir, record: r}
	n := 0
	for ; !exists(stop); n++ {
		path := filepath.Join(dir, fmt.Sprint("x", n))
		err := x.do(path, func() error {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		})
		if err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) != n {
		return fmt.Errorf("%s has %d names, created were %d", dir, len(entries), n)
	}
	fmt.Printf("%d exclusive creates, longest stall %d ms\n", n, x.longest.Milliseconds())
	return nil
}

// lock holds a byte-range lock until told to stop; losing it would make the kernel fail what is
// done under it with EIO.
func lock(file, record, stop string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: 0, Len: 100}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLKW, &l); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if err := os.WriteFile(record, []byte("locked\n"), 0o644); err != nil {
		return err
	}
	for n := 0; !exists(stop); n++ {
		if _, err := f.WriteAt(fmt.Appendf(nil, "%09d", n), 0); err != nil {
			return fmt.Errorf("write under the lock: %w", err)
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("fsync under the lock: %w", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	fmt.Println("lock was held throughout")
	return nil
}

func flushAsync(f *os.File, n int64) error {
	return unix.SyncFileRange(int(f.Fd()), 0, n, unix.SYNC_FILE_RANGE_WRITE)
}

func dropCache(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened to read
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}
