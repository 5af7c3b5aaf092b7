// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-storage/weir/cachepool"
)

// Folders says where the folders of volumes are. All changes are durable when a method returns. The
// names are checked before. The methods may be called from many goroutines.
type Folders interface {
	// Make returns the path of a volume's folder, which it makes if it is missing.
	Make(volume string) (path string, err error)
	// List returns the paths by volume.
	List() (map[string]string, error)
	// Remove removes a folder with all in it; a missing one is no error.
	Remove(volume string) error
	// Rename gives a folder another name. fs.ErrNotExist: there is none; fs.ErrExist: the other
	// name is taken.
	Rename(from, to string) error
	// Rewound and Settled are those of cachepool.Volumes.
	Rewound(volume string) error
	Settled(volume string, why error) error
}

// plain has the folders beside each other in one.
type plain struct{ path string }

// newPlain returns Folders that are beside each other in a folder, which it makes, durably.
func newPlain(path string) (Folders, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return plain{path}, nil
}

func (f plain) Make(volume string) (string, error) {
	path := filepath.Join(f.path, volume)
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return path, syncDir(f.path) // who made it before may not have come to the sync
}

func (f plain) List() (map[string]string, error) {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, e := range entries {
		if e.IsDir() && cachepool.CheckName("volume", e.Name()) == nil {
			out[e.Name()] = filepath.Join(f.path, e.Name())
		}
	}
	return out, nil
}

func (f plain) Remove(volume string) error {
	if err := os.RemoveAll(filepath.Join(f.path, volume)); err != nil {
		return err
	}
	return syncDir(f.path)
}

func (f plain) Rename(from, to string) error {
	there := filepath.Join(f.path, to) // nobody else makes it: the pool is this process's
	switch _, err := os.Lstat(there); {
	case err == nil:
		return &fs.PathError{Op: "rename", Path: there, Err: fs.ErrExist}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.Rename(filepath.Join(f.path, from), there); err != nil {
		return err
	}
	return syncDir(f.path)
}

// Rewound is always nil: nothing tells that a plain directory was replaced.
func (f plain) Rewound(string) error { return nil }

func (f plain) Settled(string, error) error { return nil }
