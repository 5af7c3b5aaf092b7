// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"maps"
	"sync"
)

// Keys are a volume's data keys by number, from 0. New segments are sealed with the newest, and
// each names its own. Keys only come; none goes while a process has it. Its methods may be called
// from many goroutines.
type Keys struct {
	mu     sync.RWMutex
	keys   map[uint32]DataKey
	newest uint32
}

// NewKeys returns the keys of a volume that has only its first.
func NewKeys(first DataKey) *Keys { return &Keys{keys: map[uint32]DataKey{0: first}} }

// Get returns the key with a number; false: it is not known here.
func (k *Keys) Get(number uint32) (DataKey, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	key, ok := k.keys[number]
	return key, ok
}

// Newest returns the key that new segments are sealed with.
func (k *Keys) Newest() (number uint32, key DataKey) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.newest, k.keys[k.newest]
}

// All returns all that are known. The map is the caller's.
func (k *Keys) All() map[uint32]DataKey {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return maps.Clone(k.keys)
}

// Add takes in more keys. Segments are opened with them from now on.
func (k *Keys) Add(keys map[uint32]DataKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.Copy(k.keys, keys)
}

// Use has new segments sealed with a key that is known, if it is newer than the one so far. It
// reports whether it is.
func (k *Keys) Use(number uint32) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.keys[number]; !ok || number <= k.newest {
		return false
	}
	k.newest = number
	return true
}
