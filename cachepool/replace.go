// SPDX-License-Identifier: Apache-2.0

package cachepool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Replace writes a small file durably, whole or not at all. temp is the name of the file that it
// writes first, of which there may be one of an earlier attempt. After an error the file may be the
// new one, or become it after a crash.
func Replace(dir Dir, temp, name string, b []byte) error {
	f, err := dir.Create(temp)
	if errors.Is(err, fs.ErrExist) {
		if err := dir.Remove(temp); err != nil {
			return err
		}
		f, err = dir.Create(temp)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = dir.Rename(temp, name)
	}
	if err == nil {
		err = dir.Sync()
	}
	return err
}

// ReadAll returns the contents of a small file. fs.ErrNotExist: there is none.
func ReadAll(dir Dir, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	b := make([]byte, max(0, size))
	if err == nil {
		if _, err = f.ReadAt(b, 0); errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}
