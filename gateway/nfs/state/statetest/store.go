// SPDX-License-Identifier: Apache-2.0

// Package statetest has what tests of servers need: a store of client records in memory. It does
// not import package state, whose own tests use it.
package statetest

import (
	"maps"
	"sync"
)

// Store is a state.Store in memory. The zero value is ready. Its content
// outlives the servers that use it, so that a test can restart a server on it.
type Store struct {
	mu   sync.Mutex
	m    map[string][]byte
	n    int
	Fail error // what Save and Delete return, to test failing disks; set it while nothing runs
}

// Save implements state.Store.
func (s *Store) Save(key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Fail != nil {
		return s.Fail
	}
	if s.m == nil {
		s.m = map[string][]byte{}
	}
	s.n++
	s.m[key] = append([]byte(nil), value...)
	return nil
}

// Delete implements state.Store.
func (s *Store) Delete(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Fail != nil {
		return s.Fail
	}
	s.n++
	delete(s.m, key)
	return nil
}

// Writes counts the calls of Save and Delete that succeeded.
func (s *Store) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// Load implements state.Store.
func (s *Store) Load(fn func(key string, value []byte) error) error {
	s.mu.Lock()
	m := maps.Clone(s.m)
	s.mu.Unlock()
	for k, v := range m {
		if err := fn(k, v); err != nil {
			return err
		}
	}
	return nil
}
