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
	"syscall"
)

// seen is a property of each volume's dataset: the last of its rewinds that whoever uses it knows
// of, or that it is known to have gone back. Properties do not go back with a dataset. It is not in
// what was cloned or received, which so is known not to be what was made here.
const (
	seen     = "org.weir:seen"
	never    = "never"    // it never went back
	wentBack = "wentback" // it did, and nobody settled that
)

// look notes which of the datasets went back since somebody said that he knows.
func (f *folders) look(ctx context.Context, names []string) error {
	all, err := f.tools.history(ctx, f.above)
	if err != nil {
		return err
	}
	out, err := f.tools.zfs(ctx, "get", "-H", "-d", "1", "-s", "local", "-o", "name,value", seen, f.above)
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
	for _, name := range names {
		state := f.datasets[name]
		if state == nil {
			continue
		}
		dataset := f.above + "/" + name
		last, stamp := all.last(dataset), all.stamp(dataset)
		state.stamp = stamp
		if state.rewound != nil {
			continue // it was found before
		}
		switch value := known[dataset]; {
		case value == "":
			state.rewound = fmt.Errorf("dataset %s was not made by this gateway: it was cloned, or received from elsewhere", dataset)
		case value == wentBack:
			state.rewound = fmt.Errorf("dataset %s went back while it was in use", dataset)
		case stamp != never && stamp != value:
			state.rewound = fmt.Errorf("dataset %s may have lost what was durable there: its pool's history has %q", dataset, last)
		}
		state.noted = true
	}
	return nil
}

// review reads the history again: a command that took datasets back is there only when it has
// ended, which may be after the pool was opened.
func (f *folders) review(ctx context.Context) error {
	all, err := f.tools.history(ctx, f.above)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, state := range f.datasets {
		dataset := f.above + "/" + name
		stamp := all.stamp(dataset)
		if state.stamp == "" || state.stamp == stamp {
			if state.stamp == "" && state.rewound == nil {
				state.stamp = stamp // it was made since the pool was opened
			}
			continue
		}
		state.stamp = stamp
		if stamp != never && state.rewound == nil {
			state.rewound = fmt.Errorf("dataset %s may have lost what was durable there: its pool's history has %q",
				dataset, all.last(dataset))
			state.noted = true // as it is there
		}
	}
	return nil
}

// Rewound is of cachepool.Volumes.
func (f *folders) Rewound(volume string) error {
	f.mu.Lock()
	dataset := f.in[volume]
	f.mu.Unlock()
	return f.rewound(dataset)
}

// rewound returns why a dataset may have lost something.
func (f *folders) rewound(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if state := f.datasets[name]; state != nil {
		return state.rewound
	}
	return nil
}

// Settled is of cachepool.Volumes.
func (f *folders) Settled(volume string, why error) error {
	f.changes.Lock()
	defer f.changes.Unlock()
	f.mu.Lock()
	dataset := f.in[volume]
	f.mu.Unlock()
	return f.settle(dataset, why)
}

// settle notes that whoever uses a dataset knows of the rewind that was found, and of no later one.
// The caller holds changes.
func (f *folders) settle(name string, why error) error {
	f.mu.Lock()
	state := f.datasets[name]
	if state == nil || state.rewound == nil || !errors.Is(state.rewound, why) {
		f.mu.Unlock()
		return nil
	}
	stamp := state.stamp
	f.mu.Unlock()
	dataset := f.above + "/" + name
	if stamp == "" {
		all, err := f.tools.history(context.Background(), dataset)
		if err != nil {
			return err
		}
		stamp = all.stamp(dataset)
	}
	if _, err := f.tools.zfs(context.Background(), "set", seen+"="+stamp, dataset); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(state.rewound, why) {
		state.rewound, state.noted, state.stamp = nil, false, stamp
	} else {
		state.noted = false // another one was found meanwhile, and its note is overwritten
	}
	return nil
}

// lost returns the volumes whose datasets may have lost something. What was set aside in one is not
// among them.
func (f *folders) lost() map[string]error {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]error{}
	for volume, name := range f.in {
		state := f.datasets[name]
		if state != nil && state.rewound != nil && (volume == name || f.in[name] != name) {
			out[volume] = state.rewound
		}
	}
	return out
}

// markNames are two files in each dataset that only mark writes, in turn. What they have tells,
// while the dataset is used, that it went back.
var markNames = [2]string{"mark0", "mark1"}

// mark is what one of the files has; "": nobody knows. If writing failed, it may have the other
// text.
type mark struct{ text, or string }

// markAll writes another mark into each dataset. Of those that went back it makes that durable.
func (f *folders) markAll(ctx context.Context) {
	f.mu.Lock()
	names := slices.Collect(maps.Keys(f.datasets))
	f.mu.Unlock()
	for _, name := range names {
		if ctx.Err() == nil {
			f.mark(name)
		}
	}
	for _, name := range names {
		if ctx.Err() == nil {
			f.note(ctx, name)
		}
	}
}

// mark writes another mark into a dataset, and notes it if the dataset has not the last two any
// more.
func (f *folders) mark(name string) {
	f.marking.Lock()
	defer f.marking.Unlock()
	f.mu.Lock()
	state := f.datasets[name]
	if state == nil || f.closed {
		f.mu.Unlock()
		return
	}
	marks, round, mounted := state.marks, state.round+1, state.device
	f.mu.Unlock()
	above, err := os.OpenRoot(filepath.Join(f.path, name))
	if err != nil {
		return
	}
	defer func() { _ = above.Close() }() // it was only held
	if device, err := deviceIn(above); err != nil || device != mounted {
		return // what is there is not in it
	}
	back := false
	for i, want := range marks {
		text, err := above.ReadFile(markNames[i])
		if want.text != "" && (errors.Is(err, fs.ErrNotExist) || err == nil && string(text) != want.text && string(text) != want.or) {
			back = true
		}
	}
	next := fmt.Sprintf("%s %20d\n", f.self, round)
	if back { // those that are there are of before
		marks = [2]mark{}
	}
	to := &marks[round%2]
	if err := overwrite(above, markNames[round%2], next); err == nil {
		*to = mark{text: next}
	} else if to.text != "" {
		to.or = next
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	state.marks, state.round = marks, round
	if back {
		f.backLocked(name, state)
	}
}

// back notes that a dataset went back while it was in use.
func (f *folders) back(name string) {
	f.mark(name) // with its marks: it is not noted twice
	f.mu.Lock()
	defer f.mu.Unlock()
	if state := f.datasets[name]; state != nil && state.rewound == nil {
		f.backLocked(name, state)
	}
}

// backLocked is back for who holds mu.
func (f *folders) backLocked(name string, state *datasetState) {
	state.rewound = fmt.Errorf("dataset %s/%s has what it had before: somebody took it back while it was in use", f.above, name)
	state.stamp, state.noted = "", false
}

// note makes it durable that a dataset went back while it was in use. The history says it too,
// unless a tool did it that notes nothing there. Without this note it is known until this process
// ends. markAll tries again what fails.
func (f *folders) note(ctx context.Context, name string) {
	f.mu.Lock()
	state := f.datasets[name]
	todo := state != nil && state.rewound != nil && !state.noted
	f.mu.Unlock()
	if !todo {
		return
	}
	f.changes.Lock() // whoever settles it does so before, and then it is not noted, or after
	defer f.changes.Unlock()
	f.mu.Lock()
	todo = f.datasets[name] == state && state.rewound != nil && !state.noted
	why := state.rewound
	f.mu.Unlock()
	if !todo {
		return
	}
	dataset := f.above + "/" + name
	if _, err := f.tools.zfs(ctx, "set", seen+"="+wentBack, dataset); err != nil {
		f.log.Warn("it cannot be noted yet that a dataset went back; trying again", "dataset", dataset, "error", err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	state.noted = errors.Is(state.rewound, why)
}

// stop ends the marks.
func (f *folders) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// deviceIn returns the device of an open folder.
func deviceIn(root *os.Root) (uint64, error) {
	i, err := root.Stat(".")
	if err != nil {
		return 0, err
	}
	st, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return st.Dev, nil
}

// overwrite writes a text over one of the same length. It leaves the old one if there is no room.
func overwrite(in *os.Root, name, text string) error {
	file, err := in.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	n, err := file.WriteAt([]byte(text), 0)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	return errors.Join(err, file.Close())
}
