// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weir-storage/weir/cachepool"
)

// use is how the room of a file is taken by those who use it.
type use int

const (
	unasked  use = iota // a small file of a log: nobody asks for its room
	reserved            // of segments, and of the read cache
	counted             // of a database
)

func useOf(name string) use {
	switch {
	case strings.ContainsRune(name, filepath.Separator):
		return counted
	case strings.HasSuffix(name, ".seg"), strings.HasSuffix(name, ".cache"):
		return reserved
	}
	return unasked
}

// size returns how much of the pool's room a folder takes.
func size(path string) (out [counted + 1]int64, err error) {
	err = walk(path, func(name string, i fs.FileInfo) error {
		out[useOf(name)] += i.Size()
		return nil
	})
	return out, err
}

// walk calls f for every file in a folder and in those below it, with its name there. Files that
// vanish meanwhile are left out.
func walk(path string, f func(name string, i fs.FileInfo) error) error {
	return filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		var i fs.FileInfo
		if err == nil && !d.IsDir() {
			i, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) && at != path {
			return nil
		}
		if err != nil || i == nil {
			return err
		}
		name, err := filepath.Rel(path, at)
		if err != nil {
			return err
		}
		return f(name, i)
	})
}

// stamp tells whether a file is the same as before.
type stamp struct {
	inode uint64
	size  int64
	ctime syscall.Timespec
}

// copying is a folder that is copied to another pool.
type copying struct {
	folder   string
	from, to *Pool
	src, dst string   // paths
	root     *os.Root // of dst
	cancel   func()
	now      func() time.Time
	told     func(bytes int64)
	seen     map[string]stamp // of files that are copied and need not be again
	sizes    map[string]int64 // of the copies
	reserved int64            // of the other pool's room, for the copies
	ahead    int64            // of its room, besides, for databases
	dead     bool             // nobody waits for it any more; guarded by Pools.mu
	counts   bool             // it is about to be noted that it counts; guarded by Pools.mu
}

// lately: a file that changed so shortly before it was looked at may have changed again at the same
// time, as far as its times say.
const lately = 2 * time.Second

// pass copies what has changed since the last one, and returns how many bytes. The last pass is
// one while nobody uses the folder: what it leaves is durable.
func (c *copying) pass(ctx context.Context, used bool) (copied int64, err error) {
	began := c.now()
	there := map[string]bool{}
	var files, reads []found
	if err := walk(c.src, func(name string, i fs.FileInfo) error {
		switch {
		case used && useOf(name) == counted: // all files of a database are to be of one moment
		case isRead(name):
			reads = append(reads, found{name, i})
		default:
			files = append(files, found{name, i})
		}
		return nil
	}); err != nil {
		return 0, err
	}
	if !used {
		c.giveAhead()
	}
	for _, f := range files {
		n, err := c.changed(ctx, f, began)
		if errors.Is(err, errVanished) && used {
			if err := c.drop(f.name); err != nil {
				return copied, err
			}
			continue
		}
		if err != nil {
			return copied, fmt.Errorf("copy %s to pool %s: %w", filepath.Join(c.src, f.name), c.to.Name, err)
		}
		there[f.name] = true
		copied += n
	}
	if used {
		if err := c.takeAhead(); err != nil { // it is not closed for nothing
			return copied, err
		}
	}
	// What is only kept to be read comes last, as far as there is room, and little of it while
	// nobody can use the volume. The rest may be read from elsewhere again.
	rest := int64(moveRest)
	for _, f := range reads {
		_, has := c.sizes[f.name]
		if !used && c.seen[f.name] != stampOf(f.info) {
			rest -= f.info.Size()
		}
		if rest < 0 || !has && !c.spare(f.info.Size()) {
			if err := c.drop(f.name); err != nil {
				return copied, err
			}
			continue
		}
		n, err := c.changed(ctx, f, began)
		switch {
		case errors.Is(err, errVanished), errors.Is(err, cachepool.ErrFull), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
			if err := c.drop(f.name); err != nil {
				return copied, err
			}
		case err != nil:
			return copied, fmt.Errorf("copy %s to pool %s: %w", filepath.Join(c.src, f.name), c.to.Name, err)
		default:
			there[f.name] = true
			copied += n
		}
	}
	if used {
		return copied, nil
	}
	for name := range c.sizes {
		if !there[name] {
			if err := c.drop(name); err != nil {
				return copied, err
			}
		}
	}
	return copied, c.sync()
}

// found is a file.
type found struct {
	name string
	info fs.FileInfo
}

func stampOf(i fs.FileInfo) stamp {
	now := stamp{size: i.Size()}
	if st, ok := i.Sys().(*syscall.Stat_t); ok {
		now.inode, now.ctime = st.Ino, st.Ctim
	}
	return now
}

// changed copies a file if it has changed, and returns how many bytes. The look at it began then.
func (c *copying) changed(ctx context.Context, f found, began time.Time) (int64, error) {
	now := stampOf(f.info)
	if was, same := c.seen[f.name]; same && was == now {
		return 0, nil
	}
	delete(c.seen, f.name)
	n, err := c.file(ctx, f.name, f.info.Mode())
	if err == nil && n == now.size && now.inode != 0 && began.Sub(time.Unix(now.ctime.Unix())) > lately {
		c.seen[f.name] = now
	}
	c.told(c.reserved)
	return n, err
}

// spare reports whether the other pool has room for n bytes, and logs have a sixteenth left.
func (c *copying) spare(n int64) bool {
	r := c.to.Room().Status()
	return r.Used+n <= r.Limit-r.ReservedForDelete-r.Limit/16
}

// isRead reports whether a file is of the read cache.
func isRead(name string) bool { return strings.HasSuffix(name, ".cache") }

// takeAhead takes the room that the databases will need. giveAhead gives it back.
func (c *copying) takeAhead() error {
	n, err := size(c.src)
	if more := n[counted] - c.ahead; err == nil && more > 0 {
		if err = c.take(more); err == nil {
			c.ahead += more
		}
	}
	return err
}

func (c *copying) giveAhead() {
	c.to.Room().Release(c.ahead)
	c.ahead = 0
}

// take takes room of the other pool. What was copied to be read makes room first, and then what
// others keep there.
func (c *copying) take(n int64) error {
	for {
		err := c.to.Room().Reserve(n)
		if err == nil {
			return nil
		}
		if name := c.aRead(); name != "" {
			if err := c.drop(name); err != nil {
				return err
			}
		} else if c.to.Reads.MakeRoom(c.folder, n) == 0 {
			return err
		}
	}
}

// aRead returns a copy that is only kept to be read; "": there is none.
func (c *copying) aRead() string {
	for name := range c.sizes {
		if isRead(name) {
			return name
		}
	}
	return ""
}

// resize takes room for a file's copy, or gives some back.
func (c *copying) resize(name string, n int64) error {
	more := n - c.sizes[name]
	if more > 0 {
		var err error
		if isRead(name) {
			err = c.to.Room().Reserve(more)
		} else {
			err = c.take(more)
		}
		if err != nil {
			return err
		}
	} else {
		c.to.Room().Release(-more)
	}
	c.sizes[name] = n
	c.reserved += more
	return nil
}

func (c *copying) drop(name string) error {
	if err := c.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := c.resize(name, 0)
	delete(c.sizes, name)
	delete(c.seen, name)
	return err
}

// errVanished: a file is gone that was there a moment ago.
var errVanished = errors.New("the file is gone")

// file copies a file, durably, and returns its size.
func (c *copying) file(ctx context.Context, name string, mode fs.FileMode) (n int64, err error) {
	if !mode.IsRegular() {
		return 0, fmt.Errorf("%w: it is no file: %v", cachepool.ErrInvalid, mode)
	}
	src, err := os.Open(filepath.Join(c.src, name))
	if errors.Is(err, fs.ErrNotExist) {
		err = errVanished
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if err := c.root.MkdirAll(filepath.Dir(name), 0o700); err != nil { // never the folder itself again
		return 0, err
	}
	if err := c.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if err := c.resize(name, 0); err != nil {
		return 0, err
	}
	dst, err := c.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	part := make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		k, err := io.ReadFull(src, part)
		if k > 0 {
			if err := c.resize(name, n+int64(k)); err != nil {
				return n, err
			}
			if _, err := dst.Write(part[:k]); err != nil {
				return n, err
			}
			n += int64(k)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return n, dst.Sync()
		}
		if err != nil {
			return n, err
		}
	}
}

// sync makes all names durable.
func (c *copying) sync() error {
	return filepath.WalkDir(c.dst, func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		f, err := os.Open(at)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// settle takes the room, all of which was reserved, as those do who use the files.
func (c *copying) settle() {
	for name, n := range c.sizes {
		switch useOf(name) {
		case reserved:
			continue
		case counted:
			c.to.Room().Count(n)
		}
		c.to.Room().Release(n)
	}
	c.reserved = 0
}
