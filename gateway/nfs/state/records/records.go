// SPDX-License-Identifier: Apache-2.0

// Package records keeps the records of NFS clients, which package state writes, as files.
package records

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Dir is a state.Store of one file per key in a directory.
type Dir struct{ dir string }

const (
	recordSuffix = ".json"
	tempSuffix   = ".tmp"
)

// Open returns the records in dir. It makes dir if needed; the parent must
// exist. It removes what interrupted saves left behind. Only one Dir at a time
// may use a directory.
func Open(dir string) (*Dir, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("open client records: %w", err)
	}
	temps, err := filepath.Glob(filepath.Join(dir, "*"+tempSuffix))
	if err != nil {
		return nil, fmt.Errorf("open client records %s: %w", dir, err)
	}
	for _, t := range temps {
		if err := os.Remove(t); err != nil {
			return nil, fmt.Errorf("open client records: %w", err)
		}
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	return &Dir{dir: dir}, nil
}

// Save implements state.Store: temporary file, fsync, rename, fsync of the directory.
func (s *Dir) Save(key string, value []byte) error {
	path := filepath.Join(s.dir, key+recordSuffix)
	f, err := os.OpenFile(path+tempSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("save client record: %w", err)
	}
	_, err = f.Write(value)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(path+tempSuffix, path)
	}
	if err != nil {
		return fmt.Errorf("save client record: %w", err)
	}
	return syncDir(s.dir)
}

// Delete implements state.Store.
func (s *Dir) Delete(key string) error {
	err := os.Remove(filepath.Join(s.dir, key+recordSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete client record: %w", err)
	}
	return syncDir(s.dir)
}

// Load implements state.Store.
func (s *Dir) Load(fn func(key string, value []byte) error) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("load client records: %w", err)
	}
	for _, e := range entries {
		key, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if !ok {
			continue
		}
		value, err := os.ReadFile(filepath.Join(s.dir, e.Name()))
		if err != nil {
			return fmt.Errorf("load client records: %w", err)
		}
		if err := fn(key, value); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory of client records: %w", err)
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("sync directory of client records: %w", err)
	}
	return nil
}
