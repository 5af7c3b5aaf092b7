// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// Moment is Pebble at one moment, for many views. To take a snapshot of Pebble and to give it back
// costs more than a lookup does whose values are known. Its methods may be called from any
// goroutine.
type Moment struct {
	snap  *pebble.Snapshot
	users atomic.Int64
}

// Moment returns Pebble as it is now. The caller is its first user.
func (s *Store) Moment() *Moment {
	m := &Moment{snap: s.db.NewSnapshot()}
	m.users.Store(1)
	return m
}

// View returns a view of over and of the moment. over may be nil, and is not copied. The caller is
// a user of the moment. The view is another one, until it is closed.
func (m *Moment) View(over *Overlay) *View {
	m.users.Add(1)
	return &View{over: over, base: m.snap, of: m}
}

// Release ends one user's use. The last one closes the moment.
func (m *Moment) Release() error {
	if m.users.Add(-1) > 0 {
		return nil
	}
	return m.snap.Close()
}
