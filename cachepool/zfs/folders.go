// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/dir"
)

// folders are those of the volumes, each in the dataset of its volume.
type folders struct {
	tools Tools
	above string // the dataset above those of the volumes
	path  string // where it is mounted

	self string // begins the marks of this opening

	mu      sync.Mutex
	in      map[string]string // the dataset's last name by the folder's
	rewound map[string]error  // why a dataset, by its last name, may have lost something
	marks   map[string]string // what watch wrote last, by the dataset's last name
	round   int               // of watch
}

var _ dir.Folders = (*folders)(nil)

// newFolders finds the folders that are there. Datasets that are not mounted are.
func newFolders(ctx context.Context, tools Tools, above, path, self string) (*folders, error) {
	f := &folders{tools: tools, above: above, path: path, self: self, in: map[string]string{}, rewound: map[string]error{},
		marks: map[string]string{}}
	out, err := tools.zfs(ctx, "list", "-H", "-o", "name", "-r", above)
	if err != nil {
		return nil, err
	}
	for name := range strings.Lines(out) {
		name, below := strings.CutPrefix(strings.TrimSpace(name), above+"/")
		if !below || strings.Contains(name, "/") {
			continue
		}
		if err := f.mount(ctx, name); err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(filepath.Join(path, name))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() && cachepool.CheckName("volume", e.Name()) == nil {
				f.in[e.Name()] = name
			}
		}
	}
	return f, f.look(ctx)
}

// mount makes a dataset if it is missing, and sees that it is mounted below the others.
func (f *folders) mount(ctx context.Context, name string) error {
	return f.tools.dataset(ctx, f.above+"/"+name, filepath.Join(f.path, name), nil)
}

func (f *folders) at(volume string) string { return filepath.Join(f.path, f.in[volume], volume) }

// Make implements dir.Folders.
func (f *folders) Make(volume string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.in[volume] == "" {
		if err := f.mount(context.Background(), volume); err != nil {
			return "", err
		}
		f.in[volume] = volume
	}
	path := f.at(volume)
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return path, syncDir(filepath.Dir(path))
}

// List implements dir.Folders.
func (f *folders) List() (map[string]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]string{}
	for volume := range f.in {
		out[volume] = f.at(volume)
	}
	return out, nil
}

// Remove implements dir.Folders. The dataset goes with its last folder. One that cannot go stays,
// empty: an administrator may have made snapshots of it, or somebody may be in it.
func (f *folders) Remove(volume string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dataset := f.in[volume]
	if dataset == "" {
		return nil
	}
	if err := os.RemoveAll(f.at(volume)); err != nil {
		return err
	}
	if err := syncDir(filepath.Join(f.path, dataset)); err != nil {
		return err
	}
	delete(f.in, volume)
	for _, other := range f.in {
		if other == dataset {
			return nil
		}
	}
	delete(f.marks, dataset)
	if err := f.settle(dataset); err != nil {
		return err
	}
	_, _ = f.tools.zfs(context.Background(), "destroy", f.above+"/"+dataset)
	return nil
}

// Rename implements dir.Folders.
func (f *folders) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dataset := f.in[from]
	switch {
	case dataset == "":
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	case f.in[to] != "":
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
	}
	above := filepath.Join(f.path, dataset)
	if err := os.Rename(filepath.Join(above, from), filepath.Join(above, to)); err != nil {
		return err
	}
	delete(f.in, from)
	f.in[to] = dataset
	if err := syncDir(above); err != nil {
		return err
	}
	return f.settle(dataset) // who made the new directory there knows that it is new
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
