// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/csi-driver/mount"
)

// unmount removes all mounts at a path (csi-7). It goes by mountinfo, not by what the calls return:
// a call that hangs, because it writes back dirty pages, has often removed the mount already.
func (s *service) unmount(ctx context.Context, path string) error {
	var why []error
	// Stacked mounts come off one by one. The limit ends the loop in any case.
	for range 16 {
		mounts, err := s.mounts()
		if err != nil {
			return err
		}
		m, ok := mount.At(mounts, path)
		if !ok {
			return s.removeHungMount(path)
		}
		ways := []mount.How{mount.Normal, mount.Force, mount.Lazy}
		if mount.ShownElsewhere(mounts, m) {
			ways = []mount.How{mount.Normal, mount.Lazy}
		}
		if len(why) >= len(ways) {
			break
		}
		how := ways[len(why)]
		err = s.kernel.await(ctx, fmt.Sprintf("%s unmount of %s", how, path), func() error { return s.cfg.Mounter.Unmount(path, how) })
		switch {
		case err == nil:
			why = nil
		case ctx.Err() != nil:
			// Nobody waits any more. The milder way is still at work, and the call will be
			// repeated.
			return status.Errorf(codes.DeadlineExceeded, "unmount %s: %v", path, err)
		default:
			why = append(why, err)
		}
	}
	if mounts, err := s.mounts(); err == nil {
		if _, ok := mount.At(mounts, path); !ok {
			return s.removeHungMount(path)
		}
	}
	return status.Errorf(codes.Unavailable, "unmount %s: it is still mounted: %v", path, errors.Join(why...))
}

// removeHungMount makes sure that a mount that hangs does not appear at path later: without its
// directory it can only fail.
func (s *service) removeHungMount(path string) error {
	if !s.kernel.hangs(path) {
		return nil
	}
	if err := s.cfg.Mounter.Directory(path, false); err != nil {
		return status.Errorf(codes.Aborted, "a mount at %s hangs, and its directory cannot be removed: ask again: %v", path, err)
	}
	s.kernel.forget(path)
	return nil
}

// mounts lists the mounts of the node.
func (s *service) mounts() ([]mount.Point, error) {
	mounts, err := s.cfg.Mounter.Mounts()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "list mounts: %v", err)
	}
	return mounts, nil
}
