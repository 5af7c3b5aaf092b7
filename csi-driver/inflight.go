// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// inflight knows what calls are about. Nobody waits for another: who comes second is told to ask again. The zero value is ready.
type inflight struct {
	mu   sync.Mutex
	held map[string]int // how many share it; -1: one has it alone
}

// alone takes a key for one call; give it back with the function that is returned.
func (f *inflight) alone(key string) (func(), error) { return f.take(key, -1) }

// shared takes a key together with others that share it.
func (f *inflight) shared(key string) (func(), error) { return f.take(key, 1) }

func (f *inflight) take(key string, n int) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.held[key]; now < 0 || now > 0 && n < 0 {
		return nil, status.Errorf(codes.Aborted, "another call about %s is under way: ask again", key)
	}
	if f.held == nil {
		f.held = make(map[string]int)
	}
	f.held[key] += n
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.held[key] -= n; f.held[key] == 0 {
			delete(f.held, key)
		}
	}, nil
}
