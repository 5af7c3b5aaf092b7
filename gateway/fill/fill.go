// SPDX-License-Identifier: Apache-2.0

// Package fill copies a snapshot of one volume into another volume, which begins with it (ADR 53).
//
// # Rules
//
//   - fill-1: The last record of a copy is its mark: the root's attributes, under an operation ID
//     (Mark). A volume that has the mark has all of the snapshot, and is never copied into again.
//   - fill-2: An inode that is being copied has a mode that its source does not have (unfinished).
//     One record gives it its own mode, times and size, when all else of it is there. So another
//     attempt knows what is whole. It changes only inodes that have that mode.
//   - fill-3: The snapshot is dropped by nobody meanwhile (package gateway/snapshots). If it goes
//     all the same, the copy fails, and the volume is served to nobody.
//   - fill-4: The gateways of a volume's sites may read the volume that it is made of, while it is
//     being made, if both have the same owner: organization, site and cluster.
package fill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-storage/weir/volume"
)

// Mark is the operation that ends the copy into a volume.
var Mark = volume.OpID{Slot: "fill", Seq: 1}

// Target is a volume that is filled, at its home. Its methods may be called from many goroutines.
type Target interface {
	volume.Reader
	volume.Changer
	// Executed reports whether the outcome of an operation is kept.
	Executed(id volume.OpID) (bool, error)
}

// Config says what is copied, and to where.
type Config struct {
	// From is the other volume. It may be read from many goroutines.
	From volume.Reader
	// Snap is the number of the snapshot in handles.
	Snap uint32
	To   Target
	// Leads returns why the copy has to end, such as that To has another home; nil: it goes on. It
	// is called before each entry.
	Leads func() error
	After func(time.Duration) <-chan time.Time // time.After
	// Tell is called with what of the snapshot is known to be in To, from many goroutines.
	Tell func(bytes, inodes uint64)
}

// Bounds of a copy: how many files are copied at a time, how many entries of a directory are read
// at once, how long an operation may take, and how soon one that changed nothing is tried again.
const (
	atOnce   = 16
	listed   = 256
	opTime   = 30 * time.Second
	tryEvery = 100 * time.Millisecond
)

// filler is one attempt.
type filler struct {
	Config
	bytes, inodes atomic.Uint64

	mu sync.Mutex
	// linked has the copies of inodes with several names, by the number of their source.
	linked map[uint64]volume.Handle
}

// Copy fills To, and returns nil when that is committed. It may be called again after an error,
// at another home too. An error that wraps volume.ErrStale says that the snapshot is not there.
func Copy(ctx context.Context, cfg Config) error {
	f := &filler{Config: cfg, linked: map[uint64]volume.Handle{}}
	done, err := cfg.To.Executed(Mark)
	if err != nil {
		return err
	}
	if done {
		// The mark changed the root, so this waits until it is committed.
		_, err := cfg.To.GetAttr(ctx, volume.Request{}, volume.Root)
		return err
	}
	from := volume.Handle{Ino: volume.Root.Ino, Gen: volume.Root.Gen, Snap: cfg.Snap}
	root, err := again(ctx, f, func(ctx context.Context) (volume.Attr, error) {
		return f.From.GetAttr(ctx, volume.Request{}, from)
	})
	if err != nil {
		return fmt.Errorf("read the snapshot: %w", err)
	}
	if err := f.dir(ctx, "/", root, volume.Root, false); err != nil {
		return err
	}
	if err := f.attributes(ctx, root, volume.Root); err != nil {
		return err
	}
	set := volume.SetAttr{Mode: &root.Mode, UID: &root.UID, GID: &root.GID, Atime: &root.Atime, Mtime: &root.Mtime}
	if err := f.Leads(); err != nil {
		return err
	}
	_, err = again(ctx, f, func(ctx context.Context) (volume.Attr, error) {
		return f.To.SetAttr(ctx, volume.Request{ID: Mark}, volume.Root, set)
	})
	return err
}

// again calls an operation, within opTime, and calls it again while it says that it changed nothing
// and is to be asked again.
func again[T any](ctx context.Context, f *filler, op func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, opTime)
	defer cancel()
	for {
		out, err := op(ctx)
		if !errors.Is(err, volume.ErrDelay) || f.Leads() != nil {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-f.After(tryEvery):
		}
	}
}

// unfinished is the mode of the copy of an inode while it is not whole (fill-2). Nobody but user 0
// can use it.
func unfinished(of volume.Attr) uint32 {
	if of.Mode == volume.Sticky {
		return volume.Sticky | volume.SetGID
	}
	return volume.Sticky
}

// dir copies what is in a directory. fresh: nothing of it is there yet.
func (f *filler) dir(ctx context.Context, path string, from volume.Attr, to volume.Handle, fresh bool) error {
	type page struct {
		entries []volume.Entry
		eof     bool
	}
	for after, eof := uint64(0), false; !eof; {
		p, err := again(ctx, f, func(ctx context.Context) (p page, err error) {
			p.entries, p.eof, err = f.From.ReadDir(ctx, volume.Request{}, from.Handle, after, listed)
			return p, err
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", path, err)
		}
		if len(p.entries) == 0 && !p.eof {
			return fmt.Errorf("list %s: an empty page that is not the last: %w", path, volume.ErrIO)
		}
		files, inner := errgroup.WithContext(ctx)
		files.SetLimit(atOnce)
		var rest []volume.Entry
		for _, e := range p.entries {
			after = e.Cookie
			if e.Attr.Type == volume.Directory || e.Attr.Nlink > 1 {
				rest = append(rest, e)
				continue
			}
			files.Go(func() error {
				_, err := f.entry(inner, path, e, to, fresh)
				return err
			})
		}
		if err := files.Wait(); err != nil {
			return err
		}
		for _, e := range rest { // one after the other: their names share inodes
			if err := f.shared(ctx, path, e, to, fresh); err != nil {
				return err
			}
		}
		eof = p.eof
	}
	return nil
}

// shared copies a directory, or one of an inode's names.
func (f *filler) shared(ctx context.Context, path string, e volume.Entry, to volume.Handle, fresh bool) error {
	if e.Attr.Type == volume.Directory {
		_, err := f.entry(ctx, path, e, to, fresh)
		return err
	}
	f.mu.Lock()
	h, ok := f.linked[e.Attr.Ino]
	f.mu.Unlock()
	if !ok {
		h, err := f.entry(ctx, path, e, to, fresh)
		if err == nil {
			f.mu.Lock()
			f.linked[e.Attr.Ino] = h
			f.mu.Unlock()
		}
		return err
	}
	if _, there, err := f.find(ctx, to, e.Name, fresh); err != nil || there {
		return wrap(err, path, e.Name)
	}
	_, err := again(ctx, f, func(ctx context.Context) (volume.Created, error) {
		return f.To.Link(ctx, volume.Request{}, h, to, e.Name)
	})
	return wrap(err, path, e.Name)
}

func wrap(err error, path, name string) error {
	if err != nil {
		return fmt.Errorf("copy %s: %w", path+name, err)
	}
	return nil
}

// find returns what the target has under a name.
func (f *filler) find(ctx context.Context, dir volume.Handle, name string, fresh bool) (a volume.Attr, there bool, err error) {
	if err := f.Leads(); err != nil || fresh {
		return a, false, err
	}
	a, err = again(ctx, f, func(ctx context.Context) (volume.Attr, error) {
		return f.To.Lookup(ctx, volume.Request{}, dir, name)
	})
	if errors.Is(err, volume.ErrNotExist) {
		return a, false, nil
	}
	return a, err == nil, err
}

// entry copies what has a name, with all that is below it, and returns its copy.
func (f *filler) entry(ctx context.Context, path string, e volume.Entry, to volume.Handle, fresh bool) (volume.Handle, error) {
	from := e.Attr
	is, there, err := f.find(ctx, to, e.Name, fresh)
	if err == nil && !there {
		is, err = f.create(ctx, e, to)
	}
	if err == nil && is.Type != from.Type {
		err = fmt.Errorf("something of another type is there that was not copied: %w", volume.ErrExist)
	}
	if err != nil {
		return is.Handle, wrap(err, path, e.Name)
	}
	open := is.Mode == unfinished(from) // else it is whole, or was never this attempt's
	switch {
	case from.Type == volume.Directory: // also if it is whole: names of what is linked may be in it
		if err := f.dir(ctx, path+e.Name+"/", from, is.Handle, !there); err != nil {
			return is.Handle, err
		}
	case from.Type == volume.Regular && open:
		if err := f.data(ctx, from, is.Handle); err != nil {
			return is.Handle, wrap(err, path, e.Name)
		}
	}
	if open && (from.Type == volume.Directory || from.Type == volume.Regular) {
		err = f.finish(ctx, from, is)
	}
	if err == nil {
		f.Tell(f.bytes.Add(from.Used), f.inodes.Add(1))
	}
	return is.Handle, wrap(err, path, e.Name)
}

// create makes the copy of an inode. What has neither data nor entries is whole at once.
func (f *filler) create(ctx context.Context, e volume.Entry, to volume.Handle) (volume.Attr, error) {
	from, mode := e.Attr, e.Attr.Mode
	args := volume.CreateArgs{Type: from.Type, Mode: volume.Guarded, Rdev: from.Rdev,
		Attr: volume.SetAttr{Mode: &mode, UID: &from.UID, GID: &from.GID, Atime: &from.Atime, Mtime: &from.Mtime}}
	switch from.Type {
	case volume.Regular, volume.Directory:
		mode = unfinished(from)
	case volume.Symlink:
		var err error
		if args.Target, err = again(ctx, f, func(ctx context.Context) (string, error) {
			return f.From.ReadLink(ctx, volume.Request{}, from.Handle)
		}); err != nil {
			return volume.Attr{}, err
		}
	}
	made, err := again(ctx, f, func(ctx context.Context) (volume.Created, error) {
		return f.To.Create(ctx, volume.Request{}, to, e.Name, args)
	})
	return made.Attr, err
}

// finish makes a copy whole (fill-2).
func (f *filler) finish(ctx context.Context, from, is volume.Attr) error {
	if err := f.attributes(ctx, from, is.Handle); err != nil {
		return err
	}
	set := volume.SetAttr{Mode: &from.Mode, Atime: &from.Atime, Mtime: &from.Mtime}
	if from.Type == volume.Regular {
		set.Size = &from.Size
	}
	_, err := again(ctx, f, func(ctx context.Context) (volume.Attr, error) {
		return f.To.SetAttr(ctx, volume.Request{}, is.Handle, set)
	})
	return err
}

// attributes copies the user attributes of a file or directory.
func (f *filler) attributes(ctx context.Context, from volume.Attr, to volume.Handle) error {
	names, err := again(ctx, f, func(ctx context.Context) ([]string, error) {
		return f.From.ListXattr(ctx, volume.Request{}, from.Handle)
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		value, err := again(ctx, f, func(ctx context.Context) ([]byte, error) {
			return f.From.GetXattr(ctx, volume.Request{}, from.Handle, name)
		})
		if err != nil {
			return fmt.Errorf("user attribute %s: %w", name, err)
		}
		_, err = again(ctx, f, func(ctx context.Context) (volume.DirChange, error) {
			return f.To.SetXattr(ctx, volume.Request{}, to, name, value, volume.XattrEither)
		})
		if err != nil {
			return fmt.Errorf("user attribute %s: %w", name, err)
		}
	}
	return nil
}
