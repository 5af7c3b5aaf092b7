// SPDX-License-Identifier: Apache-2.0

package volume

import "time"

// CheckSetAttrArgs says whether set could be applied to any inode. It returns
// ErrInvalid for mode bits above 07777, and ErrTooBig.
func CheckSetAttrArgs(set SetAttr) error {
	if set.Mode != nil && *set.Mode > 0o7777 {
		return ErrInvalid
	}
	if set.Size != nil && *set.Size > MaxSize {
		return ErrTooBig
	}
	return nil
}

// CheckSetAttr says whether c may make the change set to an inode with the attributes
// a, by the rules of POSIX chmod, chown, truncate and utimensat as Linux applies
// them. It returns what CheckSetAttrArgs returns; ErrIsDir or ErrInvalid for the size
// of what is not a regular file; ErrPerm where only the owner or user 0 may;
// ErrAccess where write permission is missing.
func CheckSetAttr(a Attr, c Caller, set SetAttr) error {
	if err := CheckSetAttrArgs(set); err != nil {
		return err
	}
	if set.Size != nil && a.Type != Regular {
		if a.Type == Directory {
			return ErrIsDir
		}
		return ErrInvalid
	}
	owner := c.UID == 0 || c.UID == a.UID
	if set.Mode != nil && !owner {
		return ErrPerm
	}
	if set.UID != nil && c.UID != 0 && (!owner || *set.UID != a.UID) {
		return ErrPerm
	}
	if set.GID != nil && c.UID != 0 && (!owner || *set.GID != a.GID && !c.inGroup(*set.GID)) {
		return ErrPerm
	}
	for _, t := range []*time.Time{set.Atime, set.Mtime} {
		switch {
		case t == nil || owner:
		case !t.IsZero():
			return ErrPerm
		case !Permits(a, c, Write):
			return ErrAccess
		}
	}
	if set.Size != nil && !PermitsIO(a, c, true) {
		return ErrAccess
	}
	return nil
}

// Empty reports whether s sets nothing.
func (s SetAttr) Empty() bool { return s == SetAttr{} }

// ApplySetAttr makes the change set, which CheckSetAttr allowed, at the time now. A
// chown of anything but a directory clears the set-id bits, also for user 0. A chmod
// by a caller outside the file's group clears set-gid. A truncation by anybody but
// user 0 clears the set-id bits. The caller sets a.Change and a.Used. An empty set
// changes nothing.
func ApplySetAttr(a *Attr, c Caller, set SetAttr, now time.Time) {
	if set.Empty() {
		return
	}
	if set.UID != nil {
		a.UID = *set.UID
	}
	if set.GID != nil {
		a.GID = *set.GID
	}
	if set.Mode != nil {
		a.Mode = *set.Mode
		if c.UID != 0 && !c.inGroup(a.GID) {
			a.Mode &^= SetGID
		}
	}
	if (set.UID != nil || set.GID != nil) && a.Type != Directory {
		a.Mode = withoutSetID(a.Mode)
	}
	if set.Size != nil {
		a.Size = *set.Size
		a.Mtime = now
		if c.UID != 0 {
			a.Mode = withoutSetID(a.Mode)
		}
	}
	if set.Atime != nil {
		a.Atime = timeOr(*set.Atime, now)
	}
	if set.Mtime != nil {
		a.Mtime = timeOr(*set.Mtime, now)
	}
	a.Ctime = now
}

// ApplyWrite sets in a what follows from a write by c of bytes up to end, at the time
// now: size and times. Unless c is user 0, it clears the set-id bits. After a Punch,
// end is 0. The caller sets a.Change and a.Used.
func ApplyWrite(a *Attr, c Caller, end uint64, now time.Time) {
	a.Size = max(a.Size, end)
	a.Mtime, a.Ctime = now, now
	if c.UID != 0 {
		a.Mode = withoutSetID(a.Mode)
	}
}

// withoutSetID clears set-uid, and set-gid if the group may execute the file. Without
// the group's execute bit, set-gid once meant mandatory locking, and it stays.
func withoutSetID(mode uint32) uint32 {
	mode &^= SetUID
	if mode&0o010 != 0 {
		mode &^= SetGID
	}
	return mode
}

func timeOr(t, now time.Time) time.Time {
	if t.IsZero() {
		return now
	}
	return t
}
