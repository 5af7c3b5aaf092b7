// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/hex"
	"time"
)

// ID is a volume's UUID (RFC 9562), never used again.
type ID [16]byte

// String formats the ID in the usual 8-4-4-4-12 form.
func (id ID) String() string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Handle names an inode, the same at every gateway for ever (rule 20).
type Handle struct {
	Ino uint64 // never used again, not even after a crash
	Gen uint64 // the epoch that created the inode; 0 for the root
}

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
	Change uint64    // epoch<<40 | counter, never repeated for other content (rule 21)
}

// SetAttr lists the attributes to set; nil fields stay as they are.
type SetAttr struct {
	Mode *uint32
	UID  *uint32
	GID  *uint32
	Size *uint64 // truncates or extends with a hole
	// Atime and Mtime are set to a given time, or to the home's clock if the
	// pointer's time is zero.
	Atime *time.Time
	Mtime *time.Time
}

// Caller is on whose behalf an operation runs.
type Caller struct {
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary, at most 64
}

// OpID names one execution of one change (rule 22). It is opaque to a volume:
// within one Slot only the results of the newest Seq are kept, one per Index.
// The zero OpID asks for no protection. Sequence numbers are compared as RFC 1982
// says: an operation with an older Seq than the newest is a late duplicate of one
// that its client knows the end of; it is not executed and returns ErrUnknown.
//
// Errors are results too, and are repeated, except ErrDelay, ErrUnknown, ErrIO and
// ErrGrace. As they changed nothing, they need not survive a restart; nor need
// the result of an unstable Write before its data is committed.
type OpID struct {
	Slot  string // client, session and slot; at most 64 bytes
	Seq   uint32 // sequence number within the slot
	Index uint32 // position of the operation within its request
}

// Request is what every operation carries besides its arguments.
type Request struct {
	Caller Caller
	ID     OpID // ignored by methods that change nothing
}

// DirChange is a directory's change attribute around an atomic change.
type DirChange struct{ Before, After uint64 }

// Entry is one name in a directory.
type Entry struct {
	Name   string
	Cookie uint64 // position for ReadDir, assigned by the home; at least 3
	Attr   Attr
}

// CreateMode says what Create does when the name exists.
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
	Attr   SetAttr    // Mode defaults to 0; UID and GID to the caller's (GID to the directory's if it is set-gid)
	Target string     // for Symlink, 1 to 4095 bytes
	Rdev   uint64     // for Block and Char
}

// Created is the outcome of Create and Link.
type Created struct {
	Attr Attr
	New  bool // false if Create returned an existing file
	Dir  DirChange
}

// Verifier changes whenever unstable data may have been lost: it names the
// gateway's incarnation and the volume's epoch (rule 24).
type Verifier [8]byte

// Written is the outcome of Write.
type Written struct {
	Attr     Attr // after the write
	Verifier Verifier
}

// Space is a volume's size and use in bytes and inodes.
type Space struct {
	TotalBytes, FreeBytes   uint64
	TotalInodes, FreeInodes uint64
}

// Lock is a byte-range lock. End is inclusive; ^uint64(0) means to the end of the file
// whatever its size.
type Lock struct {
	Owner      LockOwner
	Start, End uint64
	Exclusive  bool
}

// LockOwner names the holder of locks. Gateway is the gateway that registered
// it, Owner is opaque and unique within that gateway.
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

// Volume is a file system. See the package comment for the rules that hold for
// every method, and errors.go for the outcomes; a method's comment lists those
// that are its own. Any method can return ErrStale (the handle's inode is
// gone), ErrAccess or ErrPerm (the caller may not), ErrIO, ErrDelay, ErrUnknown.
// Methods that change something can also return ErrNoSpace and ErrReadOnly.
type Volume interface {
	Reader
	Changer
	Locker

	// ID is the volume's identity; it never changes.
	ID() ID
	// Hold keeps h usable through this gateway after its last name is gone,
	// until as many Releases. It does not wait. It returns ErrStale if h is
	// gone as far as this gateway knows: from when Remove or Rename has
	// answered, however much of that is still to be written elsewhere. While
	// such a change is under way, and may still be taken back, it is ErrDelay.
	// A gateway that trails may not know it yet: it then holds what may be
	// gone, of which other methods return ErrStale.
	Hold(h Handle) error
	// Release ends one Hold.
	Release(h Handle)
	// Forget drops the recorded results of every slot that begins with prefix,
	// after a session or client ended. Losing this call costs room, not safety.
	Forget(ctx context.Context, prefix string) error
}

// Reader is the half of a Volume that changes nothing.
type Reader interface {
	// GetAttr returns the attributes of h.
	GetAttr(ctx context.Context, r Request, h Handle) (Attr, error)
	// Lookup finds name in dir; "." and ".." work, ".." of the root is the root.
	// ErrNotExist, ErrNotDir, ErrNameTooLong, ErrInvalid (empty name, "/" or NUL in it).
	Lookup(ctx context.Context, r Request, dir Handle, name string) (Attr, error)
	// ReadLink returns a symbolic link's target. ErrInvalid for other types.
	ReadLink(ctx context.Context, r Request, h Handle) (string, error)
	// ReadDir returns up to max entries whose cookie is greater than after (0:
	// from the start), in cookie order, without "." and "..", and whether they are
	// the last. An entry that exists through the whole of a listing is returned
	// exactly once, whatever else changes meanwhile; a name that Rename replaces
	// goes on existing, with its cookie. ErrNotDir, ErrInvalid (max below 1).
	ReadDir(ctx context.Context, r Request, dir Handle, after uint64, max int) (entries []Entry, eof bool, err error)
	// Read fills p from offset off and returns how many bytes lie there and
	// whether the end of the file was reached. Holes read as zeros. ErrIsDir,
	// ErrInvalid (not a regular file).
	Read(ctx context.Context, r Request, h Handle, off uint64, p []byte) (n int, eof bool, err error)
	// Seek returns the next offset at or after off that is data (or, if hole, a
	// hole; the end of the file counts as one). What it calls a hole was recorded as
	// one; a small hole may be called data. ErrNoData at or after the end, and if
	// no data follows. ErrIsDir, ErrInvalid (not a regular file).
	Seek(ctx context.Context, r Request, h Handle, off uint64, hole bool) (uint64, error)
	// GetXattr returns a user attribute's value. ErrNoXattr.
	GetXattr(ctx context.Context, r Request, h Handle, name string) ([]byte, error)
	// ListXattr returns the names of h's user attributes, sorted.
	ListXattr(ctx context.Context, r Request, h Handle) ([]string, error)
	// Space returns the volume's size and use.
	Space(ctx context.Context) (Space, error)
}

// Changer is the half of a Volume that changes it. Each method is one atomic
// change that honours Request.ID (rule 22).
type Changer interface {
	// Create makes an inode called name in dir. ErrExist, ErrNotDir,
	// ErrNameTooLong, ErrInvalid ("." and ".." too); ErrIsDir if Unchecked or Exclusive
	// meets a directory, ErrExist if they meet anything else but a file. With Unchecked,
	// only setting the size needs permission for the existing file.
	Create(ctx context.Context, r Request, dir Handle, name string, args CreateArgs) (Created, error)
	// Link makes a further name for h, which must not be a directory (ErrIsDir). ErrExist, ErrTooManyLinks;
	// ErrNotExist if h has no name left and is only held.
	Link(ctx context.Context, r Request, h Handle, dir Handle, name string) (Created, error)
	// Remove removes name, which may be an empty directory. ErrNotExist,
	// ErrNotEmpty, ErrInvalid for "." and "..".
	Remove(ctx context.Context, r Request, dir Handle, name string) (DirChange, error)
	// Rename moves a name, atomically replacing a compatible target: ErrNotExist,
	// ErrIsDir, ErrNotDir, ErrNotEmpty, ErrInvalid (a directory into itself). Two names of
	// one inode: nothing changes. If both directories are the same, src and dst are equal.
	Rename(ctx context.Context, r Request, from Handle, name string, to Handle, newName string) (src, dst DirChange, err error)
	// SetAttr changes attributes and returns the new ones. ErrIsDir or ErrInvalid when setting the
	// size of something else than a file; ErrTooBig.
	SetAttr(ctx context.Context, r Request, h Handle, set SetAttr) (Attr, error)
	// Write writes data (at most MaxIO bytes) at off. If stable, it returns when
	// the data is committed; else the data is visible at once and lost only with
	// a change of Verifier. No data at all changes nothing. ErrIsDir, ErrInvalid, ErrTooBig.
	Write(ctx context.Context, r Request, h Handle, off uint64, data []byte, stable bool) (Written, error)
	// Commit makes all data written to h so far stable. It needs no permission.
	// ErrIsDir, ErrInvalid.
	Commit(ctx context.Context, r Request, h Handle) (Verifier, error)
	// Punch makes [off, off+n) a hole, without changing the size. ErrIsDir, ErrInvalid
	// (also if off+n overflows).
	Punch(ctx context.Context, r Request, h Handle, off, n uint64) (Attr, error)
	// SetXattr sets a user attribute. ErrNoXattr, ErrExist, ErrXattrTooBig, ErrNameTooLong
	// and ErrInvalid for the name; ErrPerm for what is neither a file nor a directory. The
	// returned DirChange is h's own change attribute.
	SetXattr(ctx context.Context, r Request, h Handle, name string, value []byte, mode XattrMode) (DirChange, error)
	// RemoveXattr removes a user attribute. ErrNoXattr.
	RemoveXattr(ctx context.Context, r Request, h Handle, name string) (DirChange, error)
}

// Locker arbitrates byte-range locks between all gateways of the volume. The
// locks live at the home, in memory; the gateway that registered a lock
// registers it again with a new home (rule 23). Deadlocks are not detected.
type Locker interface {
	// SetLock grants l, replacing what its owner held of that range, or returns a
	// *LockConflict. reclaim is set when the client asserts that it held l before
	// this gateway restarted; without it, ErrGrace while other gateways have not
	// registered their locks again. ErrIsDir, ErrInvalid (not a regular file, or
	// Start is greater than End). Locks need no permission: opening the file did.
	SetLock(ctx context.Context, r Request, h Handle, l Lock, reclaim bool) error
	// TestLock returns nil or the *LockConflict that SetLock would return.
	TestLock(ctx context.Context, r Request, h Handle, l Lock) error
	// Unlock gives up what l.Owner holds of l's range; none is no error.
	Unlock(ctx context.Context, r Request, h Handle, l Lock) error
}
