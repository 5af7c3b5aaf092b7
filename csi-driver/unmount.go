// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// unmount removes all that is mounted at a path: rule 7. What counts is mountinfo, not what the calls return: one that hangs, because it waits for what
// is to be written, has often taken the mount out of sight already.
func (n *Node) unmount(ctx context.Context, path string) error {
	var why []error
	// Mounts that were stacked by somebody come off one by one; the limit is there to end in any case.
	for range 16 {
		mounts, err := n.mounts()
		if err != nil {
			return err
		}
		m, ok := at(mounts, path)
		if !ok {
			return n.defuse(path)
		}
		how := []How{Normal, Force, Lazy}
		if shownElsewhere(mounts, m) {
			how = []How{Normal, Lazy}
		}
		if len(why) >= len(how) {
			break
		}
		h := how[len(why)]
		err = n.patience.run(ctx, fmt.Sprintf("%s unmount of %s", h, path), func() error { return n.cfg.Mounter.Unmount(path, h) })
		switch {
		case err == nil:
			why = nil
		case ctx.Err() != nil: // nobody waits: what is milder is still at work, and the call will be repeated
			return status.Errorf(codes.DeadlineExceeded, "unmount %s: %v", path, err)
		default:
			why = append(why, err)
		}
	}
	if mounts, err := n.mounts(); err == nil {
		if _, ok := at(mounts, path); !ok {
			return n.defuse(path)
		}
	}
	return status.Errorf(codes.Unavailable, "unmount %s: it is still mounted: %v", path, errors.Join(why...))
}

// defuse makes sure that a mount that hangs does not appear at path later: without its directory it can only fail.
func (n *Node) defuse(path string) error {
	if !n.patience.hangs(path) {
		return nil
	}
	if err := n.cfg.Mounter.Directory(path, false); err != nil {
		return status.Errorf(codes.Aborted, "a mount at %s hangs, and its directory cannot be removed: ask again: %v", path, err)
	}
	n.patience.forget(path)
	return nil
}

func (n *Node) mounts() ([]MountPoint, error) {
	mounts, err := n.cfg.Mounter.Mounts()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "list mounts: %v", err)
	}
	return mounts, nil
}
