// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"io/fs"

	"github.com/weir-storage/weir/cachepool"
)

// Room accounts for the pool's space; *cachepool.Room implements it. What is in the directory when
// the log is opened is already counted. The segment table, about 100 bytes for each segment, is not
// counted until the pool is opened again.
type Room interface {
	Reserve(n int64) error       // cachepool.ErrFull
	ReserveUrgent(n int64) error // may use the part that is reserved for removals (protocol-15)
	Release(n int64)
}

// createFresh makes an empty file, and replaces what an earlier failure may have left.
func createFresh(dir cachepool.Dir, name string) (cachepool.File, error) {
	f, err := dir.Create(name)
	if errors.Is(err, fs.ErrExist) {
		if err := dir.Remove(name); err != nil {
			return nil, err
		}
		f, err = dir.Create(name)
	}
	return f, err
}
