// SPDX-License-Identifier: Apache-2.0

package process

import (
	"io"
	"slices"
	"sync"
)

// Recent keeps the newest lines that are written to it, for a support bundle. Each Write is a line.
// Its methods may be called from many goroutines.
type Recent struct {
	limit int // bytes

	mu    sync.Mutex
	lines [][]byte
	size  int
}

// NewRecent returns a Recent that keeps as many bytes.
func NewRecent(limit int) *Recent { return &Recent{limit: limit} }

// Write implements io.Writer. It never fails.
func (r *Recent) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, slices.Clone(p))
	r.size += len(p)
	for r.size > r.limit {
		r.size -= len(r.lines[0])
		r.lines[0] = nil
		r.lines = r.lines[1:]
	}
	return len(p), nil
}

// Print writes the lines, the oldest first.
func (r *Recent) Print(w io.Writer) error {
	r.mu.Lock()
	lines := slices.Clone(r.lines)
	r.mu.Unlock()
	for _, l := range lines {
		if _, err := w.Write(l); err != nil {
			return err
		}
	}
	return nil
}
