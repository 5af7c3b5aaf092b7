// SPDX-License-Identifier: Apache-2.0

package log

import (
	"sync"

	"github.com/weir-storage/weir/cachepool"
)

// writeBehind is a file to which large frames are written while whoever appends goes on: to write
// one takes as long as to seal it. What others do with the file waits until all is written that was
// there before, as far as they can tell the difference. It has a goroutine only while there is
// something to write. Any goroutine may call its methods, but only one at a time writes.
type writeBehind struct {
	cachepool.File
	// failed is told, outside locks, why something could not be written. Nothing is written
	// afterwards.
	failed func(error)

	mu      sync.Mutex
	fewer   *sync.Cond // uses mu; signals that done has grown
	waiting []writing  // in order
	added   uint64     // how many bytes were added
	done    uint64     // how many of them are written, or never will be
	from    int64      // offset of the first byte that is not written, while there are any
	err     error
}

// writing is bytes that wait to be written. They do not change until then.
type writing struct {
	b   []byte
	off int64
	of  *chunk // whose memory they are; nil: nobody wants to know
}

// behindMost is how many bytes may wait; whoever appends waits while there are more.
const behindMost = 4 << 20

func newWriteBehind(file cachepool.File, failed func(error)) *writeBehind {
	w := &writeBehind{File: file, failed: failed}
	w.fewer = sync.NewCond(&w.mu)
	return w
}

// add has b written at off, which is the end of what was written before. It tells of, if not nil,
// when b is not needed any more. It returns an error of what was added before; nothing is added
// then.
func (w *writeBehind) add(b []byte, off int64, of *chunk) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.added-w.done > behindMost {
		w.fewer.Wait()
	}
	if w.err != nil {
		return w.err
	}
	if w.added == w.done {
		w.from = off
		go w.run()
	}
	w.waiting, w.added = append(w.waiting, writing{b, off, of}), w.added+uint64(len(b))
	return nil
}

// busy reports whether something waits to be written.
func (w *writeBehind) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.added != w.done
}

// wait waits until all is written that was added before and lies before end; an end below 0 is that
// of the file. It returns an error of what was added before.
func (w *writeBehind) wait(end int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for all := w.added; w.done < all && (end < 0 || w.from < end); {
		w.fewer.Wait()
	}
	return w.err
}

// run writes what waits, until there is nothing.
func (w *writeBehind) run() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.added != w.done {
		x, err := w.waiting[0], w.err
		w.waiting[0] = writing{}
		w.waiting = w.waiting[1:]
		w.mu.Unlock()
		if err == nil {
			if _, err = w.File.WriteAt(x.b, x.off); err != nil {
				w.failed(err)
			}
		}
		if x.of != nil {
			x.of.done()
		}
		w.mu.Lock()
		w.done, w.from, w.err = w.done+uint64(len(x.b)), x.off+int64(len(x.b)), err
		w.fewer.Broadcast()
	}
}

// ReadAt is cachepool.File's. It waits only for what it reads.
func (w *writeBehind) ReadAt(p []byte, off int64) (int, error) {
	if err := w.wait(off + int64(len(p))); err != nil {
		return 0, err
	}
	return w.File.ReadAt(p, off)
}

// WriteAt is cachepool.File's.
func (w *writeBehind) WriteAt(p []byte, off int64) (int, error) {
	if err := w.wait(-1); err != nil {
		return 0, err
	}
	return w.File.WriteAt(p, off)
}

// Sync is cachepool.File's.
func (w *writeBehind) Sync() error {
	if err := w.wait(-1); err != nil {
		return err
	}
	return w.File.Sync()
}

// Forget is cachepool.File's.
func (w *writeBehind) Forget() error {
	if err := w.wait(-1); err != nil {
		return err
	}
	return w.File.Forget()
}

// Truncate is cachepool.File's.
func (w *writeBehind) Truncate(size int64) error {
	if err := w.wait(-1); err != nil {
		return err
	}
	return w.File.Truncate(size)
}

// Size is cachepool.File's.
func (w *writeBehind) Size() (int64, error) {
	if err := w.wait(-1); err != nil {
		return 0, err
	}
	return w.File.Size()
}

// Close is cachepool.File's. What could not be written is no error of it: failed was told.
func (w *writeBehind) Close() error {
	_ = w.wait(-1)
	return w.File.Close()
}
