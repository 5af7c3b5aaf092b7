// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/dir"
)

// folders are those of the volumes, each in the dataset of its volume.
type folders struct {
	tools Tools
	above string // the dataset above those of the volumes
	path  string // where it is mounted
	self  string // begins the marks of this opening
	log   *slog.Logger

	changes sync.Mutex // one of Make, Remove, Rename and settling runs at a time; it may hang with the disks
	marking sync.Mutex // held by mark; as changes

	mu       sync.Mutex               // guards what follows; nothing is waited for with it
	closed   bool                     // no mark is written any more
	in       map[string]string        // the dataset's last name by the folder's
	datasets map[string]*datasetState // by last name
}

// datasetState is what is known of a volume's dataset.
type datasetState struct {
	device  uint64 // of its file system, while it is mounted
	rewound error  // why it may have lost something; nil: it has not
	stamp   string // the last rewind that the pool's history tells of, see seen; "": not read yet
	noted   bool   // that it is rewound is durable
	marks   [2]mark
	round   uint64
}

var _ dir.Folders = (*folders)(nil)

// newFolders finds the folders that are there. Datasets that are not mounted are. A dataset that
// cannot be used is left alone, and logged: the others are well.
func newFolders(ctx context.Context, tools Tools, above, path, self string, log *slog.Logger) (*folders, error) {
	f := &folders{tools: tools, above: above, path: path, self: self, log: log, in: map[string]string{},
		datasets: map[string]*datasetState{}}
	out, err := tools.zfs(ctx, "list", "-H", "-t", "filesystem", "-o", "name", "-d", "1", above)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for name := range strings.Lines(out) {
		name, below := strings.CutPrefix(strings.TrimSpace(name), above+"/")
		if below && !strings.Contains(name, "/") {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if err := f.find(ctx, name, names); err != nil {
			log.Error("a dataset is not used", "dataset", above+"/"+name, "error", err)
		}
	}
	for name := range f.datasets {
		f.mark(name) // from now on it is noticed when it goes back
	}
	return f, f.look(ctx, slices.Collect(maps.Keys(f.datasets)))
}

// find notes the folders in a dataset. One that has the name of another dataset belongs there: this
// is a clone of that one, or was received.
func (f *folders) find(ctx context.Context, name string, all map[string]bool) error {
	if _, err := f.mount(ctx, name); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(f.path, name))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range entries {
		switch {
		case !e.IsDir() || cachepool.CheckName("volume", e.Name()) != nil:
		case e.Name() != name && all[e.Name()] || f.in[e.Name()] != "":
			f.log.Warn("a folder of another dataset's volume is not used: destroy this dataset, or rename it to somewhere else",
				"dataset", f.above+"/"+name, "volume", e.Name())
		default:
			f.in[e.Name()] = name
		}
	}
	return nil
}

// mount makes a dataset if it is missing, and sees that it is mounted below the others. A new one
// has nothing that it could lose. met is false for one that was there and that nobody has looked at
// yet.
func (f *folders) mount(ctx context.Context, name string) (met bool, err error) {
	dataset := f.above + "/" + name
	made, err := f.tools.dataset(ctx, dataset, filepath.Join(f.path, name), []property{{seen, never}})
	if err != nil {
		return false, err
	}
	device, err := deviceOf(filepath.Join(f.path, name))
	if err != nil {
		return false, err
	}
	if above, err := deviceOf(f.path); err != nil || above == device {
		return false, errors.Join(err, fmt.Errorf("dataset %s: it is said to be mounted, and is not where this process looks: "+
			"run `zfs mount %s` where the gateway runs", dataset, dataset))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.datasets[name]
	met = state != nil || made
	if state == nil {
		state = &datasetState{}
		f.datasets[name] = state
	}
	if made {
		*state = datasetState{}
	}
	state.device = device
	return met, nil
}

// meet looks at a dataset that was not there, or could not be used, when the pool was opened.
func (f *folders) meet(ctx context.Context, name string) error {
	if err := f.find(ctx, name, nil); err != nil {
		return err
	}
	f.mark(name)
	return f.look(ctx, []string{name})
}

func deviceOf(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Dev, nil
}

// of returns the dataset that has a volume's folder, and where it is mounted. It fails if somebody
// unmounted it: what is below its mountpoint then is not in it.
func (f *folders) of(volume string) (dataset, path string, err error) {
	f.mu.Lock()
	dataset = f.in[volume]
	state := f.datasets[dataset]
	f.mu.Unlock()
	if dataset == "" {
		return "", "", nil
	}
	path = filepath.Join(f.path, dataset)
	device, err := deviceOf(path)
	if err == nil && device != state.device {
		err = fmt.Errorf("dataset %s/%s is not mounted any more: run `zfs mount %[1]s/%[2]s`, and start the gateway again",
			f.above, dataset)
	}
	return dataset, path, err
}

// Make implements dir.Folders. A new folder in a dataset that went back has nothing that could be
// lost. A folder that was there and is gone went with its dataset, which so has lost something.
func (f *folders) Make(volume string) (string, error) {
	f.changes.Lock()
	defer f.changes.Unlock()
	dataset, above, err := f.of(volume)
	if err != nil {
		return "", err
	}
	known := dataset != ""
	if !known {
		ctx := context.Background()
		met, err := f.mount(ctx, volume)
		if err == nil && !met {
			if err = f.meet(ctx, volume); err != nil {
				f.mu.Lock()
				delete(f.datasets, volume) // it is to be met again
				f.mu.Unlock()
			}
		}
		if err != nil {
			return "", err
		}
		dataset, above = volume, filepath.Join(f.path, volume)
		f.mark(volume)
	}
	path := filepath.Join(above, volume)
	_, err = os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && known && volume != dataset:
		f.back(dataset)
		f.mu.Lock()
		delete(f.in, volume)
		f.mu.Unlock()
		return "", fmt.Errorf("folder %s is gone: dataset %s/%s went back, or somebody removed it: %w", path, f.above, dataset, err)
	case errors.Is(err, fs.ErrNotExist):
		if known {
			f.back(dataset)
		} else if err := f.settle(dataset, f.rewound(dataset)); err != nil {
			return "", err
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			return "", err
		}
	case err != nil:
		return "", err
	}
	if err := syncDir(above); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.in[volume] = dataset
	return path, nil
}

// List implements dir.Folders.
func (f *folders) List() (map[string]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]string{}
	for volume, dataset := range f.in {
		out[volume] = filepath.Join(f.path, dataset, volume)
	}
	return out, nil
}

// Remove implements dir.Folders. The dataset goes when nothing is left in it. One that cannot go
// stays, empty: an administrator may have made snapshots of it, or somebody may be in it.
func (f *folders) Remove(volume string) error {
	f.changes.Lock()
	defer f.changes.Unlock()
	dataset, above, err := f.of(volume)
	if err != nil || dataset == "" {
		return err
	}
	if err := os.RemoveAll(filepath.Join(above, volume)); err != nil {
		return err
	}
	if err := syncDir(above); err != nil {
		return err
	}
	f.mu.Lock()
	delete(f.in, volume)
	last := true
	for other := range maps.Values(f.in) {
		last = last && other != dataset
	}
	f.mu.Unlock()
	if !last {
		return nil
	}
	f.marking.Lock()
	defer f.marking.Unlock()
	for _, name := range markNames {
		_ = os.Remove(filepath.Join(above, name))
	}
	f.mu.Lock()
	delete(f.datasets, dataset)
	f.mu.Unlock()
	if left, err := os.ReadDir(above); err == nil && len(left) == 0 {
		if err := f.destroy(dataset); err != nil {
			f.log.Warn("a dataset of a volume that is gone stays, empty: destroy its snapshots, if nobody needs them, and then it",
				"dataset", f.above+"/"+dataset, "error", err)
		}
	}
	return nil
}

// destroy destroys an empty dataset. One that is busy may have files that were closed a moment ago.
func (f *folders) destroy(dataset string) error {
	for again := busyTries; ; again-- {
		_, err := f.tools.zfs(context.Background(), "destroy", f.above+"/"+dataset)
		if err == nil || again == 0 || !strings.Contains(err.Error(), "busy") {
			return err
		}
		time.Sleep(busyPause)
	}
}

// How often, and after how long, a dataset that is busy is destroyed again.
const (
	busyTries = 10
	busyPause = 200 * time.Millisecond
)

// Rename implements dir.Folders.
func (f *folders) Rename(from, to string) error {
	f.changes.Lock()
	defer f.changes.Unlock()
	dataset, above, err := f.of(from)
	if err != nil {
		return err
	}
	f.mu.Lock()
	taken := f.in[to] != ""
	f.mu.Unlock()
	switch {
	case dataset == "":
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	case taken:
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
	}
	if err := os.Rename(filepath.Join(above, from), filepath.Join(above, to)); err != nil {
		return err
	}
	f.mu.Lock()
	delete(f.in, from)
	f.in[to] = dataset
	f.mu.Unlock()
	return syncDir(above)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
