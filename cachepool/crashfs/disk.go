// SPDX-License-Identifier: Apache-2.0

// Package crashfs is a pool in memory that can lose power, for tests. It keeps what a machine
// keeps:
//
//   - a file's contents are what reads see, and apart from that the durable contents and the
//     changes since the last Sync that succeeded;
//   - a directory has names that lookups see, the durable names, and the changes since its last
//     Sync.
//
// Crash loses power: of each file's pending changes an arbitrary set reaches the disk, each whole
// or torn at any byte (sometimes all, sometimes none, sometimes a prefix, sometimes a random set);
// of each directory's pending changes a prefix does, as journals keep their order. A file whose
// name was durable may so have nothing in it, and a durable file may be nobody's. A failed Sync
// makes nothing durable, and what it should have written never is by a later Sync either
// (fsyncgate, 2018): only a crash may still bring it to the disk. Kill ends the process alone:
// nothing is lost.
//
// Every change counts as one step (Steps); CrashAt cuts the power at one of them, so that a test
// can try them all. Watch looks at the disk at each of them, so that one run is enough.
//
// A Disk also serves databases, through FS: their files lie in directories below a volume's, on the
// same disk, under the same rules and the same count of steps. So a crash takes what was not synced
// of logs and databases together.
package crashfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/weir-storage/weir/cachepool"
)

// ErrCrashed is what everything returns after the power went, until the next Open.
var ErrCrashed = errors.New("crashed")

// Op is a kind of operation, for Fail.
type Op string

// Operations. All but OpRead are steps.
const (
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpTruncate Op = "truncate"
	OpSync     Op = "sync"
	OpCreate   Op = "create"
	OpRemove   Op = "remove"
	OpRename   Op = "rename"
	OpDirSync  Op = "dirsync"
)

// Config is what a Disk is made of.
type Config struct {
	Gateway string
	// Limit of the pool's room in bytes.
	Limit int64
	// Ahead is what Dir.Ahead returns.
	Ahead int64
	// Rand decides what a crash loses, and incarnations.
	Rand *rand.Rand
}

// Disk survives crashes; at most one Pool is open on it.
type Disk struct {
	mu   sync.Mutex
	cfg  Config
	vols map[string]*directory

	id      cachepool.ID
	boot    uint64
	session *pool // nil: not open

	steps   int
	crashAt int
	crashed bool
	faults  map[Op][]fault
	watcher func(Step)
}

type fault struct {
	nth int // counted down
	err error
}

// NewDisk returns an empty disk.
func NewDisk(cfg Config) *Disk {
	return &Disk{cfg: cfg, vols: map[string]*directory{}, faults: map[Op][]fault{}}
}

// Gateway returns Config.Gateway.
func (d *Disk) Gateway() string { return d.cfg.Gateway }

// Open starts a process on the disk: cachepool.ErrLocked while another one runs.
func (d *Disk) Open() (cachepool.Pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session != nil {
		return nil, fmt.Errorf("open pool of %s: %w: stop that gateway", d.cfg.Gateway, cachepool.ErrLocked)
	}
	if d.id.IsZero() {
		d.id = d.newID()
	}
	d.boot++
	d.crashed, d.crashAt = false, 0
	var used int64
	for _, v := range d.vols {
		used += v.size()
	}
	d.session = &pool{disk: d, room: cachepool.NewRoom(d.cfg.Gateway, d.cfg.Limit, used), locked: map[string]bool{}}
	return d.session, nil
}

func (d *Disk) newID() cachepool.ID {
	var id cachepool.ID
	for i := range id {
		id[i] = byte(d.cfg.Rand.Uint32())
	}
	id[0] |= 1 // never zero
	d.boot = 0
	return id
}

// Crash loses power: the open pool and its files return ErrCrashed, and what was not synced may be
// lost.
func (d *Disk) Crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crash()
}

func (d *Disk) crash() {
	for _, name := range sortedKeys(d.vols) { // in order, so that equal seeds lose equal things
		d.vols[name].crash(d.cfg.Rand)
	}
	d.crashed, d.crashAt, d.session = true, 0, nil
}

// Kill ends the process: the open pool and its files return ErrCrashed; the disk has all that was
// written.
func (d *Disk) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashed, d.crashAt, d.session = true, 0, nil
}

// Wipe makes the disk empty, its identity too, as if it had been replaced. The pool must not be
// open.
func (d *Disk) Wipe() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vols, d.id, d.boot = map[string]*directory{}, cachepool.ID{}, 0
}

// Damage changes a file's contents on the disk behind everybody's back. It panics if there is no
// such file.
func (d *Disk) Damage(volume, name string, f func(data []byte) []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.vols[volume].names[name]
	n.data = f(append([]byte(nil), n.data...))
	n.durable, n.pending, n.failed = append([]byte(nil), n.data...), nil, nil
}

// Steps returns how many changes were tried since NewDisk.
func (d *Disk) Steps() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.steps
}

// CrashAt cuts the power at the step from now (1: the next): it may or may not have happened, and
// returns ErrCrashed. The next Open forgets it.
func (d *Disk) CrashAt(step int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashAt = d.steps + step
}

// Step is a change of the disk that is about to happen.
type Step struct {
	Number int // Steps at that moment, this one included
	Op     Op
	Name   string // volume and path of what is changed
	disk   *Disk
}

// Watch has f called before each step from now on, until Watch(nil). F must not call the disk, but
// may call Clone of its Step.
func (d *Disk) Watch(f func(Step)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watcher = f
}

// Clone returns a disk with all that the disk has at this moment, in memory and durably, for
// another gateway, whose name is in all paths. No process runs on it, and it has no faults: Crash
// or Kill makes of it what a power failure or the end of the process would have left. It is called
// inside Watch's function only.
func (s Step) Clone(gateway string, r *rand.Rand) *Disk {
	out := NewDisk(Config{Gateway: gateway, Limit: s.disk.cfg.Limit, Rand: r})
	out.id, out.boot, out.steps = s.disk.id, s.disk.boot, s.disk.steps
	c := copier{}
	for uuid, v := range s.disk.vols {
		out.vols[uuid] = c.directory(v)
	}
	return out
}

// Crashed reports whether the power went and nobody opened the disk since.
func (d *Disk) Crashed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.crashed
}

// Fail makes the nth operation of a kind from now (1: the next) return err. A failing write has
// written an arbitrary part; a failing Sync made nothing durable; others did nothing.
func (d *Disk) Fail(op Op, nth int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[op] = append(d.faults[op], fault{nth, err})
}

// ErrIO is the error of FailSync and FailWrite.
var ErrIO = errors.New("input/output error")

// FailSync makes the nth File.Sync from now fail.
func (d *Disk) FailSync(nth int) { d.Fail(OpSync, nth, ErrIO) }

// FailWrite makes the nth write from now fail.
func (d *Disk) FailWrite(nth int) { d.Fail(OpWrite, nth, ErrIO) }

// step begins an operation of a session, with the lock held. Do is the operation; it is called,
// too, for the half of the steps at which the power goes that still happen. A scripted fault goes
// to failed instead, if that is not nil.
func (d *Disk) step(s *pool, op Op, name string, do func() error, failed func()) error {
	if d.session != s {
		if s.closed {
			return cachepool.ErrClosed
		}
		return ErrCrashed
	}
	if op != OpRead {
		d.steps++
		if d.watcher != nil {
			d.watcher(Step{Number: d.steps, Op: op, Name: name, disk: d})
		}
		if d.steps == d.crashAt {
			if d.cfg.Rand.IntN(2) == 0 {
				_ = do() // nobody is left to hear of it
			}
			d.crash()
			return ErrCrashed
		}
	}
	var err error
	list := d.faults[op]
	for i := range list {
		list[i].nth--
		if list[i].nth == 0 {
			err = list[i].err
		}
	}
	if err != nil {
		if failed != nil {
			failed()
		}
		return err
	}
	return do()
}
