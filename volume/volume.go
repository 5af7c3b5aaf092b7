// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/hex"
	"time"
)

// ID is a volume's UUID (RFC 9562). It is never used for another volume.
type ID [16]byte

// String formats the ID in the usual 8-4-4-4-12 form.
func (id ID) String() string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Handle names an inode, the same at every gateway for ever (protocol-20).
type Handle struct {
	Ino uint64 // never used again, not even after a crash
	Gen uint64 // the epoch that created the inode; 0 for the root
	// Snap is the snapshot in which the inode is looked at; 0: the present. Only what changes
	// nothing takes a handle of a snapshot; anything else returns ErrReadOnly. SnapshotDir makes of
	// the handle of a directory that of its directory of snapshots.
	Snap uint32
}

// SnapshotDir is in place of a snapshot in the handle of the directory of a directory's snapshots.
const SnapshotDir = ^uint32(0)

// Root is the handle of every volume's root directory.
var Root = Handle{Ino: 1}

// Type is the type of an inode.
type Type uint8

// The types of an inode. The zero value is none of them.
const (
	Regular Type = iota + 1
	Directory
	Symlink
	Block
	Char
	FIFO
	Socket
)

// Attr are the attributes of an inode at one moment.
type Attr struct {
	Handle
	Type   Type
	Mode   uint32 // permission bits with set-id and sticky, 07777
	Nlink  uint32
	UID    uint32
	GID    uint32
	Rdev   uint64 // major<<32 | minor; devices only
	Size   uint64 // bytes; a directory's is whatever the implementation finds useful
	Used   uint64 // bytes of recorded data, holes not counted
	Atime  time.Time
	Mtime  time.Time
	Ctime  time.Time
	Btime  time.Time // creation
	Change uint64    // epoch<<40 | counter, never the same for other content (protocol-21)
}

// SetAttr lists the attributes to set; nil fields stay as they are.
type SetAttr struct {
	Mode *uint32
	UID  *uint32
	GID  *uint32
	Size *uint64 // truncates or extends with a hole
	// Atime and Mtime are the times to set. The zero time means the time of the
	// home's clock.
	Atime *time.Time
	Mtime *time.Time
}

// Caller is the user on whose behalf an operation runs.
type Caller struct {
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary, at most 64
	// Mask has the bits of files' modes that do not count for him.
	Mask uint32
}

// OpID names one change, so that a repeat of it is recognized (protocol-22). Its
// fields are opaque to a volume. The zero OpID asks for no such protection.
//
// Of each Slot a volume keeps the results of the newest Seq, one per Index.
// Sequence numbers are compared as RFC 1982 says. An operation with an older Seq
// than the newest is a late duplicate of one whose outcome its client knows. It is
// not executed and returns ErrLate, which is an ErrUnknown.
//
// Errors are results too, and repeats return them. The exceptions are ErrDelay,
// ErrUnknown, ErrIO and ErrGrace, after which a repeat is executed. Results that are
// errors changed nothing and need not survive a restart. Neither need the result of
// an unstable Write whose data is not committed.
type OpID struct {
	Slot  string // client, session and slot; at most 64 bytes
	Seq   uint32 // sequence number within the slot
	Index uint32 // position of the operation within its request
}

// Request is what every operation carries besides its arguments.
type Request struct {
	Caller Caller
	ID     OpID // ignored by methods that change nothing
	// Revoked ends when the client behind the operation loses its access to the
	// volume, or its lease; nil means never. A volume may then stop waiting: it returns ErrDelay if
	// the operation surely changed nothing, else ErrUnknown. A volume that never
	// waits may ignore it. It is a Context and not a channel, because
	// context.AfterFunc then follows it without a goroutine per operation.
	Revoked context.Context
	// Yield ends when the caller would rather ask again than wait; nil means never. A volume that
	// waits then returns ErrDelay, if the operation surely changed nothing. If that is not known,
	// it goes on waiting.
	Yield context.Context
}

// DirChange is a directory's change attribute before and after an atomic change.
type DirChange struct{ Before, After uint64 }

// Entry is one name in a directory.
type Entry struct {
	Name   string
	Cookie uint64 // position for ReadDir, at least 3; the home assigns it
	Attr   Attr
}

// CreateMode says what Create does if the name exists.
type CreateMode uint8

// The modes of Create, RFC 8881 section 18.16.3.
const (
	// Unchecked returns the existing regular file, after setting Size if asked to.
	Unchecked CreateMode = iota
	// Guarded fails with ErrExist.
	Guarded
	// Exclusive fails with ErrExist unless the file was created with the same Verf.
	Exclusive
)

// CreateArgs describes a new inode.
type CreateArgs struct {
	Type   Type
	Mode   CreateMode // other than Guarded only for Regular
	Verf   [8]byte    // for Exclusive
	Attr   SetAttr    // see NewAttr for what nil fields become
	Target string     // for Symlink, 1 to 4095 bytes
	Rdev   uint64     // for Block and Char
}

// Created is the outcome of Create and Link.
type Created struct {
	Attr Attr
	New  bool // false if Create returned an existing file
	Dir  DirChange
}

// Verifier changes whenever unstable data may have been lost (protocol-24). It
// names the gateway's incarnation and the volume's epoch.
type Verifier [8]byte

// Written is the outcome of Write.
type Written struct {
	Attr     Attr // after the write
	Verifier Verifier
}

// Space is a volume's size, and what is free of it, in bytes and inodes.
type Space struct {
	TotalBytes, FreeBytes   uint64
	TotalInodes, FreeInodes uint64
}

// Lock is a byte-range lock of the bytes from Start to End, both included. The End
// ^uint64(0) means the end of the file, whatever its size becomes.
type Lock struct {
	Owner      LockOwner
	Start, End uint64
	Exclusive  bool
}

// LockOwner names an owner of locks. Gateway is the gateway that registers its
// locks. Owner is opaque, and unique within that gateway.
type LockOwner struct {
	Gateway string
	Owner   string
}

// XattrMode says what SetXattr does, RFC 8276 section 8.4.3.
type XattrMode uint8

// The modes of SetXattr.
const (
	XattrEither  XattrMode = iota // create or replace
	XattrCreate                   // ErrExist if it is there
	XattrReplace                  // ErrNoXattr if it is not
)

// Limits that every implementation enforces.
const (
	MaxName   = 255     // bytes of a name: ErrNameTooLong
	MaxTarget = 4095    // bytes of a symbolic link's target: ErrNameTooLong
	MaxIO     = 1 << 20 // bytes of one Read or Write: ErrInvalid
	MaxXattr  = 64 << 10
	MaxLinks  = 65000
	MaxSize   = 1<<63 - 1 // bytes of a file: ErrTooBig
)

// Volume is a file system. The package comment has the rules for every method, and
// errors.go the outcomes. Any method can return ErrStale (the handle's inode is
// gone), ErrAccess or ErrPerm (the caller may not do that), ErrIO, ErrDelay and
// ErrUnknown. Methods that change something can also return ErrNoSpace and
// ErrReadOnly. A method's own comment lists its further outcomes.
type Volume interface {
	Reader
	Changer
	Locker

	// ID is the volume's identity; it never changes.
	ID() ID
	// Hold keeps h usable through this gateway after its last name is gone, until
	// Release was called once for each Hold. It does not wait. It returns ErrStale if
	// h is gone as far as this gateway knows: from when the Remove or Rename that took
	// the last name has returned. While that change is under way, and may still be
	// taken back, Hold returns ErrDelay. A gateway whose copy trails the home may not
	// know the change yet: Hold then succeeds, and other methods return ErrStale for h.
	Hold(h Handle) error
	// Release ends one Hold of h.
	Release(h Handle)
	// Forget drops the recorded results of every slot whose name begins with prefix,
	// after a session or client has ended. If the call is lost, that costs room, not
	// safety.
	Forget(ctx context.Context, prefix string) error
}

// Reader is the half of a Volume that changes nothing.
type Reader interface {
	// GetAttr returns the attributes of h.
	GetAttr(ctx context.Context, r Request, h Handle) (Attr, error)
	// Lookup finds name in dir. It also finds "." and ".."; ".." of the root is the
	// root. ErrNotExist, ErrNotDir, ErrNameTooLong, ErrInvalid (the name is empty, or
	// has "/" or NUL in it).
	Lookup(ctx context.Context, r Request, dir Handle, name string) (Attr, error)
	// ReadLink returns a symbolic link's target. ErrInvalid for other types.
	ReadLink(ctx context.Context, r Request, h Handle) (string, error)
	// ReadDir returns up to limit entries in the order of their cookies, and whether
	// they are the last. It begins after the cookie after; 0 is the start. It leaves
	// out "." and "..". An entry that exists during a whole listing is returned exactly
	// once, whatever else changes meanwhile. A name that Rename replaces continues to
	// exist, and keeps its cookie. ErrNotDir, ErrInvalid (limit below 1).
	ReadDir(ctx context.Context, r Request, dir Handle, after uint64, limit int) (entries []Entry, eof bool, err error)
	// Read reads up to len(p) bytes from offset off into p. It returns how many bytes
	// it read, and whether they reach the end of the file. Holes read as zeros.
	// ErrIsDir, ErrInvalid (not a regular file, or p is longer than MaxIO).
	Read(ctx context.Context, r Request, h Handle, off uint64, p []byte) (n int, eof bool, err error)
	// Seek returns the next offset at or after off at which there is data or, if hole
	// is set, a hole. The end of the file counts as a hole. A hole that it returns was
	// recorded as one, but it may treat a small hole as data. ErrNoData if off is at or
	// after the end, or if no data follows. ErrIsDir, ErrInvalid (not a regular file).
	Seek(ctx context.Context, r Request, h Handle, off uint64, hole bool) (uint64, error)
	// GetXattr returns a user attribute's value. ErrNoXattr.
	GetXattr(ctx context.Context, r Request, h Handle, name string) ([]byte, error)
	// ListXattr returns the names of h's user attributes, sorted.
	ListXattr(ctx context.Context, r Request, h Handle) ([]string, error)
	// Space returns the volume's size, and what is free of it.
	Space(ctx context.Context) (Space, error)
}

// Changer is the half of a Volume that changes it. Each method is one atomic
// change and is executed once for each Request.ID (protocol-22).
type Changer interface {
	// Create makes an inode called name in dir. ErrExist, ErrNotDir, ErrNameTooLong,
	// ErrInvalid (also for "." and ".."). If the name exists and the mode is Unchecked
	// or Exclusive: ErrIsDir for a directory, ErrExist for anything else but a regular
	// file. With Unchecked, only setting the size of the existing file needs permission
	// for it.
	Create(ctx context.Context, r Request, dir Handle, name string, args CreateArgs) (Created, error)
	// Link makes a further name for h. ErrIsDir if h is a directory, ErrExist,
	// ErrTooManyLinks. ErrNotExist if h has no name left and only Hold keeps it.
	Link(ctx context.Context, r Request, h Handle, dir Handle, name string) (Created, error)
	// Remove removes name from dir. It may be that of an empty directory. ErrNotExist,
	// ErrNotEmpty, ErrInvalid (also for "." and "..").
	Remove(ctx context.Context, r Request, dir Handle, name string) (DirChange, error)
	// Rename moves a name, and atomically replaces a target of a compatible type.
	// ErrNotExist, ErrIsDir, ErrNotDir, ErrNotEmpty, ErrInvalid (also for a directory
	// that would move into itself). If both names are of one inode, nothing changes. If
	// both directories are the same, src and dst are equal.
	Rename(ctx context.Context, r Request, from Handle, name string, to Handle, newName string) (src, dst DirChange, err error)
	// SetAttr changes attributes and returns the new ones. ErrTooBig. ErrIsDir or
	// ErrInvalid if it would set the size of what is not a regular file.
	SetAttr(ctx context.Context, r Request, h Handle, set SetAttr) (Attr, error)
	// Write writes data, at most MaxIO bytes, at off. If stable is set, it returns when
	// the data is committed. Else the data is visible at once, and can be lost only
	// with a change of the Verifier. Empty data changes nothing. ErrIsDir, ErrInvalid,
	// ErrTooBig.
	Write(ctx context.Context, r Request, h Handle, off uint64, data []byte, stable bool) (Written, error)
	// Commit commits all data that was written to h so far. It needs no permission.
	// ErrIsDir, ErrInvalid.
	Commit(ctx context.Context, r Request, h Handle) (Verifier, error)
	// Punch makes [off, off+n) a hole, and leaves the size as it is. ErrIsDir,
	// ErrInvalid (also if off+n overflows).
	Punch(ctx context.Context, r Request, h Handle, off, n uint64) (Attr, error)
	// SetXattr sets a user attribute. The DirChange is of h itself. ErrNoXattr,
	// ErrExist, ErrXattrTooBig; ErrNameTooLong and ErrInvalid for the name; ErrPerm if h
	// is neither a regular file nor a directory.
	SetXattr(ctx context.Context, r Request, h Handle, name string, value []byte, mode XattrMode) (DirChange, error)
	// RemoveXattr removes a user attribute. The DirChange is of h itself. ErrNoXattr.
	RemoveXattr(ctx context.Context, r Request, h Handle, name string) (DirChange, error)
}

// Locker grants byte-range locks among all gateways of the volume. The home keeps
// them in memory. The gateway that registered a lock registers it again with each
// new home (protocol-23). Deadlocks are not detected.
type Locker interface {
	// SetLock grants l in place of the locks that its owner had in that range, or
	// returns a *LockConflict. reclaim says that the client asserts that it had l
	// before this gateway restarted. Without reclaim, the outcome is ErrGrace while
	// other gateways have not registered their locks again. With reclaim, it is
	// ErrNoGrace if the grace period is over, or if others may have had l meanwhile.
	// ErrIsDir, ErrInvalid (not a regular file, or Start is greater than End). A lock
	// needs no permission: opening the file did.
	SetLock(ctx context.Context, r Request, h Handle, l Lock, reclaim bool) error
	// TestLock returns nil or the *LockConflict that SetLock would return.
	TestLock(ctx context.Context, r Request, h Handle, l Lock) error
	// Unlock releases what l.Owner has locked of l's range. It is no error if that is
	// nothing.
	Unlock(ctx context.Context, r Request, h Handle, l Lock) error
}
