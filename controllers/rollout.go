// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"
	"time"
)

// rollout lets a few volumes at a time take up an edited policy, so that a mistake in it is seen before all have it. It counts in memory: after
// a restart, those that are at it are counted when they are looked at first, and meanwhile as many more may begin.
type rollout struct {
	limit int

	mu      sync.Mutex
	at      map[string]string          // policy by volume, of those that are taking it up
	queue   map[string]map[string]bool // volumes by policy, of those that wait
	perhaps func(uuid string)          // has a volume looked at again
}

func newRollout(limit int) *rollout {
	return &rollout{limit: limit, at: map[string]string{}, queue: map[string]map[string]bool{}, perhaps: func(string) {}}
}

// begin tells whether a volume may take up the policy now. If not, it is looked at again when it may.
func (r *rollout) begin(policy, uuid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at[uuid] == policy {
		return true
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

// end: the volume has taken it up, or will not.
func (r *rollout) end(uuid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	policy, ok := r.at[uuid]
	if !ok {
		return
	}
	delete(r.at, uuid)
	for next := range r.queue[policy] {
		delete(r.queue[policy], next)
		r.perhaps(next)
		break
	}
	if len(r.queue[policy]) == 0 {
		delete(r.queue, policy)
	}
}

// lagEvery is how often a volume's lag is written at most.
const lagEvery = 30 * time.Second

// lags remembers when the lag of a volume was written. Volumes whose lag does not change are not in it for long.
type lags struct {
	mu      sync.Mutex
	written map[string]time.Time
	swept   time.Time
}

func newLags() *lags { return &lags{written: map[string]time.Time{}} }

// wait is how long to wait before the lag is written again; 0: write it now, which is then noted.
func (l *lags) wait(uuid string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := lagEvery - now.Sub(l.written[uuid]); d > 0 && d <= lagEvery {
		return d
	}
	if now.Sub(l.swept) > lagEvery {
		l.swept = now
		for id, t := range l.written {
			if now.Sub(t) > lagEvery {
				delete(l.written, id)
			}
		}
	}
	l.written[uuid] = now
	return 0
}
