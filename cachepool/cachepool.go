// SPDX-License-Identifier: Apache-2.0

// Package cachepool is the port to pools: the disk space that one gateway process owns alone, for
// the ends of its volumes' logs, their metadata and the cache.
//
// # Rules
//
//   - pool-1: a pool is open in one process at a time (ErrLocked) and belongs to one gateway for
//     ever (ErrForeign).
//   - protocol-3: a pool has an incarnation, a random identity. Each log on it has an identity of
//     its own besides (engine/log), so one that lost something begins anew alone. A pool whose
//     identity file is missing or damaged gets a new one by itself. Boot counts the pool's openings
//     within an incarnation, durably before Open returns.
//   - protocol-3: a failed fsync is never retried. Once File.Sync failed, that File's Sync fails
//     for ever.
//   - pool-2: what was written is durable after File.Sync; that a file has its name (Create,
//     Rename, Remove) only after the directory's Sync. In between, a crash may leave any of it,
//     torn at any byte.
//   - protocol-15: room is reserved before it is used. Only deletes and what they need may use the
//     last part of it.
//
// Implementations: cachepool/dir (a directory), cachepool/zfs (a dataset of a ZFS pool) and
// cachepool/crashfs (memory that can lose power, for tests). All pass cachepool/pooltest. All
// methods may be called from many goroutines, on one File too.
package cachepool

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
)

// ID is a random 128-bit identity.
type ID [16]byte

// String is 32 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id is no identity.
func (id ID) IsZero() bool { return id == ID{} }

// NewID draws an identity from random, which must be a cryptographic source outside tests.
func NewID(random io.Reader) (ID, error) {
	var id ID
	if _, err := io.ReadFull(random, id[:]); err != nil {
		return ID{}, fmt.Errorf("draw identity: %w", err)
	}
	return id, nil
}

// ParseID reads what String wrote.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("identity %q: not %d hexadecimal digits", s, 2*len(id))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ID{}, fmt.Errorf("identity %q: %w", s, err)
	}
	return id, nil
}

// Outcomes; compare with errors.Is. Missing and existing files are fs.ErrNotExist and fs.ErrExist.
var (
	// ErrLocked: another process has the pool open.
	ErrLocked = errors.New("in use by another process")
	// ErrForeign: the pool belongs to another gateway.
	ErrForeign = errors.New("belongs to another gateway")
	// ErrFull: the room would be passed, or the file system below has no room for another file.
	ErrFull = errors.New("full")
	// ErrInvalid: a name that no file or volume can have.
	ErrInvalid = errors.New("invalid")
	// ErrClosed: the pool or file was closed.
	ErrClosed = fs.ErrClosed
)

// Pool is an open pool.
type Pool interface {
	Identity
	Volumes
	// Room is the pool's; its Used begins with the files that are there.
	Room() *Room
	// Close ends the use of the pool. Files still open fail from then on. It makes nothing durable.
	Close() error
}

// Identity says which pool it is.
type Identity interface {
	// Gateway is the owner's name.
	Gateway() string
	// Incarnation is that of the logs on this pool.
	Incarnation() ID
	// Boot counts the openings of this incarnation, from 1.
	Boot() uint64
	// NewIncarnation draws another one, from boot 1; it is durable on return. Logs from before are
	// then no member's.
	NewIncarnation() (ID, error)
}

// Volumes are the pool's directories, one for each volume.
type Volumes interface {
	// Volume returns the directory of a volume, which it makes, durably, if it is missing.
	Volume(uuid string) (Dir, error)
	// ListVolumes returns the uuids, sorted.
	ListVolumes() ([]string, error)
	// RemoveVolume removes a directory with all in it, durably; a missing one is no error. Close
	// its files first. Whoever reserved the room releases it.
	RemoveVolume(uuid string) error
	// RenameVolume gives a directory another name, durably. Close its files first. fs.ErrNotExist:
	// there is none; fs.ErrExist: the other name is taken.
	RenameVolume(from, to string) error
	// Rewound returns why a directory may have less than what was made durable there (protocol-3),
	// such as that somebody took it back to a snapshot; nil: nothing tells so. It is known, also to
	// later openings, until Settled, or until the directory is renamed or removed.
	Rewound(uuid string) error
	// Settled ends that, durably: whoever uses the directory knows why, as Rewound returned it, and
	// goes on with what is left. What was found since is not settled.
	Settled(uuid string, why error) error
	// Tune says how the storage below is to treat a volume's directory, which is there. It never
	// waits, and is soon so. Only pools of ZFS do anything.
	Tune(uuid string, t Tuning)
}

// Dir is one volume's directory.
type Dir interface {
	Files
	// Sync makes creations, renames and removals durable (fsync of the directory).
	Sync() error
	// Path is where the metadata store may keep folders of its own, which List does not show. In
	// crashfs there is nothing behind it.
	Path() string
	// Ahead is how many zeros are best written at a time behind what a file will get, if little is
	// written between two Syncs: a Sync that leaves the file's size as it is then takes less time.
	// 0: it does not.
	Ahead() int64
}

// Files are named by 1–128 letters, digits, '.', '_' and '-', not beginning with '.'.
type Files interface {
	// Create makes an empty file. fs.ErrExist; ErrFull, and then nothing was made.
	Create(name string) (File, error)
	// Open opens for reading and writing. fs.ErrNotExist.
	Open(name string) (File, error)
	// Remove removes the name; open Files go on. fs.ErrNotExist.
	Remove(name string) error
	// Rename moves a file, in one step, over another if there is one. fs.ErrNotExist.
	Rename(from, to string) error
	// List returns the files, by name.
	List() ([]FileInfo, error)
}

// FileInfo is a file in a Dir.
type FileInfo struct {
	Name string
	Size int64 // bytes
}

// File is an open file. ReadAt and WriteAt are as package io says; writing beyond the end leaves
// zeros between.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes contents and size durable. After an error nothing is known of what was written
	// since the last success, and every later Sync fails (protocol-3).
	Sync() error
	// Forget makes later reads come from the disk, as far as what was written is synced. A failed
	// Sync may leave in memory what no disk has, and later Syncs do not bring it there.
	Forget() error
	// Truncate cuts or extends with zeros.
	Truncate(size int64) error
	// Size in bytes.
	Size() (int64, error)
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

// CheckName checks a file's name or a volume's uuid; the error wraps ErrInvalid. Implementations
// call it first.
func CheckName(kind, name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%s %q: %w name: use 1 to 128 letters, digits, '.', '_' and '-', not beginning with '.'", kind, name, ErrInvalid)
}
