// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"sync"

	"github.com/weir-storage/weir/cachepool"
)

// maxOpen is the number of unused files that a log keeps open.
const maxOpen = 16

// files keeps segments' files open between reads.
type files struct {
	dir cachepool.Dir
	// failed is told why something of a segment could not be written while whoever appended it went
	// on.
	failed func(seq uint64, err error)

	mu   sync.Mutex
	open map[uint64]*handle
	tick uint64
	over bool // closeAll was called
}

// handle is an open file that counts its users.
type handle struct {
	*writeBehind
	seq  uint64
	refs int
	used uint64
	gone bool // no longer in files.open; the last user closes it
}

func newFiles(dir cachepool.Dir, failed func(seq uint64, err error)) *files {
	return &files{dir: dir, failed: failed, open: map[uint64]*handle{}}
}

func (fs *files) handle(f cachepool.File, seq uint64) *handle {
	return &handle{writeBehind: newWriteBehind(f, func(err error) { fs.failed(seq, err) }), seq: seq}
}

// acquire opens segment seq. The caller gives it back with release.
func (fs *files) acquire(seq uint64) (*handle, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.over {
		return nil, ErrClosed
	}
	h := fs.open[seq]
	if h == nil {
		f, err := fs.dir.Open(fileName(seq))
		if err != nil {
			return nil, err
		}
		h = fs.handle(f, seq)
		fs.open[seq] = h
		fs.shrink(h)
	}
	fs.tick++
	h.refs, h.used = h.refs+1, fs.tick
	return h, nil
}

// create makes the file of segment seq and acquires it.
func (fs *files) create(seq uint64) (*handle, error) {
	fs.drop(seq)
	f, err := createFresh(fs.dir, fileName(seq))
	if err != nil {
		return nil, err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.tick++
	h := fs.handle(f, seq)
	h.refs, h.used = 1, fs.tick
	fs.open[seq] = h
	return h, nil
}

func (fs *files) release(h *handle) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	h.refs--
	if h.refs == 0 && h.gone {
		_ = h.Close() // it was dropped, so nothing unsynced matters
	}
}

// drop forgets segment seq. Its present users may finish.
func (fs *files) drop(seq uint64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if h := fs.open[seq]; h != nil {
		fs.forget(h)
	}
}

// forget closes h, or leaves that to its last user. The caller holds mu.
func (fs *files) forget(h *handle) {
	delete(fs.open, h.seq)
	h.gone = true
	if h.refs == 0 {
		_ = h.Close() // only read since its last sync
	}
}

// shrink closes the longest unused files beyond maxOpen, but never keep. The caller holds mu.
func (fs *files) shrink(keep *handle) {
	for len(fs.open) > maxOpen {
		var oldest *handle
		for _, h := range fs.open {
			if h != keep && h.refs == 0 && (oldest == nil || h.used < oldest.used) {
				oldest = h
			}
		}
		if oldest == nil {
			return
		}
		fs.forget(oldest)
	}
}

func (fs *files) closeAll() error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.over = true
	var errs []error
	for seq, h := range fs.open {
		delete(fs.open, seq)
		h.gone = true
		if h.refs == 0 {
			errs = append(errs, h.Close())
		}
	}
	return errors.Join(errs...)
}
