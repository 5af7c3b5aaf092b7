// SPDX-License-Identifier: Apache-2.0

// Package memvol is the volume contract in memory: the reference that other
// implementations are compared with, and the volume under protocol tests. It is
// written to be obviously right, not fast: one mutex, maps and sorted slices.
//
// Crash keeps what another implementation would have on a disk. It loses unstable
// data that was not committed, Holds, locks, and inodes without a name.
//
// Rules, beyond those of package volume:
//
//   - memvol-1. Every change takes one number, epoch<<40 | counter, which becomes
//     the change attribute of every inode that it changes. A crash begins a new
//     epoch.
//   - memvol-2. An inode is in the table while it has a name or a Hold.
//   - memvol-3. An inode has undo information exactly while it has unstable data.
package memvol

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/locktable"
)

// Volume is a volume.Volume in memory. Make one with New.
type Volume struct {
	id     volume.ID
	now    func() time.Time
	before func(op string, h volume.Handle) error
	bytes  uint64 // room for data
	inodes uint64 // room for inodes

	mu       sync.Mutex // guards what follows
	readOnly bool
	trash    bool
	epoch    uint64
	counter  uint64 // changes in this epoch
	lastIno  uint64
	used     uint64 // bytes of data
	table    map[uint64]*inode
	slots    map[string]*slot
	running  *result // of the change that runs now; nil if it has no OpID
	changing bool    // a change runs now
	snaps    []*snapshot
	lastSnap uint32
	locks    locktable.Table
	grace    Grace
}

var _ volume.Volume = (*Volume)(nil)

// Option changes what New makes.
type Option func(*Volume)

// WithClock sets the clock. The default is a clock that begins at 2000-01-01
// and advances by one microsecond whenever it is read.
func WithClock(now func() time.Time) Option { return func(v *Volume) { v.now = now } }

// WithEpoch sets the first epoch. The default is 1.
func WithEpoch(epoch uint64) Option { return func(v *Volume) { v.epoch = epoch } }

// WithSize limits the volume to so many bytes of data and so many inodes, the
// root included. The default is 1 TiB and 2^32 inodes.
func WithSize(bytes, inodes uint64) Option {
	return func(v *Volume) { v.bytes, v.inodes = bytes, inodes }
}

// WithRoot sets the root's mode, owner and group. The default is 0777, 0 and 0.
func WithRoot(mode, uid, gid uint32) Option {
	return func(v *Volume) {
		root := v.table[volume.Root.Ino]
		root.attr.Mode, root.attr.UID, root.attr.GID = mode, uid, gid
	}
}

// WithBefore sets a function that runs before every operation, without the
// volume's mutex. Its arguments are the method's name in lower case and the first
// handle. It may block. If it returns an error, that is the outcome, and the
// operation is not executed.
func WithBefore(f func(op string, h volume.Handle) error) Option {
	return func(v *Volume) { v.before = f }
}

// New returns an empty volume.
func New(id volume.ID, opts ...Option) *Volume {
	v := &Volume{
		id: id, now: tick(), bytes: 1 << 40, inodes: 1 << 32,
		before:  func(string, volume.Handle) error { return nil },
		epoch:   1,
		lastIno: volume.Root.Ino,
		table:   make(map[uint64]*inode),
		slots:   make(map[string]*slot),
	}
	root := &inode{dir: newDirectory()}
	root.dir.parent = root
	root.attr = volume.Attr{Handle: volume.Root, Type: volume.Directory, Mode: 0o777, Nlink: 2}
	v.table[volume.Root.Ino] = root
	for _, o := range opts {
		o(v)
	}
	now := v.now()
	root.attr.Atime, root.attr.Mtime, root.attr.Ctime, root.attr.Btime = now, now, now, now
	root.attr.Change = v.nextChange()
	return v
}

// ID implements volume.Volume.
func (v *Volume) ID() volume.ID { return v.id }

// Hold implements volume.Volume.
func (v *Volume) Hold(h volume.Handle) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, err := v.get(h)
	if err != nil {
		return &volume.Error{Op: "hold", Ino: h.Ino, Err: err}
	}
	n.holds++
	return nil
}

// Release implements volume.Volume.
func (v *Volume) Release(h volume.Handle) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n, err := v.get(h); err == nil && n.holds > 0 {
		n.holds--
		v.dropIfGone(n)
	}
}

// Forget implements volume.Volume.
func (v *Volume) Forget(_ context.Context, prefix string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name := range v.slots {
		if strings.HasPrefix(name, prefix) {
			delete(v.slots, name)
		}
	}
	return nil
}

// Crash begins a new epoch and loses unstable data, Holds, locks, and inodes
// without a name. The Verifier changes. Handles, committed data, and the recorded
// results of changes stay.
func (v *Volume) Crash() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.epoch++
	v.counter = 0
	v.locks = locktable.Table{}
	for _, n := range v.table {
		n.holds = 0
		if n.undo != nil {
			v.used -= n.attr.Used
			n.revert()
			v.used += n.attr.Used
			n.attr.Change = v.nextChange()
		}
		v.dropIfGone(n)
	}
	for _, s := range v.slots {
		for i, r := range s.results {
			if r.unstable {
				delete(s.results, i)
			}
		}
	}
}

// SetEpoch begins an epoch without any loss, as a clean takeover does.
func (v *Volume) SetEpoch(epoch uint64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if epoch <= v.epoch {
		return fmt.Errorf("set epoch %d: the volume is in epoch %d and epochs only grow, give a greater one", epoch, v.epoch)
	}
	v.epoch, v.counter = epoch, 0
	return nil
}

// SetTrash has what is removed from now on kept in the trash, or ends that. Nothing empties it.
func (v *Volume) SetTrash(on bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.trash = on
}

// SetReadOnly makes every change fail with ErrReadOnly, or work again.
func (v *Volume) SetReadOnly(on bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.readOnly = on
}

// get returns the inode of h.
func (v *Volume) get(h volume.Handle) (*inode, error) {
	if h.Snap != 0 {
		return v.past(h)
	}
	n := v.table[h.Ino]
	if n == nil || n.attr.Gen != h.Gen {
		return nil, volume.ErrStale
	}
	return n, nil
}

// dropIfGone removes n from the table if memvol-2 says so.
func (v *Volume) dropIfGone(n *inode) {
	if n.attr.Nlink == 0 && n.holds == 0 {
		v.used -= n.attr.Used
		v.locks.ReleaseFile(n.attr.Handle)
		delete(v.table, n.attr.Ino)
	}
}

func (v *Volume) nextChange() uint64 {
	v.counter++
	return v.epoch<<40 | v.counter
}

func (v *Volume) verifier() (verf volume.Verifier) {
	binary.BigEndian.PutUint64(verf[:], v.epoch)
	return verf
}

// tick returns a clock that never shows one time twice.
func tick() func() time.Time {
	var mu sync.Mutex
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Microsecond)
		return now
	}
}
