// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"errors"
	"sync"

	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/locktable"
)

// heldLocks are the locks of this gateway's own clients on one volume. Registrar is their one
// writer.
type heldLocks struct {
	mu    sync.Mutex
	table locktable.Table
}

// set records a lock that the home has granted. It removes what conflicts with it here, which the
// home has released.
func (k *heldLocks) set(h volume.Handle, l volume.Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var conflict *volume.LockConflict
	for errors.As(k.table.Set(h, l), &conflict) {
		k.table.Unlock(h, conflict.Held)
	}
}

func (k *heldLocks) unset(h volume.Handle, l volume.Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.table.Unlock(h, l)
}

func (k *heldLocks) all() []forward.HeldLock {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []forward.HeldLock
	for h, l := range k.table.All() {
		out = append(out, forward.HeldLock{Handle: h, Lock: l})
	}
	return out
}
