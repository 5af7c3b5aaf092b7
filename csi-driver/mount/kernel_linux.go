// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Kernel makes the mount calls of the kernel of this machine. Any call but Mounts may hang while an
// NFS server does not answer. Paths are absolute and clean. It has no state: any number of
// goroutines may use it.
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

// Mounts lists what is mounted, in the order of mountinfo: of two mounts at one path the later one
// is on top. It never hangs.
func (Kernel) Mounts() ([]Point, error) {
	const file = "/proc/self/mountinfo"
	// Before Linux 5.8, a list that changes while it is read may lack lines: two reads must agree.
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

// Mount mounts a new file system of NFS 4 at a directory. vfs are options that any file system
// has, data is the text of those of NFS.
func (Kernel) Mount(source, path string, vfs []string, data string) error {
	if err := unix.Mount(source, path, "nfs4", flags(vfs), data); err != nil {
		return &os.PathError{Op: fmt.Sprintf("mount nfs4 %s with %s at", source, data), Path: path, Err: err}
	}
	return nil
}

// Bind mounts the directory at from at another path. With readOnly it makes the bind mount that is
// at path read-only instead, and ignores from. options are those that the mount has and keeps.
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

// Unmount removes the mount on top at path.
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

// Directory makes a directory, with there, or removes it if it is empty. Its state before the call
// is no error. Neither mkdir(2) nor rmdir(2) looks below a mount at the last name of the path.
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
