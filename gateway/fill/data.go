// SPDX-License-Identifier: Apache-2.0

package fill

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weir-storage/weir/volume"
)

// buffers are of volume.MaxIO bytes each.
var buffers = sync.Pool{New: func() any { return new([volume.MaxIO]byte) }}

// data copies what a file has, but for its holes, and returns nil when that is committed. It begins
// at the file's beginning, whatever is there of it already.
func (f *filler) data(ctx context.Context, from volume.Attr, to volume.Handle) error {
	buf := buffers.Get().(*[volume.MaxIO]byte)
	defer buffers.Put(buf)
	var verf volume.Verifier
	wrote := false
	for off := uint64(0); off < from.Size; {
		begin, err := f.seek(ctx, from.Handle, off, false)
		if errors.Is(err, volume.ErrNoData) {
			break
		}
		if err != nil {
			return err
		}
		end, err := f.seek(ctx, from.Handle, begin, true)
		if err != nil {
			return err
		}
		for off = begin; off < end; {
			if err := f.Leads(); err != nil {
				return err
			}
			p := buf[:min(end-off, volume.MaxIO)]
			n, err := again(ctx, f, func(ctx context.Context) (int, error) {
				n, _, err := f.From.Read(ctx, volume.Request{}, from.Handle, off, p)
				return n, err
			})
			if err == nil && n == 0 {
				err = fmt.Errorf("no bytes at %d of %d: %w", off, from.Size, volume.ErrIO)
			}
			if err != nil {
				return err
			}
			w, err := again(ctx, f, func(ctx context.Context) (volume.Written, error) {
				return f.To.Write(ctx, volume.Request{}, to, off, p[:n], false)
			})
			if err != nil {
				return err
			}
			if wrote && w.Verifier != verf {
				return errLost
			}
			verf, wrote = w.Verifier, true
			off += uint64(n)
		}
	}
	if !wrote {
		return nil
	}
	is, err := again(ctx, f, func(ctx context.Context) (volume.Verifier, error) { return f.To.Commit(ctx, volume.Request{}, to) })
	if err == nil && is != verf {
		err = errLost
	}
	return err
}

// errLost says that a part of a file may not be there (protocol-24). The file is copied again.
var errLost = fmt.Errorf("what was written may be lost, since the volume got another home or began anew: %w", volume.ErrDelay)

func (f *filler) seek(ctx context.Context, h volume.Handle, off uint64, hole bool) (uint64, error) {
	return again(ctx, f, func(ctx context.Context) (uint64, error) { return f.From.Seek(ctx, volume.Request{}, h, off, hole) })
}
