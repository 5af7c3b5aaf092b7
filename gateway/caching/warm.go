// SPDX-License-Identifier: Apache-2.0

package caching

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/volume"
)

const (
	warmBlocks = 512 // that are fetched at a time
	warmNames  = 256 // that are listed at a time
)

// Bring brings the data of a path to the pool: of a file, or of all files below a directory. tell
// is called from time to time, and at the end. Files that are removed meanwhile are left out.
// Errors are those of the service.
func (c *Caching) Bring(ctx context.Context, id, where string, tell func(*forwardpb.WarmProgress) error) error {
	copied := c.cfg.Copies.Local(id)
	if copied == nil {
		name := id
		if v, ok := c.cfg.View.Record(id); ok {
			name = v.Name
		}
		return status.Errorf(codes.FailedPrecondition, "volume %s has no open copy at gateway %s of site %s, and no client there uses it: "+
			"mount it there first, or give a site that has a copy, see `weir status %s`", name, c.cfg.Gateway, c.cfg.Site, name)
	}
	ctx, done, err := copied.Use(ctx)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	defer done()
	ctx = engine.Recent(ctx)
	w := warmer{copy: copied, tell: tell}
	start, err := w.find(ctx, where)
	if err != nil {
		return err
	}
	w.progress.Counting = true
	if err := w.walk(ctx, start, w.count); err != nil {
		return failed(err)
	}
	w.progress.Counting, w.progress.Files = false, 0
	if err := w.walk(ctx, start, w.fetch); err != nil {
		return failed(err)
	}
	w.progress.Done = true
	return tell(&w.progress)
}

// failed makes err one of the service.
func failed(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	if errors.Is(err, volume.ErrDelay) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

// warmer brings the data of files to the pool.
type warmer struct {
	copy     *copies.Local
	tell     func(*forwardpb.WarmProgress) error
	progress forwardpb.WarmProgress
	skip     func(volume.Attr) bool // what is not to be walked; nil: nothing
}

// find finds what a path names. It follows no symbolic links.
func (w *warmer) find(ctx context.Context, where string) (volume.Attr, error) {
	at, err := w.copy.Engine.GetAttr(ctx, volume.Request{}, volume.Root)
	if err != nil {
		return at, failed(err)
	}
	for name := range strings.SplitSeq(strings.Trim(path.Clean("/"+where), "/"), "/") {
		if name == "" {
			continue
		}
		at, err = w.copy.Engine.Lookup(ctx, volume.Request{}, at.Handle, name)
		switch {
		case errors.Is(err, volume.ErrNotExist), errors.Is(err, volume.ErrNotDir):
			return at, status.Errorf(codes.NotFound, "path %q: there is no %q: write a path from the volume's root", where, name)
		case err != nil:
			return at, failed(err)
		}
	}
	if at.Type != volume.Directory && at.Type != volume.Regular {
		return at, status.Errorf(codes.InvalidArgument, "path %q: it is neither a file nor a directory: write the path of one", where)
	}
	return at, nil
}

// walk calls each for parts of every file at or below start.
func (w *warmer) walk(ctx context.Context, start volume.Attr, each func(context.Context, []segment.BlockRef) error) error {
	todo := []volume.Attr{start}
	for len(todo) > 0 {
		if err := ctx.Err(); err != nil { // the copy closes, or nobody waits any more
			return err
		}
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if w.skip != nil && w.skip(at) {
			continue
		}
		err := error(nil)
		switch at.Type {
		case volume.Directory:
			todo, err = w.list(ctx, at, todo)
		case volume.Regular:
			w.progress.Files++
			err = w.file(ctx, at, each)
		}
		if err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// gone reports whether a file or directory was removed meanwhile.
func gone(err error) bool {
	return errors.Is(err, volume.ErrNotExist) || errors.Is(err, volume.ErrStale)
}

// list adds what a directory has to a list.
func (w *warmer) list(ctx context.Context, dir volume.Attr, to []volume.Attr) ([]volume.Attr, error) {
	var after uint64
	for {
		if err := ctx.Err(); err != nil {
			return to, err
		}
		entries, eof, err := w.copy.Engine.ReadDir(ctx, volume.Request{}, dir.Handle, after, warmNames)
		if err != nil {
			return to, err
		}
		for _, e := range entries {
			to = append(to, e.Attr)
			after = e.Cookie
		}
		if eof || len(entries) == 0 {
			return to, nil
		}
	}
}

func (w *warmer) file(ctx context.Context, f volume.Attr, each func(context.Context, []segment.BlockRef) error) error {
	for off := uint64(0); ; {
		refs, next, err := w.copy.Engine.Blocks(ctx, f.Handle, off, warmBlocks)
		if err != nil {
			return err
		}
		if err := each(ctx, refs); err != nil {
			return err
		}
		if next == 0 {
			return nil
		}
		off = next
	}
}

// count counts what there is to do.
func (w *warmer) count(ctx context.Context, refs []segment.BlockRef) error {
	w.progress.Bytes += sizeOf(refs)
	w.progress.Missing += sizeOf(w.copy.Log.Missing(refs))
	return errors.Join(ctx.Err(), w.tell(&w.progress))
}

// fetch brings blocks to the pool.
func (w *warmer) fetch(ctx context.Context, refs []segment.BlockRef) error {
	moved, left, err := w.copy.Log.Fetch(ctx, refs)
	if err != nil {
		return fmt.Errorf("fetch %d blocks: %w", len(refs), err)
	}
	w.progress.Moved += uint64(moved)
	w.progress.Left += uint64(left)
	return w.tell(&w.progress)
}

func sizeOf(refs []segment.BlockRef) (n uint64) {
	for _, r := range refs {
		n += uint64(r.Len)
	}
	return n
}
