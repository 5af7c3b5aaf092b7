// SPDX-License-Identifier: Apache-2.0

package volume

import "slices"

// Access is what a caller wants to do with an inode. Its bits are those of one class
// of the mode.
type Access uint8

// The kinds of Access; they may be combined.
const (
	Exec  Access = 1 << iota // execute a file, search a directory
	Write                    // write a file, change a directory's entries
	Read                     // read a file, list a directory
)

// The bits of Attr.Mode above the nine permission bits.
const (
	SetUID uint32 = 0o4000
	SetGID uint32 = 0o2000
	Sticky uint32 = 0o1000
)

// inGroup reports whether gid is the caller's group or a supplementary one.
func (c Caller) inGroup(gid uint32) bool {
	return c.GID == gid || slices.Contains(c.Groups, gid)
}

// Permits reports whether the mode of a grants c all of want (POSIX 4.7, File Access
// Permissions). Exactly one class of the mode counts: the owner's, the group's or
// the others'. User 0 may do everything, except execute a file that has no execute
// bit at all.
func Permits(a Attr, c Caller, want Access) bool {
	if c.UID == 0 {
		return want&Exec == 0 || a.Type == Directory || a.Mode&0o111 != 0
	}
	bits := a.Mode &^ c.Mask
	switch {
	case c.UID == a.UID:
		bits >>= 6
	case c.inGroup(a.GID):
		bits >>= 3
	}
	return uint32(want)&^(bits&7) == 0
}

// PermitsIO reports whether c may read, or if write is set write, the content of a
// file. It permits more than Permits: the owner always may, and who may execute a
// file may read it. For a protocol checks the mode when a file is opened, and in
// POSIX a file that is open stays usable after a chmod.
func PermitsIO(a Attr, c Caller, write bool) bool {
	switch {
	case c.UID == 0 || c.UID == a.UID:
		return true
	case write:
		return Permits(a, c, Write)
	default:
		return Permits(a, c, Read) || Permits(a, c, Exec)
	}
}

// MayDelete says whether c may remove the entry for target from dir. It returns
// ErrAccess if c may not change dir, and ErrPerm if dir is sticky and c owns neither
// of the two.
func MayDelete(dir, target Attr, c Caller) error {
	if !Permits(dir, c, Write|Exec) {
		return ErrAccess
	}
	if dir.Mode&Sticky != 0 && c.UID != 0 && c.UID != dir.UID && c.UID != target.UID {
		return ErrPerm
	}
	return nil
}

// CheckRename says whether c may move src from directory from to directory to. dst
// is the inode that has the new name now, or nil. Call it when src and dst are known
// to be two inodes and src no ancestor of to (ErrInvalid), and before the check that
// a directory dst is empty (ErrNotEmpty). Its outcomes, in this order: ErrAccess and
// ErrPerm for from, then for to; ErrNotDir and ErrIsDir; ErrAccess if src is a
// directory that c may not write and would get another parent.
func CheckRename(from, src, to Attr, dst *Attr, c Caller) error {
	if err := MayDelete(from, src, c); err != nil {
		return err
	}
	if dst == nil {
		if !Permits(to, c, Write|Exec) {
			return ErrAccess
		}
	} else {
		if err := MayDelete(to, *dst, c); err != nil {
			return err
		}
		if src.Type == Directory && dst.Type != Directory {
			return ErrNotDir
		}
		if src.Type != Directory && dst.Type == Directory {
			return ErrIsDir
		}
	}
	if src.Type == Directory && from.Handle != to.Handle && !Permits(src, c, Write) {
		return ErrAccess
	}
	return nil
}

// CheckXattr says whether c may read, or if change is set change, user attributes of
// a. It returns ErrAccess if the mode forbids it. For a change it returns ErrPerm if
// a is neither a regular file nor a directory, since others can have none, and if a
// is a sticky directory that c does not own.
func CheckXattr(a Attr, c Caller, change bool) error {
	if !change {
		if a.Type == Symlink || Permits(a, c, Read) {
			return nil
		}
		return ErrAccess
	}
	if a.Type != Regular && a.Type != Directory {
		return ErrPerm
	}
	if a.Type == Directory && a.Mode&Sticky != 0 && c.UID != 0 && c.UID != a.UID {
		return ErrPerm
	}
	if !Permits(a, c, Write) {
		return ErrAccess
	}
	return nil
}
