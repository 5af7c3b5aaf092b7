// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
)

// The outcomes of operations. A protocol server maps them to its own codes in one
// file, and nothing else in this module returns protocol codes.
var (
	ErrNotExist     = errors.New("no such file or directory")
	ErrExist        = errors.New("file exists")
	ErrNotDir       = errors.New("not a directory")
	ErrIsDir        = errors.New("is a directory")
	ErrNotEmpty     = errors.New("directory not empty")
	ErrNameTooLong  = errors.New("name too long")
	ErrInvalid      = errors.New("invalid argument")
	ErrTooBig       = errors.New("file too big")
	ErrTooManyLinks = errors.New("too many links")
	ErrNoSpace      = errors.New("no space left in volume")
	ErrReadOnly     = errors.New("volume is read-only")
	ErrAccess       = errors.New("permission denied")       // the mode bits forbid it
	ErrPerm         = errors.New("operation not permitted") // only the owner or user 0 may
	ErrStale        = errors.New("stale file handle")       // the inode is gone, for ever
	ErrNoXattr      = errors.New("no such extended attribute")
	ErrXattrTooBig  = errors.New("extended attribute too big")
	ErrNoData       = errors.New("no data beyond offset")       // Seek
	ErrLocked       = errors.New("byte range is locked")        // see LockConflict
	ErrGrace        = errors.New("locks are being reclaimed")   // ask again later, in the grace period
	ErrNoGrace      = errors.New("lock can not be reclaimed")   // the grace period is over or unknown
	ErrDelay        = errors.New("volume is busy, ask again")   // nothing was changed
	ErrIO           = errors.New("input/output error")          // see the log for segment and path
	ErrUnknown      = errors.New("outcome of change not known") // repeat with the same OpID
)

// ErrLate reports that the client's slot already ran a later operation. The slot
// has dropped the result of this one, so its outcome cannot be known, and a repeat
// does not help. errors.Is(ErrLate, ErrUnknown) is true.
var ErrLate = fmt.Errorf("%w: a later operation of its slot was executed", ErrUnknown)

// Error says which operation failed on which inode, and wraps one of the Err
// values. Implementations return it.
type Error struct {
	Op   string // the method, in lower case
	Ino  uint64
	Name string // if the operation has one
	Err  error
}

func (e *Error) Error() string {
	if e.Name != "" {
		return fmt.Sprintf("%s inode %d name %q: %v", e.Op, e.Ino, e.Name, e.Err)
	}
	return fmt.Sprintf("%s inode %d: %v", e.Op, e.Ino, e.Err)
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// LockConflict says which lock of another owner forbids a lock. SetLock and
// TestLock return it. It wraps ErrLocked.
type LockConflict struct{ Held Lock }

func (e *LockConflict) Error() string {
	return fmt.Sprintf("byte range is locked by %s of gateway %s", e.Held.Owner.Owner, e.Held.Owner.Gateway)
}

// Unwrap returns ErrLocked.
func (e *LockConflict) Unwrap() error { return ErrLocked }
