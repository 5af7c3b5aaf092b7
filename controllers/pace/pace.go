// SPDX-License-Identifier: Apache-2.0

// Package pace keeps the operator from doing too much at once: how many volumes take up an edited
// policy at a time, and how often the lag of a volume is written.
package pace

import (
	"sync"
	"time"
)

// Rollout lets a few volumes at a time take up an edited policy, so that a mistake in the policy is
// seen before all volumes have it. It counts in memory: a new leader counts the volumes that are
// taking it up when it looks at each first. Until then, as many more may begin. Methods may be
// called from many goroutines.
type Rollout struct {
	limit int

	mu    sync.Mutex
	at    map[string]string          // policy by volume, of those that are taking it up
	queue map[string]map[string]bool // volumes by policy, of those that wait
	woken map[string]string          // policy by volume, of those whose turn has come, and who did not begin yet
	again func(uuid string)          // see OnTurn
}

// NewRollout makes a rollout of limit volumes at a time.
func NewRollout(limit int) *Rollout {
	return &Rollout{limit: limit, at: map[string]string{}, queue: map[string]map[string]bool{}, woken: map[string]string{},
		again: func(string) {}}
}

// OnTurn has f called with each volume whose turn has come. f must not wait.
func (r *Rollout) OnTurn(f func(uuid string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.again = f
}

// Begin reports whether a volume may take up the policy now. If not, OnTurn's function hears of it.
func (r *Rollout) Begin(policy, uuid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at[uuid] == policy {
		return true
	}
	for _, of := range []map[string]string{r.at, r.woken} {
		if other, ok := of[uuid]; ok && other != policy {
			defer r.wake(other)
		}
		delete(of, uuid)
	}
	for other, waiting := range r.queue {
		if other != policy {
			delete(waiting, uuid)
		}
	}
	n := 0
	for _, p := range r.at {
		if p == policy {
			n++
		}
	}
	if n >= r.limit {
		if r.queue[policy] == nil {
			r.queue[policy] = map[string]bool{}
		}
		r.queue[policy][uuid] = true
		return false
	}
	r.at[uuid] = policy
	delete(r.queue[policy], uuid)
	return true
}

// End says that the volume has taken up its policy, or will not soon.
func (r *Rollout) End(uuid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for policy, waiting := range r.queue {
		if delete(waiting, uuid); len(waiting) == 0 {
			delete(r.queue, policy)
		}
	}
	// One that does not begin when its turn has come passes it on.
	for _, of := range []map[string]string{r.at, r.woken} {
		if policy, ok := of[uuid]; ok {
			delete(of, uuid)
			r.wake(policy)
		}
	}
}

// wake tells the next that waits for a policy that its turn has come. The caller holds mu.
func (r *Rollout) wake(policy string) {
	for next := range r.queue[policy] {
		delete(r.queue[policy], next)
		r.woken[next] = policy
		r.again(next)
		break
	}
	if len(r.queue[policy]) == 0 {
		delete(r.queue, policy)
	}
}

// LagEvery is how often the lag of one volume is written at most. While a copy catches up, it is
// written every ProgressEvery, or seldomer if there are many such volumes.
const (
	LagEvery      = 30 * time.Second
	ProgressEvery = 3 * time.Second
	progressShare = 50 * time.Millisecond // of each volume that was written lately
)

// Lags remembers when the lag of each volume was written. It forgets volumes whose lag is steady.
// Methods may be called from many goroutines.
type Lags struct {
	mu      sync.Mutex
	written map[string]time.Time
	swept   time.Time
}

// NewLags makes an empty Lags.
func NewLags() *Lags { return &Lags{written: map[string]time.Time{}} }

// Wait returns how long to wait before the lag is written again. 0: write it now, which Wait notes.
// catching is true if a copy of the volume catches up.
func (l *Lags) Wait(uuid string, catching bool, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	every := LagEvery
	if catching {
		every = min(LagEvery, max(ProgressEvery, time.Duration(len(l.written))*progressShare))
	}
	if d := every - now.Sub(l.written[uuid]); d > 0 && d <= every {
		return d
	}
	if now.Sub(l.swept) > LagEvery {
		l.swept = now
		for id, t := range l.written {
			if now.Sub(t) > LagEvery {
				delete(l.written, id)
			}
		}
	}
	l.written[uuid] = now
	return 0
}
