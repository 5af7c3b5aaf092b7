// SPDX-License-Identifier: Apache-2.0

package mending

import (
	"sync"

	"github.com/weir-storage/weir/engine/pack"
)

// Suspects are packs that could not be read as they should be. Each is looked at once until the
// gateway starts again: a store that damages all that is put is not written to for ever. The zero
// value is ready. Any goroutine may call its methods.
type Suspects struct {
	mu  sync.Mutex
	all map[string]map[pack.Hash]bool // by volume; true: it was not looked at yet
}

// Tell notes a pack of a volume, by its name. Other objects are left out. It does not block.
func (s *Suspects) Tell(volume, name string) {
	_, hash, err := pack.ParseName(name)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]map[pack.Hash]bool{}
	}
	if s.all[volume] == nil {
		s.all[volume] = map[pack.Hash]bool{}
	}
	if _, known := s.all[volume][hash]; !known {
		s.all[volume][hash] = true
	}
}

// Of returns the packs of a volume that were not looked at yet.
func (s *Suspects) Of(volume string) (out []pack.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, left := range s.all[volume] {
		if left {
			out = append(out, hash)
		}
	}
	return out
}

// Seen notes that a pack was looked at.
func (s *Suspects) Seen(volume string, hash pack.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[volume] != nil {
		s.all[volume][hash] = false
	}
}
