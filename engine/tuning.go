// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/weir-storage/weir/engine/segment"
)

// Tuning is how an engine does its work. None of it changes what is read or written of the present.
type Tuning struct {
	// BlockSize is how many bytes of a file a new block has at most: a power of two from MinBlock
	// to segment.MaxBlock; 0: segment.MaxBlock. A read fetches whole blocks. Other values count as
	// the next smaller one.
	BlockSize int
	// Compression is that of new blocks.
	Compression segment.Compression
	// ReadAhead is how many bytes are fetched ahead of a client that reads a file in order; 0:
	// none.
	ReadAhead int64
	// Memory is how many bytes of the volume's blocks the cache in memory keeps; 0: as many as it
	// has room for.
	Memory int64
	// Window is for how long the volume can be looked at as of any second; 0: not at all.
	Window time.Duration
	// Trash is for how long what is removed is kept in the trash; 0: not at all.
	Trash time.Duration
	// NoSnapshotDir: directories have no directory of snapshots.
	NoSnapshotDir bool
}

// MinBlock is the least size of new blocks, in bytes.
const MinBlock = 4 << 10

// DefaultReadAhead is the read-ahead of volumes that ask for none of their own, in bytes.
const DefaultReadAhead = 4 << 20

// Tune changes how the engine does its work, for what is read and written from now on. It may be
// called at any time.
func (e *Engine) Tune(t Tuning) {
	size := segment.MaxBlock
	for t.BlockSize != 0 && size > max(t.BlockSize, MinBlock) {
		size /= 2
	}
	t.BlockSize = size
	e.tuned.Store(&t)
	e.cache.setLimit(e.share, t.Memory)
}
