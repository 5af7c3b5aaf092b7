// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Kernel is the Mounter of a node. It calls the kernel itself: images of static binaries have no mount.nfs.
type Kernel struct{}

var flagOf = map[string]uintptr{
	"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "noatime": unix.MS_NOATIME,
	"nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME, "sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC,
}

func flags(options []string) uintptr {
	var f uintptr
	for _, o := range options {
		f |= flagOf[o]
	}
	return f
}

// Mounts implements Mounter.
func (Kernel) Mounts() ([]MountPoint, error) {
	const file = "/proc/self/mountinfo"
	// A list that changes while it is read may lack lines on kernels before 5.8: two readings must agree.
	var last []byte
	for range 5 {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("list mounts: %w", err)
		}
		if bytes.Equal(text, last) {
			break
		}
		last = text
	}
	return parseMountinfo(string(last)), nil
}

// Mount implements Mounter.
func (Kernel) Mount(source, path string, vfs []string, data string) error {
	if err := unix.Mount(source, path, "nfs4", flags(vfs), data); err != nil {
		return &os.PathError{Op: fmt.Sprintf("mount nfs4 %s with %s at", source, data), Path: path, Err: err}
	}
	return nil
}

// Bind implements Mounter.
func (Kernel) Bind(from, path string, readOnly bool, options []string) error {
	if readOnly {
		if err := unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|flags(options), ""); err != nil {
			return &os.PathError{Op: "remount read-only", Path: path, Err: err}
		}
		return nil
	}
	if err := unix.Mount(from, path, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: fmt.Sprintf("bind %s at", from), Path: path, Err: err}
	}
	return nil
}

// Unmount implements Mounter.
func (Kernel) Unmount(path string, how How) error {
	f := unix.UMOUNT_NOFOLLOW
	switch how {
	case Force:
		f |= unix.MNT_FORCE
	case Lazy:
		f |= unix.MNT_DETACH
	}
	if err := unix.Unmount(path, f); err != nil {
		return &os.PathError{Op: string(how) + " unmount", Path: path, Err: err}
	}
	return nil
}

// Directory implements Mounter. Neither mkdir(2) nor rmdir(2) crosses the mount at the last name of a path.
func (Kernel) Directory(path string, there bool) error {
	if !there {
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &os.PathError{Op: "rmdir", Path: path, Err: err}
		}
		return nil
	}
	err := unix.Mkdir(path, 0o750)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return err
		}
		err = unix.Mkdir(path, 0o750)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return &os.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

// IdentifierFile returns a function for NodeConfig.SetIdentifier that keeps the NFS client's identity in a file, which is
// /sys/fs/nfs/net/nfs_client/identifier on a node. When it is not there, the kernel is asked to load its NFS client.
func IdentifierFile(file string) func(string) error {
	return func(id string) error {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			fd, err := unix.Fsopen("nfs4", unix.FSOPEN_CLOEXEC)
			if err != nil {
				return fmt.Errorf("the node's kernel has no NFS client: install the module nfsv4 of its kernel: fsopen nfs4: %w", err)
			}
			if err := unix.Close(fd); err != nil {
				return err
			}
		}
		now, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the NFS client's identity: %w", err)
		}
		if strings.TrimSpace(string(now)) == id {
			return nil
		}
		// Not O_CREATE: a file that the kernel does not know of would help nobody.
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return fmt.Errorf("write the NFS client's identity: %w", err)
		}
		_, err = f.WriteString(id)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("write the NFS client's identity %q to %s: %w", id, file, err)
		}
		return nil
	}
}
