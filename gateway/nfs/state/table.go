// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/fair"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// Config is what a Table needs.
type Config struct {
	Boot  uint64        // number of this start of the gateway; never repeats
	Lease time.Duration // how long a silent client keeps its state
	Store Store
	Now   func() time.Time
	Rand  io.Reader
	Log   *slog.Logger
	// States and Sessions bound the memory that opens and locks, and sessions, of all clients take,
	// in bytes; 0: 72 MiB and 24 MiB.
	States, Sessions int
	// Ended gets opens that ended without an operation that asked for it: a lease
	// expired or a client is gone. It must neither wait nor call the Table.
	Ended func([]Ended)
	// Forget is called when a session or client has ended. It must neither wait nor
	// call the Table.
	Forget func(Forgotten)
}

// Store keeps client records over restarts. Keys consist of lower-case letters,
// digits and "-". Methods may be called concurrently for different keys. Values
// belong to the caller.
type Store interface {
	// Save sets key's value, which is durable when Save returns nil. After an error,
	// key has either the old or the new value.
	Save(key string, value []byte) error
	// Delete removes key, durably when it returns nil. It is no error if key is
	// absent.
	Delete(key string) error
	// Load calls fn for each key until fn returns an error, which it returns.
	Load(fn func(key string, value []byte) error) error
}

// Ended is an open that ended, and what is to be done about it on its volume. Unlock
// the whole file for each of Owners, and call Table.Released after each. Then, if
// Release is set, call Volume.Release.
type Ended struct {
	Volume  volume.Volume
	Handle  volume.Handle
	Owners  []volume.LockOwner
	Release bool
}

// Forgotten is a session or client that ended. Prefix begins the slot names of
// the OpIDs that it used.
type Forgotten struct {
	Prefix  string
	Volumes []volume.Volume // where it changed something since the start
	Loaded  bool            // it is older than this start, so it may have changed other volumes
	Address string
}

// Table is the state of one server. Its methods may be called concurrently.
type Table struct {
	cfg   Config
	admin sync.Mutex

	mu       sync.Mutex
	clients  map[uint64]*Client // confirmed or not
	owners   map[ownerKey]*ownerRecord
	sessions map[xdr.SessionID]*Session
	files    map[FileKey]*file
	stateids map[[12]byte]any // *open or *lockState
	// releasing counts, per owner and file, the ended locks that the volume has not
	// released yet.
	releasing map[lockKey]int
	// addresses has the clients by Client.Address.
	addresses map[string]map[*Client]struct{}
	// What all have, by address (state-7).
	known, slots, states *fair.Room[string]
	refused              [Bounds]uint64

	nextID uint64
	serial uint64
	grace  struct {
		active  bool
		until   time.Time
		waiting int // clients that must send RECLAIM_COMPLETE
	}
}

// ownerKey names a client (state-8).
type ownerKey struct{ address, owner string }

type ownerRecord struct{ confirmed, unconfirmed *Client }

// New returns the table that goes on where the records in cfg.Store left off.
func New(cfg Config) (*Table, error) {
	if cfg.Lease < time.Second {
		return nil, fmt.Errorf("new state table: lease %v is shorter than 1s, which is NFS's unit: give a longer one", cfg.Lease)
	}
	if cfg.Store == nil || cfg.Now == nil || cfg.Rand == nil || cfg.Log == nil || cfg.Ended == nil || cfg.Forget == nil {
		return nil, errors.New("new state table: a field of Config is nil: set all of them")
	}
	t := &Table{
		cfg:      cfg,
		clients:  map[uint64]*Client{},
		owners:   map[ownerKey]*ownerRecord{},
		sessions: map[xdr.SessionID]*Session{},
		files:    map[FileKey]*file{},
		stateids: map[[12]byte]any{},

		releasing: map[lockKey]int{},
		addresses: map[string]map[*Client]struct{}{},
		known:     fair.New[string](maxAllClients),
		slots:     fair.New[string](cmp.Or(cfg.Sessions, 24<<20)),
		states:    fair.New[string](cmp.Or(cfg.States, 72<<20)),
	}
	if err := t.load(); err != nil {
		return nil, err
	}
	return t, nil
}

// random fills b. Its failure is fatal to the request, since without randomness ids
// could repeat.
func (t *Table) random(b []byte) error {
	if _, err := io.ReadFull(t.cfg.Rand, b); err != nil {
		return fmt.Errorf("draw random id: %w", err)
	}
	return nil
}

// newClientID returns boot counter (16 bits) ‖ random (48 bits), unused here; mu is held.
func (t *Table) newClientID() (uint64, error) {
	for {
		var b [8]byte
		if err := t.random(b[2:]); err != nil {
			return 0, err
		}
		id := binary.BigEndian.Uint64(b[:]) | t.cfg.Boot<<48
		if t.clients[id] == nil && id != 0 {
			return id, nil
		}
	}
}

// newSessionID returns client id ‖ random; mu is held.
func (t *Table) newSessionID(c *Client) (id xdr.SessionID, err error) {
	binary.BigEndian.PutUint64(id[:], c.ID)
	err = t.random(id[8:])
	return id, err
}

// Kinds of stateids, their last byte.
const (
	kindOpen = 1
	kindLock = 2
)

// newOther returns boot counter (32 bits) ‖ counter (56 bits) ‖ kind; mu is held.
func (t *Table) newOther(kind byte) (o [12]byte) {
	t.nextID++
	binary.BigEndian.PutUint32(o[:], uint32(t.cfg.Boot))
	binary.BigEndian.PutUint64(o[4:], t.nextID<<8|uint64(kind))
	return o
}

// ourBoot tells whether a stateid was made since the start.
func (t *Table) ourBoot(o [12]byte) bool {
	return binary.BigEndian.Uint32(o[:]) == uint32(t.cfg.Boot)
}

// slotPrefix is the beginning of OpID.Slot of all changes by a client, or, if session
// is not zero, by that session.
func slotPrefix(client uint64, session xdr.SessionID) string {
	b := binary.BigEndian.AppendUint64(nil, client)
	if session != (xdr.SessionID{}) {
		b = append(b, session[:]...)
	}
	return string(b)
}
