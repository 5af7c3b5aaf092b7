// SPDX-License-Identifier: Apache-2.0

// Package fair divides an amount, of memory or of connections, among those who ask for parts of it.
//
// # Rules
//
//   - fair-1. Take never gives out more than the limit in all.
//   - fair-2. Nobody gets more than twice what is then left for others (dynamic thresholds:
//     Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). So one alone gets two
//     thirds, n get 2/(1+2n) each, and something is left for who comes next. Who has nothing gets
//     what is left.
package fair

import "sync"

// Room is an amount of which each K has a part. Its methods may be called from many goroutines.
type Room[K comparable] struct {
	limit int

	mu    sync.Mutex
	used  int
	of    map[K]int
	freed chan struct{} // closed when something is given back; nil: nobody waits
}

// New returns a Room of which nothing is used.
func New[K comparable](limit int) *Room[K] { return &Room[K]{limit: limit, of: map[K]int{}} }

// Take gives n more to who, or returns false. Then freed is closed when something was given back,
// and the caller may ask again.
func (r *Room[K]) Take(who K, n int) (ok bool, freed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	has, left := r.of[who], r.limit-r.used-n
	if left >= 0 && (has == 0 || has+n <= 2*left) {
		r.add(who, n)
		return true, nil
	}
	if r.freed == nil {
		r.freed = make(chan struct{})
	}
	return false, r.freed
}

// Add gives n more to who, also above the limit. If n is negative, it gives back.
func (r *Room[K]) Add(who K, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(who, n)
	if n < 0 && r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}

func (r *Room[K]) add(who K, n int) {
	r.used += n
	if r.of[who] += n; r.of[who] == 0 {
		delete(r.of, who)
	}
}

// Left returns how much more who gets of what others need, too. It may be negative.
func (r *Room[K]) Left(who K) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return (2*(r.limit-r.used) - r.of[who]) / 3
}

// Use is how much of a Room is used, and its limit.
type Use struct{ Used, Limit int }

// Use returns how much is used.
func (r *Room[K]) Use() Use {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Use{r.used, r.limit}
}
