// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"sync"
)

// Health reports whether a gateway is ready for clients. The zero value is for a gateway that has
// not begun. A running gateway updates it.
type Health struct {
	mu        sync.Mutex
	heard     bool             // the whole state of the registry, once
	listening bool             // for NFS
	main      string           // name of the main pool
	probed    map[string]error // by pool
}

// Ready returns nil if clients can be sent to the gateway, else all that is missing. A registry
// that fails later does not count: the gateway goes on serving.
func (h *Health) Ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var missing []error
	if !h.heard {
		missing = append(missing, errors.New("the registry has not told yet which volumes there are"))
	}
	// Another pool that fails is told elsewhere: clients of the others are served.
	if err, ok := h.probed[h.main]; !ok {
		missing = append(missing, errors.New("the pool has taken no write yet"))
	} else if err != nil {
		missing = append(missing, fmt.Errorf("the pool takes no writes: %w", err))
	}
	if !h.listening {
		missing = append(missing, errors.New("NFS is not served yet"))
	}
	return errors.Join(missing...)
}

// probe records the result of a small write on a pool, and returns it.
func (h *Health) probe(pool string, err error) error {
	h.set(func() {
		if h.probed == nil {
			h.probed = map[string]error{}
		}
		h.probed[pool] = err
	})
	return err
}

func (h *Health) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}
