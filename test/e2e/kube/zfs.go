// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	_ "embed" // a script that nodes run
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed node/zfs.sh
var zfsScript string

// Disks are the block devices of a host node with ZFS, by what they are good for. They hold nothing
// when the node starts first, and what they held when it starts again.
var Disks = struct{ Data, Log, Cache string }{"/run/disks/data", "/run/disks/log", "/run/disks/cache"}

// startZFS gives a host node ZFS: zfs-fuse, which needs nothing of this machine's kernel but FUSE,
// the commands zpool and zfs, and Disks.
func (s *Site) startZFS(ctx context.Context, n *Node) error {
	if !s.hasZFS {
		return nil
	}
	fetched := filepath.Join(filepath.Dir(s.c.bin), "zfs")
	if _, err := os.Stat(filepath.Join(fetched, "done")); err != nil {
		return fmt.Errorf("give node %s ZFS: %w: run hack/fetch-zfs", n.Name, err)
	}
	dir := filepath.Join(s.nodeDir(n.Name), "disks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if _, err := n.Output(ctx, "set -- "+quote([]string{dir, fetched})+"\n"+zfsScript); err != nil {
		return fmt.Errorf("give node %s ZFS: %w", n.Name, err)
	}
	if err := n.machine.daemon("zfs-fuse", "/usr/local/sbin/zfs-fuse", "--no-daemon"); err != nil {
		return err
	}
	return s.await(ctx, "zfs-fuse", func(ctx context.Context) error {
		out, err := n.Output(ctx, "zpool list")
		if err != nil {
			err = errors.Join(err, errors.New(out))
		}
		return err
	})
}
