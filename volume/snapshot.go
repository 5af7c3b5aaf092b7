// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"strings"
	"time"
)

// Snapshot is the state of a volume at one moment, which is kept until it is dropped. Nothing of it
// changes.
type Snapshot struct {
	Name string
	Snap uint32 // in the handles of what is in it
	Time time.Time
	// Bytes and Inodes are what the volume used.
	Bytes, Inodes uint64
}

// Snapshotter is a volume that keeps snapshots. What is in one is read with handles that have its
// number, from Root's on. Each method is one atomic change, and is executed once for each
// Request.ID.
type Snapshotter interface {
	// TakeSnapshot keeps the volume's present state under a name. ErrExist, ErrNameTooLong,
	// ErrInvalid (see CheckSnapshotName), ErrNoSpace.
	TakeSnapshot(ctx context.Context, r Request, name string) (Snapshot, error)
	// Snapshots returns the snapshots that have names, sorted by them.
	Snapshots(ctx context.Context) ([]Snapshot, error)
	// DropSnapshot ends a snapshot. Its handles are stale from then on. ErrNotExist.
	DropSnapshot(ctx context.Context, r Request, name string) error
	// Rollback makes the volume what it was in the snapshot to. Snapshots stay, and one of what was
	// there before is taken first, under the name before. What changes gets another change
	// attribute; handles of what was made later are stale. Other changes, and reads of the present,
	// return ErrDelay meanwhile. If it ends with ctx, the volume goes on with it by itself; a
	// repeat waits for that. ErrNotExist: there is no snapshot to. ErrExist: there is one named
	// before. ErrNameTooLong, ErrInvalid: as for TakeSnapshot. ErrNoSpace.
	Rollback(ctx context.Context, r Request, to, before string) error
}

// CheckSnapshotName returns ErrInvalid for a name that no snapshot can have: what no entry of a
// directory can have, and what begins with "@", which stands for times. It returns ErrNameTooLong
// for more than MaxName bytes.
func CheckSnapshotName(name string) error {
	if strings.HasPrefix(name, "@") {
		return ErrInvalid
	}
	return CheckEntryName(name)
}

// TrashDir is the name of the directory of what was removed from a directory. A volume that keeps a
// trash has one in each directory from which something was removed, and listings do not show it.
//
// What loses its last name by Remove or Rename is there under its name; after "~" and the time, if
// that is taken. A directory is there with what was removed from it before. Rename out of the trash
// restores, Remove in it is for good, and there is no other change of its names: ErrReadOnly. Its
// modes and owners are those of the directories, so whoever could remove something can restore it.
const TrashDir = ".trash"
