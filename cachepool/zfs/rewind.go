// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// seen is a property of each volume's dataset: the last of its rewinds that whoever uses it knows
// of, or that it is known to have gone back. Properties do not go back with a dataset. It is not in
// what was cloned or received, which so is known not to be what was made here.
const (
	seen     = "org.weir:seen"
	never    = "never"    // it never went back
	wentBack = "wentback" // it did, and nobody settled that
)

// look notes which datasets went back since somebody said that he knows.
func (f *folders) look(ctx context.Context) error {
	all, err := f.tools.history(ctx, f.above)
	if err != nil {
		return err
	}
	out, err := f.tools.zfs(ctx, "get", "-Hr", "-s", "local", "-o", "name,value", seen, f.above)
	if err != nil {
		return err
	}
	known := map[string]string{}
	for line := range strings.Lines(out) {
		dataset, value, _ := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		known[dataset] = value
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, state := range f.datasets {
		dataset := f.above + "/" + name
		last, stamp := all.last(dataset), all.stamp(dataset)
		switch value := known[dataset]; {
		case value == "":
			state.rewound = fmt.Errorf("dataset %s was not made by this gateway: it was cloned, or received from elsewhere", dataset)
		case value == wentBack:
			state.rewound = fmt.Errorf("dataset %s went back while it was in use", dataset)
		case stamp != never && stamp != value:
			state.rewound = fmt.Errorf("dataset %s may have lost what was durable there: its pool's history has %q", dataset, last)
		}
		state.stamp = stamp
	}
	return nil
}

// Rewound is of cachepool.Volumes.
func (f *folders) Rewound(volume string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if state := f.datasets[f.in[volume]]; state != nil {
		return state.rewound
	}
	return nil
}

// Settled is of cachepool.Volumes.
func (f *folders) Settled(volume string) error {
	f.changes.Lock()
	defer f.changes.Unlock()
	f.mu.Lock()
	dataset := f.in[volume]
	f.mu.Unlock()
	return f.settle(dataset)
}

// settle notes that whoever uses a dataset knows of the rewind that was found, and of no later one.
// The caller holds changes.
func (f *folders) settle(name string) error {
	f.mu.Lock()
	state := f.datasets[name]
	if state == nil || state.rewound == nil {
		f.mu.Unlock()
		return nil
	}
	found, stamp := state.found, state.stamp
	f.mu.Unlock()
	if _, err := f.tools.zfs(context.Background(), "set", seen+"="+stamp, f.above+"/"+name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if state.found == found {
		state.rewound = nil
	}
	return nil
}

// lost returns the volumes whose own datasets may have lost something.
func (f *folders) lost() map[string]error {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]error{}
	for volume, name := range f.in {
		if state := f.datasets[name]; state != nil && state.rewound != nil && volume == name {
			out[volume] = state.rewound
		}
	}
	return out
}

// markNames are two files in each dataset that only mark writes, in turn. What they have tells,
// while the dataset is used, that it went back.
var markNames = [2]string{"mark0", "mark1"}

// markAll writes another mark into each dataset.
func (f *folders) markAll(ctx context.Context) {
	f.mu.Lock()
	names := slices.Collect(maps.Keys(f.datasets))
	f.mu.Unlock()
	for _, name := range names {
		if ctx.Err() == nil && f.mark(name) {
			f.notice(ctx, name)
		}
	}
}

// mark writes another mark into a dataset, and reports whether the dataset has not the last two any
// more.
func (f *folders) mark(name string) (back bool) {
	f.marking.Lock()
	defer f.marking.Unlock()
	f.mu.Lock()
	state := f.datasets[name]
	if state == nil {
		f.mu.Unlock()
		return false // it was removed
	}
	marks, round, mounted := state.marks, state.round+1, state.device
	f.mu.Unlock()
	above := filepath.Join(f.path, name)
	if device, err := deviceOf(above); err != nil || device != mounted {
		return false // what is there is not in it
	}
	for i, want := range marks {
		text, err := os.ReadFile(filepath.Join(above, markNames[i]))
		if want != "" && (errors.Is(err, fs.ErrNotExist) || err == nil && string(text) != want) {
			back = true
		}
	}
	next := fmt.Sprintf("%s %20d\n", f.self, round)
	if back { // those that are there are of before
		marks = [2]string{}
	}
	if err := overwrite(filepath.Join(above, markNames[round%2]), next); err == nil {
		marks[round%2] = next
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	state.marks, state.round = marks, round
	return back
}

// notice notes that a dataset went back while it was in use.
func (f *folders) notice(ctx context.Context, name string) {
	dataset := f.above + "/" + name
	f.mu.Lock()
	state := f.datasets[name]
	if state != nil {
		state.rewound = fmt.Errorf("dataset %s has what it had before: somebody took it back while it was in use", dataset)
		state.found++
	}
	f.mu.Unlock()
	// The history says it too, unless a tool did it that notes nothing there. Without this note it
	// is known until this process ends.
	_, _ = f.tools.zfs(ctx, "set", seen+"="+wentBack, dataset)
	if all, err := f.tools.history(ctx, dataset); err == nil && state != nil {
		f.mu.Lock()
		state.stamp = all.stamp(dataset)
		f.mu.Unlock()
	}
}

// overwrite writes a text over one of the same length. It leaves the old one if there is no room.
func overwrite(path, text string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	n, err := file.WriteAt([]byte(text), 0)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	return errors.Join(err, file.Close())
}
