// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// seen is a property of each dataset: the last of its rewinds that whoever uses it knows of, or why
// it is known to have gone back. Properties do not go back with a dataset.
const (
	seen     = "org.weir:seen"
	wentBack = "rewound: " // before why it is known to have gone back
	never    = "never"
)

// rewinds is what the history of a ZFS pool tells of datasets that went back to what they had
// before, and so may have lost what was made durable there (protocol-3).
type rewinds struct {
	of map[string]rewind // by dataset
	// all: the pool was imported without its last transactions, or without its log devices.
	all rewind
}

// rewind is a line of the history.
type rewind struct {
	n    int // lines count from 1
	line string
}

// last returns the last line that tells that a dataset went back; "": none does.
func (r rewinds) last(dataset string) string {
	if own := r.of[dataset]; own.n > r.all.n {
		return own.line
	}
	return r.all.line
}

// parseHistory reads what `zpool history -i` prints: what people typed, and what the pool noted
// itself.
func parseHistory(text string) rewinds {
	r := rewinds{of: map[string]rewind{}}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		if len(words) < 4 {
			continue
		}
		here, end := rewind{n, line}, words[len(words)-1]
		name := func(s string) string { before, _, _ := strings.Cut(s, "@"); return before }
		switch what := words[1] + " " + words[2]; what {
		case "zfs rollback":
			r.of[name(end)] = here
		case "zfs receive", "zfs recv":
			r.of[name(end)] = here
		case "zfs create", "zfs clone":
			delete(r.of, end) // what was there before had only the same name
		case "zpool import", "zpool clear":
			for _, w := range words[3:] {
				if strings.HasPrefix(w, "-") && strings.ContainsAny(w, "FXTm") {
					r.all = here
				}
			}
		default:
			// OpenZFS notes it so, whoever asked for it.
			if !strings.Contains(line, "] clone swap ") {
				continue
			}
			for _, w := range words {
				for _, temporary := range []string{"/%rollback", "/%recv"} {
					if dataset, ok := strings.CutSuffix(w, temporary); ok {
						r.of[dataset] = here
					}
				}
			}
		}
	}
	return r
}

// look notes which datasets went back since somebody said that he knows.
func (f *folders) look(ctx context.Context) error {
	pool, _, _ := strings.Cut(f.above, "/")
	history, err := f.tools.zpool(ctx, "history", "-i", pool)
	if err != nil {
		return err
	}
	out, err := f.tools.zfs(ctx, "get", "-Hr", "-o", "name,value", seen, f.above)
	if err != nil {
		return err
	}
	all := parseHistory(history)
	f.mu.Lock()
	defer f.mu.Unlock()
	for line := range strings.Lines(out) {
		dataset, known, _ := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		name, below := strings.CutPrefix(dataset, f.above+"/")
		last := all.last(dataset)
		switch why, noted := strings.CutPrefix(known, wentBack); {
		case !below:
		case noted:
			f.rewound[name] = errors.New(why)
		case last != "" && last != known:
			f.rewound[name] = fmt.Errorf("dataset %s may have lost what was durable there: its pool's history has %q", dataset, last)
		}
	}
	return nil
}

// Rewound is of cachepool.Volumes.
func (f *folders) Rewound(volume string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rewound[f.in[volume]]
}

// Settled is of cachepool.Volumes.
func (f *folders) Settled(volume string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settle(f.in[volume])
}

// settle notes that whoever uses a dataset knows of its rewinds. The caller holds mu.
func (f *folders) settle(name string) error {
	if f.rewound[name] == nil {
		return nil
	}
	if err := f.tools.settle(context.Background(), f.above+"/"+name); err != nil {
		return err
	}
	delete(f.rewound, name)
	return nil
}

// settle notes at a dataset that the last of its rewinds is known.
func (t Tools) settle(ctx context.Context, dataset string) error {
	pool, _, _ := strings.Cut(dataset, "/")
	history, err := t.zpool(ctx, "history", "-i", pool)
	if err != nil {
		return err
	}
	last := parseHistory(history).last(dataset)
	if last == "" {
		last = never
	}
	_, err = t.zfs(ctx, "set", seen+"="+last, dataset)
	return err
}

// markName is a file in each dataset that only watch writes. What it has tells, while the dataset
// is used, that it went back.
const markName = "mark"

// watch writes another mark into each dataset, and returns the volumes in those that do not have
// the last one any more. A dataset that goes back to a snapshot of the same moment is not noticed
// before the pool is opened again.
func (f *folders) watch(ctx context.Context) (volumes map[string]error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	volumes = map[string]error{}
	for _, name := range f.in {
		path := filepath.Join(f.path, name, markName)
		text, err := os.ReadFile(path)
		switch was := f.marks[name]; {
		case was == "" || f.rewound[name] != nil:
		case errors.Is(err, fs.ErrNotExist) || err == nil && string(text) != was:
			why := fmt.Errorf("dataset %s/%s has what it had before: somebody took it back while it was in use", f.above, name)
			f.rewound[name] = why
			// The history says it too, unless a tool did it that notes nothing there.
			_, _ = f.tools.zfs(ctx, "set", seen+"="+wentBack+why.Error(), f.above+"/"+name)
		}
		f.round++
		mark := fmt.Sprintf("%s %20d\n", f.self, f.round)
		if err := overwrite(path, mark); err == nil {
			f.marks[name] = mark
		}
	}
	for volume, name := range f.in {
		if why := f.rewound[name]; why != nil {
			volumes[volume] = why
		}
	}
	return volumes
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
