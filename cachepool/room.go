// SPDX-License-Identifier: Apache-2.0

package cachepool

import (
	"fmt"
	"sync"
)

// Room counts a pool's bytes. A part of it is for deletes, compaction and condemn records only, so
// that a full volume can always be emptied (protocol-15). Its methods may be called from many
// goroutines and never wait.
type Room struct {
	mu      sync.Mutex
	pool    string
	limit   int64
	reserve int64
	used    int64
	counted int64 // of used, what Count took
}

// RoomStatus is a Room at one moment, in bytes.
type RoomStatus struct {
	Limit, Used int64
	// ReservedForDelete is the part of Limit that only ReserveUrgent gives out.
	ReservedForDelete int64
}

// The slice for deletes is a thirty-second of the limit, but at most maxReserve: what emptying a
// volume writes does not grow with the pool.
const (
	reserveShare = 32
	maxReserve   = 1 << 30
)

// NewRoom returns a room of limit bytes of which used are taken. Pool is named in errors.
func NewRoom(pool string, limit, used int64) *Room {
	return &Room{pool: pool, limit: limit, reserve: min(limit/reserveShare, maxReserve), used: used}
}

// Reserve takes n bytes or returns ErrFull.
func (r *Room) Reserve(n int64) error { return r.take(n, false) }

// ReserveUrgent takes n bytes for what gives room back; it may use the slice for deletes.
func (r *Room) ReserveUrgent(n int64) error { return r.take(n, true) }

func (r *Room) take(n int64, urgent bool) error {
	if n < 0 {
		panic(fmt.Sprintf("cachepool: reserve of %d bytes", n))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := r.limit
	if !urgent {
		limit -= r.reserve
	} else {
		limit += max(0, r.counted) // nobody asked the room for it, so it takes nothing from deletes
	}
	if n > limit-r.used { // no sum, which could overflow
		return &FullError{Pool: r.pool, Wanted: n, Urgent: urgent,
			Room: RoomStatus{Limit: r.limit, Used: r.used, ReservedForDelete: r.reserve}}
	}
	r.used += n
	return nil
}

// Release gives n bytes back. More than was taken is a mistake in the accounting: it panics.
func (r *Room) Release(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n < 0 || n > r.used {
		panic(fmt.Sprintf("cachepool: release of %d bytes of %d", n, r.used))
	}
	r.used -= n
}

// Count takes n bytes that are used already, or gives back -n that are not any more, for what has
// no way to ask first. So more than the limit may be used, and Reserve fails meanwhile;
// ReserveUrgent does not, or a pool full of metadata could not be emptied.
func (r *Room) Count(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = max(0, r.used+n)
	r.counted += n
}

// Status returns how full the room is.
func (r *Room) Status() RoomStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return RoomStatus{Limit: r.limit, Used: r.used, ReservedForDelete: r.reserve}
}

// FullError wraps ErrFull.
type FullError struct {
	Pool   string
	Wanted int64
	Urgent bool
	Room   RoomStatus
}

func (e *FullError) Error() string {
	kept := fmt.Sprintf(", %d kept for deletes", e.Room.ReservedForDelete)
	if e.Urgent {
		kept = ""
	}
	return fmt.Sprintf("reserve pool %s: %v: %d bytes of %d are used%s, %d more are wanted: delete files or snapshots, wait for "+
		"uploads, or raise pool.size",
		e.Pool, ErrFull, e.Room.Used, e.Room.Limit, kept, e.Wanted)
}

func (e *FullError) Unwrap() error { return ErrFull }
