// SPDX-License-Identifier: Apache-2.0

package state

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
const (
	shareOfFree = 7
	// sharedFor is how long a volume counts as used after its last request.
	sharedFor = time.Minute
	// patience is how long a request may wait before it can be asked to give up its slot.
	patience = time.Second
)

// shares are what the volumes hold of a session's slots.
type shares struct {
	mu      sync.Mutex
	used    int
	volumes map[volume.ID]*share
}

type share struct {
	stays map[*Stay]struct{}
	last  time.Time
}

// Stay is a request that holds a slot for a volume.
type Stay struct {
	session *Session
	volume  volume.ID
	since   time.Time
	giveUp  func()
}

// Enter counts a request for a volume until Leave. False: the volume holds its share of the slots
// already. Most is how many requests the session's connection can have under way. GiveUp is called,
// with a lock held, when the slot is wanted for others, or the client is silent; it must not block,
// and may be called more than once.
func (s *Session) Enter(v volume.ID, now time.Time, most int, giveUp func()) (*Stay, bool) {
	x := &s.shares
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.volumes == nil {
		x.volumes = map[volume.ID]*share{}
	}
	own := x.volumes[v]
	if own == nil {
		own = &share{stays: map[*Stay]struct{}{}}
		x.volumes[v] = own
	}
	own.last = now
	if len(x.volumes) > 1 {
		x.forget(now)
	}
	slots := min(len(s.slots), most)
	if free := slots - x.used; len(x.volumes) > 1 {
		if free <= slots/4 {
			x.makeRoom(slots, now)
		}
		if len(own.stays) >= shareOfFree*free {
			return nil, false
		}
	}
	st := &Stay{session: s, volume: v, since: now, giveUp: giveUp}
	own.stays[st] = struct{}{}
	x.used++
	return st, true
}

// forget drops the volumes that were not used for long. mu is held.
func (x *shares) forget(now time.Time) {
	for id, s := range x.volumes {
		if len(s.stays) == 0 && now.Sub(s.last) > sharedFor {
			delete(x.volumes, id)
		}
	}
}

// makeRoom asks the requests that wait for long, of volumes with more than an equal part of the
// slots, to give up. mu is held.
func (x *shares) makeRoom(slots int, now time.Time) {
	for _, s := range x.volumes {
		if len(s.stays) <= slots/len(x.volumes) {
			continue
		}
		for st := range s.stays {
			if now.Sub(st.since) > patience {
				st.giveUp()
			}
		}
	}
}

// Leave ends the stay.
func (st *Stay) Leave() {
	x := &st.session.shares
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.volumes[st.volume]; s != nil {
		delete(s.stays, st)
		x.used--
	}
}

// giveUp asks all requests to give up that wait for long.
func (s *Session) giveUp(now time.Time) {
	s.shares.mu.Lock()
	defer s.shares.mu.Unlock()
	for _, v := range s.shares.volumes {
		for st := range v.stays {
			if now.Sub(st.since) > patience {
				st.giveUp()
			}
		}
	}
}
