// SPDX-License-Identifier: Apache-2.0

// Package share divides the slots of a session among the volumes of its client.
package share

import (
	"sync"
	"time"

	"github.com/weir-storage/weir/volume"
)

// A client has one session for all its volumes, so that one volume which waits could hold all slots
// and stop the others. While requests of a session are for several volumes, no volume may hold more
// slots than shareOfFree times those that are free (dynamic thresholds: Choudhury and Hahne,
// IEEE/ACM Transactions on Networking 6(2), 1998). So one volume may hold seven of eight, two may
// hold fifteen of 32 each, and there is always a free one.
//
// A volume that is used alone may execute requests in all slots but the spare ones. Requests that
// come then wait for the end of another one, in the spare slots, and little is lost by that. But a
// volume of which no request ended for as long as patience gets no spare slots: they stay free for
// the next volume, and for the client's renewals.
const (
	shareOfFree = 7
	// spareOf is how many slots have one spare one among them.
	spareOf = 16
	// sharedFor is how long a volume counts as used after its last request.
	sharedFor = time.Minute
	// patience is how long a request may wait before it can be asked to give up its slot.
	patience = time.Second
	// refusal is how long a request waits before it is refused.
	refusal = 100 * time.Millisecond
)

// Slots are what the volumes hold of a session's slots. Its methods may be called from many
// goroutines.
type Slots struct {
	all     int
	mu      sync.Mutex
	used    int
	volumes map[volume.ID]*share
}

// New returns the slots of a session, of which nobody holds any.
func New(slots int) *Slots { return &Slots{all: slots, volumes: map[volume.ID]*share{}} }

type share struct {
	stays map[*Stay]struct{}
	last  time.Time     // when it was used
	moved time.Time     // when a request ended, or when there was none
	left  chan struct{} // closed when a request ends; nil: nobody waits for that
}

// Asks are how a request is asked to end. They are called with a lock held, must not block, and may
// be called more than once.
type Asks struct {
	// GiveUp asks it to end if it has changed nothing, because its slot is wanted for others, or
	// because the client is silent.
	GiveUp func()
	// Revoke ends it, because the client has been silent for so long that it loses its state.
	Revoke func()
}

// Stay is a request that holds a slot for a volume.
type Stay struct {
	slots  *Slots
	volume volume.ID
	since  time.Time
	asks   Asks
}

// Full says that a volume holds its share of a session's slots already.
type Full struct {
	// Left is closed when one of the volume's requests has ended, and the caller may ask again;
	// nil: it need not wait for that.
	Left <-chan struct{}
	// Until is when it need not wait any longer. A refused client asks again at once, with all data
	// of its writes, so a refusal takes its time too.
	Until time.Time
}

// Enter counts a request for a volume until Leave. If the volume holds its share of the slots
// already, it returns nil, and what to wait for.
func (x *Slots) Enter(v volume.ID, now time.Time, asks Asks) (*Stay, Full) {
	x.mu.Lock()
	defer x.mu.Unlock()
	own := x.volumes[v]
	if own == nil {
		own = &share{stays: map[*Stay]struct{}{}}
		x.volumes[v] = own
	}
	own.last = now
	if len(own.stays) == 0 {
		own.moved = now
	}
	if len(x.volumes) > 1 {
		x.forget(now)
	}
	slots := x.all
	free := slots - x.used
	switch {
	case len(x.volumes) > 1:
		if free <= slots/4 {
			x.makeRoom(slots, now)
		}
		if len(own.stays) >= shareOfFree*free {
			return nil, Full{Until: now.Add(refusal)}
		}
	case free <= spare(slots):
		until := own.moved.Add(patience)
		if !now.Before(until) {
			return nil, Full{Until: now.Add(refusal)}
		}
		if own.left == nil {
			own.left = make(chan struct{})
		}
		return nil, Full{own.left, until}
	}
	st := &Stay{slots: x, volume: v, since: now, asks: asks}
	own.stays[st] = struct{}{}
	x.used++
	return st, Full{}
}

// spare is how many of slots no volume gets. Who has one slot uses it.
func spare(slots int) int {
	if slots < 2 {
		return 0
	}
	return max(1, slots/spareOf)
}

// forget drops the volumes that were not used for long. mu is held.
func (x *Slots) forget(now time.Time) {
	for id, s := range x.volumes {
		if len(s.stays) == 0 && now.Sub(s.last) > sharedFor {
			delete(x.volumes, id)
		}
	}
}

// makeRoom asks the requests that wait for long, of volumes with more than an equal part of the
// slots, to give up. mu is held.
func (x *Slots) makeRoom(slots int, now time.Time) {
	for _, s := range x.volumes {
		if len(s.stays) <= slots/len(x.volumes) {
			continue
		}
		for st := range s.stays {
			if now.Sub(st.since) > patience {
				st.asks.GiveUp()
			}
		}
	}
}

// Leave ends the stay.
func (st *Stay) Leave(now time.Time) {
	x := st.slots
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.volumes[st.volume]; s != nil {
		delete(s.stays, st)
		x.used--
		s.moved = now
		if s.left != nil {
			close(s.left)
			s.left = nil
		}
	}
}

// GiveUp asks all requests to give up that wait for long.
func (x *Slots) GiveUp(now time.Time) {
	x.waiting(now, func(a Asks) { a.GiveUp() })
}

// Revoke ends all requests that wait for long.
func (x *Slots) Revoke(now time.Time) {
	x.waiting(now, func(a Asks) { a.Revoke() })
}

func (x *Slots) waiting(now time.Time, f func(Asks)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, v := range x.volumes {
		for st := range v.stays {
			if now.Sub(st.since) > patience {
				f(st.asks)
			}
		}
	}
}
