// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/weir-storage/weir/federation"
)

// Archive is a federation.Archive in memory, for tests. It outlives the gateways of a test.
type Archive struct {
	mu      sync.Mutex
	records map[string]federation.Record
}

var _ federation.Archive = (*Archive)(nil)

// NewArchive returns an empty archive.
func NewArchive() *Archive { return &Archive{records: map[string]federation.Record{}} }

// Get implements federation.Archive.
func (a *Archive) Get(key string) (federation.Record, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.records[key]
	return r, ok, nil
}

// List implements federation.Archive.
func (a *Archive) List(prefix string) (out []federation.Record, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(a.records)) {
		if strings.HasPrefix(k, prefix) {
			out = append(out, a.records[k])
		}
	}
	return out, nil
}

// Put implements federation.Archive.
func (a *Archive) Put(records []federation.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range records {
		if old, ok := a.records[r.Key]; !ok || old.Revision < r.Revision {
			a.records[r.Key] = r
		}
	}
	return nil
}

// Replace implements federation.Archive.
func (a *Archive) Replace(records []federation.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records = map[string]federation.Record{}
	for _, r := range records {
		a.records[r.Key] = r
	}
	return nil
}
