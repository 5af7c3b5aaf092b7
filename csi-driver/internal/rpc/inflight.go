// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// InFlight is the set of volumes and paths that calls in flight work on (csi-8). A call never waits
// for another one: the second call on a key is ABORTED and its sender tries again. The zero value
// is ready to use, by any number of goroutines.
type InFlight struct {
	mu    sync.Mutex
	users map[string]int // how many calls share a key; exclusive: one call has it alone
}

const exclusive = -1

// Alone takes a key for one call. The call gives the key back with the function that is returned.
func (f *InFlight) Alone(key string) (release func(), err error) { return f.take(key, exclusive) }

// Shared takes a key together with other calls that share it. The call gives it back as with Alone.
func (f *InFlight) Shared(key string) (release func(), err error) { return f.take(key, 1) }

func (f *InFlight) take(key string, n int) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.users[key]; now < 0 || now > 0 && n < 0 {
		return nil, status.Errorf(codes.Aborted, "another call about %s is under way: ask again", key)
	}
	if f.users == nil {
		f.users = make(map[string]int)
	}
	f.users[key] += n
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.users[key] -= n; f.users[key] == 0 {
			delete(f.users, key)
		}
	}, nil
}
