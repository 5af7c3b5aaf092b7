// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"strings"
	"time"
)

// CheckName says whether name can be looked up. It returns ErrNameTooLong above
// MaxName bytes, and ErrInvalid if name is empty or contains "/" or NUL. Any other
// bytes are a name, and nothing is normalized.
func CheckName(name string) error {
	if len(name) > MaxName {
		return ErrNameTooLong
	}
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return ErrInvalid
	}
	return nil
}

// CheckEntryName says whether name can be created, removed or renamed. It returns
// ErrInvalid for "." and "..", and else what CheckName returns.
func CheckEntryName(name string) error {
	if name == "." || name == ".." {
		return ErrInvalid
	}
	return CheckName(name)
}

// CheckXattrName says whether name can name a user attribute. It returns ErrInvalid
// if name is empty or contains NUL, and ErrNameTooLong above MaxName bytes.
func CheckXattrName(name string) error {
	if len(name) > MaxName {
		return ErrNameTooLong
	}
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		return ErrInvalid
	}
	return nil
}

// CheckCreateArgs says whether args describe an inode. It returns ErrInvalid for an
// unknown Type or Mode, a Mode other than Guarded for anything but a regular file,
// an empty Target or one with NUL, a Target or Size where there can be none, and mode
// bits above 07777; ErrNameTooLong for a Target above MaxTarget bytes; ErrTooBig for
// a Size above MaxSize.
func CheckCreateArgs(args CreateArgs) error {
	if args.Type < Regular || args.Type > Socket || args.Mode > Exclusive {
		return ErrInvalid
	}
	if args.Type != Regular && (args.Mode != Guarded || args.Attr.Size != nil) {
		return ErrInvalid
	}
	if (args.Type == Symlink) == (args.Target == "") {
		return ErrInvalid
	}
	if len(args.Target) > MaxTarget {
		return ErrNameTooLong
	}
	if strings.IndexByte(args.Target, 0) >= 0 {
		return ErrInvalid
	}
	if args.Attr.Mode != nil && *args.Attr.Mode > 0o7777 {
		return ErrInvalid
	}
	if args.Attr.Size != nil && *args.Attr.Size > MaxSize {
		return ErrTooBig
	}
	return nil
}

// NewAttr returns the attributes of the inode that c creates in dir with args, which
// CheckCreateArgs accepted. It returns ErrPerm if c may not set that owner or group,
// or is not user 0 and would make a device.
//
// Fields of args.Attr that are nil become: Mode 0, for a symbolic link 0777; UID and
// GID the caller's; Atime and Mtime now. If the directory is set-gid, the inode
// inherits its group, and a subdirectory is set-gid itself. Handle and Change are
// zero. Nlink is 2 for a directory and else 1.
func NewAttr(dir Attr, c Caller, args CreateArgs, now time.Time) (Attr, error) {
	if (args.Type == Block || args.Type == Char) && c.UID != 0 {
		return Attr{}, ErrPerm
	}
	a := Attr{
		Type: args.Type, Nlink: 1, UID: c.UID, GID: c.GID,
		Atime: now, Mtime: now, Ctime: now, Btime: now,
	}
	if dir.Mode&SetGID != 0 {
		a.GID = dir.GID
	}
	set := args.Attr
	if set.UID != nil {
		if c.UID != 0 && *set.UID != c.UID {
			return Attr{}, ErrPerm
		}
		a.UID = *set.UID
	}
	if set.GID != nil {
		if c.UID != 0 && *set.GID != a.GID && !c.inGroup(*set.GID) {
			return Attr{}, ErrPerm
		}
		a.GID = *set.GID
	}
	switch {
	case set.Mode != nil:
		a.Mode = *set.Mode
		if c.UID != 0 && !c.inGroup(a.GID) {
			a.Mode &^= SetGID
		}
	case args.Type == Symlink:
		a.Mode = 0o777
	}
	switch args.Type {
	case Regular:
		if set.Size != nil {
			a.Size = *set.Size
		}
	case Directory:
		a.Nlink = 2
		a.Mode |= dir.Mode & SetGID
	case Symlink:
		a.Size = uint64(len(args.Target))
	case Block, Char:
		a.Rdev = args.Rdev
	}
	if set.Atime != nil {
		a.Atime = timeOr(*set.Atime, now)
	}
	if set.Mtime != nil {
		a.Mtime = timeOr(*set.Mtime, now)
	}
	return a, nil
}
