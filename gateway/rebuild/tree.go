// SPDX-License-Identifier: Apache-2.0

package rebuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// Written is what Extract wrote, and what it could not.
type Written struct {
	Files, Directories, Others int // hard links to what is there count as nothing
	Bytes                      uint64
	Lost                       []string // files that cannot be read whole; they are not there
	Refused                    []string // what this machine did not let it set: owners, attributes, devices
	MoreRefused                int
}

// Extract writes the tree of a volume into an empty directory: directories, files with their holes,
// symbolic and hard links, special files, modes, owners, times and extended attributes. A file that
// cannot be read whole ends it, unless acceptLoss is set: then it is left out, and listed.
func Extract(ctx context.Context, from volume.Reader, to string, acceptLoss bool) (w Written, err error) {
	there, err := os.ReadDir(to)
	if err == nil && len(there) > 0 {
		err = fmt.Errorf("%s has %d entries: give an empty directory", to, len(there))
	}
	if err != nil {
		return w, err
	}
	x := &extract{from: from, root: to, accept: acceptLoss, linked: map[uint64]string{}}
	a, err := from.GetAttr(ctx, volume.Request{}, volume.Root)
	if err == nil {
		err = x.directory(ctx, a, "/")
	}
	if err != nil {
		return x.Written, fmt.Errorf("write the volume's tree to %s: %w", to, err)
	}
	return x.Written, nil
}

type extract struct {
	Written
	from   volume.Reader
	root   string
	accept bool
	linked map[uint64]string // first path of inodes with several names
}

// list is how many entries of a directory are read at a time.
const list = 1000

// at is a path of the volume in the file system. A name has no slash and is not "..", and every
// directory above was made here.
func (x *extract) at(path string) string { return filepath.Join(x.root, path) }

// directory writes what is in a directory, which exists, and then its attributes.
func (x *extract) directory(ctx context.Context, a volume.Attr, path string) error {
	for after, eof := uint64(0), false; !eof; {
		entries, end, err := x.from.ReadDir(ctx, volume.Request{}, a.Handle, after, list)
		if err != nil {
			return fmt.Errorf("list %s: %w", path, err)
		}
		for _, e := range entries {
			if err := volume.CheckEntryName(e.Name); err != nil {
				return fmt.Errorf("entry %q of %s: %w", e.Name, path, err)
			}
			if err := x.entry(ctx, e.Attr, filepath.Join(path, e.Name)); err != nil {
				return err
			}
			after = e.Cookie
		}
		eof = end
	}
	x.Directories++
	return x.attributes(ctx, a, path)
}

// entry writes one entry.
func (x *extract) entry(ctx context.Context, a volume.Attr, path string) error {
	if a.Type != volume.Directory && a.Nlink > 1 {
		if first, ok := x.linked[a.Ino]; ok {
			if first == "" {
				x.Lost = append(x.Lost, path)
				return nil
			}
			return os.Link(x.at(first), x.at(path))
		}
		x.linked[a.Ino] = path
	}
	switch a.Type {
	case volume.Directory:
		if err := os.Mkdir(x.at(path), 0o700); err != nil {
			return err
		}
		return x.directory(ctx, a, path)
	case volume.Regular:
		err := x.file(ctx, a, path)
		away := errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrAccess) // it says nothing of the file
		if errors.Is(err, volume.ErrIO) && x.accept && !away && ctx.Err() == nil {
			x.Lost = append(x.Lost, path)
			if a.Nlink > 1 {
				x.linked[a.Ino] = ""
			}
			return os.Remove(x.at(path))
		}
		if err != nil {
			return err
		}
		x.Files++
		return x.attributes(ctx, a, path)
	case volume.Symlink:
		target, err := x.from.ReadLink(ctx, volume.Request{}, a.Handle)
		if err == nil {
			err = os.Symlink(target, x.at(path))
		}
		if err != nil {
			return fmt.Errorf("link %s: %w", path, err)
		}
		x.Others++
		return x.attributes(ctx, a, path)
	}
	kinds := map[volume.Type]uint32{volume.FIFO: unix.S_IFIFO, volume.Socket: unix.S_IFSOCK, volume.Block: unix.S_IFBLK,
		volume.Char: unix.S_IFCHR}
	dev := unix.Mkdev(uint32(a.Rdev>>32), uint32(a.Rdev))
	if err := unix.Mknod(x.at(path), kinds[a.Type]|0o600, int(dev)); err != nil {
		x.refused(path, "special file", err)
		delete(x.linked, a.Ino)
		return nil
	}
	x.Others++
	return x.attributes(ctx, a, path)
}

// file writes the content of a file, with its holes.
func (x *extract) file(ctx context.Context, a volume.Attr, path string) (err error) {
	f, err := os.OpenFile(x.at(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(int64(a.Size)); err != nil {
		return err
	}
	p := make([]byte, volume.MaxIO)
	for off := uint64(0); off < a.Size; {
		data, err := x.from.Seek(ctx, volume.Request{}, a.Handle, off, false)
		if errors.Is(err, volume.ErrNoData) {
			return nil
		}
		var end uint64
		if err == nil {
			end, err = x.from.Seek(ctx, volume.Request{}, a.Handle, data, true)
		}
		for off = data; err == nil && off < end; {
			var n int
			n, _, err = x.from.Read(ctx, volume.Request{}, a.Handle, off, p[:min(uint64(len(p)), end-off)])
			if err == nil && n == 0 {
				err = fmt.Errorf("it ends at byte %d, and has %d: %w", off, a.Size, volume.ErrIO)
			}
			if err == nil {
				_, err = f.WriteAt(p[:n], int64(off))
			}
			off += uint64(n)
			x.Bytes += uint64(n)
		}
		if err != nil {
			return fmt.Errorf("file %s at byte %d: %w", path, off, err)
		}
	}
	return nil
}

// maxRefused is how much of what was refused is listed.
const maxRefused = 100

func (x *extract) refused(path, what string, err error) {
	if len(x.Refused) == maxRefused {
		x.MoreRefused++
		return
	}
	x.Refused = append(x.Refused, fmt.Sprintf("%s of %s: %v", what, path, err))
}

// attributes sets extended attributes, owner, mode and times, in this order: another owner clears
// bits of the mode, and everything before changes times.
func (x *extract) attributes(ctx context.Context, a volume.Attr, path string) error {
	to := x.at(path)
	if a.Type == volume.Regular || a.Type == volume.Directory {
		names, err := x.from.ListXattr(ctx, volume.Request{}, a.Handle)
		if err != nil {
			return fmt.Errorf("list the attributes of %s: %w", path, err)
		}
		for _, name := range names {
			value, err := x.from.GetXattr(ctx, volume.Request{}, a.Handle, name)
			if err != nil {
				return fmt.Errorf("attribute %q of %s: %w", name, path, err)
			}
			if err := unix.Lsetxattr(to, "user."+name, value, 0); err != nil {
				x.refused(path, fmt.Sprintf("extended attribute %q", name), err)
			}
		}
	}
	if err := os.Lchown(to, int(a.UID), int(a.GID)); err != nil {
		x.refused(path, fmt.Sprintf("owner %d:%d", a.UID, a.GID), err)
	}
	if a.Type != volume.Symlink {
		if err := unix.Chmod(to, a.Mode); err != nil {
			x.refused(path, "mode", err)
		}
	}
	times := []unix.Timespec{timespec(a.Atime), timespec(a.Mtime)}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, to, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		x.refused(path, "times", err)
	}
	return nil
}

func timespec(t time.Time) unix.Timespec { return unix.NsecToTimespec(t.UnixNano()) }
