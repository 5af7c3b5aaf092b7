// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"slices"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/gateway/settings"
)

// Opened returns the volumes of which a copy or an outline is open here.
func (m *Manager) Opened() (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range m.volumes {
		if s.copy != nil && s.leaving == nil || s.outline != nil {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// errNotOpen: nothing is open of the volume.
var errNotOpen = errors.New("it is not open now")

// errMoves: the volume is closed for a moment.
var errMoves = errors.New("it moves to another pool, and is open again in a moment")

// WhileClosed has Run close a volume's copy or outline, calls f, and has it opened again. It
// returns f's error, errNotOpen, or why it did not close cleanly. Run goes on meanwhile.
func (m *Manager) WhileClosed(ctx context.Context, id string, f func() error) error {
	closed := make(chan error, 1)
	m.mu.Lock()
	m.between[id] = func() { closed <- m.closeFor(id) }
	m.mu.Unlock()
	m.look()
	var err error
	select {
	case err = <-closed:
	case <-ctx.Done():
		m.mu.Lock()
		waits := m.between[id] != nil
		delete(m.between, id)
		m.mu.Unlock()
		if waits {
			return ctx.Err()
		}
		err = <-closed
	}
	if err == nil {
		err = f()
	}
	m.mu.Lock()
	if s := m.volumes[id]; s != nil {
		s.between = false
	}
	m.mu.Unlock()
	m.look()
	return err
}

// look has Run look at all volumes.
func (m *Manager) look() {
	select {
	case m.wake <- struct{}{}:
	default: // it is to look anyway
	}
}

// closeFor closes a volume, which stays so until its state says that it is between no more. Run
// calls it.
func (m *Manager) closeFor(id string) (err error) {
	m.mu.Lock()
	s := m.volumes[id]
	m.mu.Unlock()
	switch {
	case s != nil && s.copy != nil:
		err = m.detach(id, s)
	case s != nil && s.outline != nil:
		err = m.unfollow(id, s)
	default:
		return errNotOpen
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.between, s.problem = err == nil, errMoves
	return err
}

// isBetween reports whether a volume is closed for a while.
func (m *Manager) isBetween(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.volumes[id]
	return s != nil && s.between
}

// doBetween closes volumes for those who wait for that. Run calls it.
func (m *Manager) doBetween() {
	m.mu.Lock()
	todo := m.between
	m.between = map[string]func(){}
	m.mu.Unlock()
	for _, do := range todo {
		do()
	}
}

// Tuning returns how the storage below a pool is to treat a volume.
func (m *Manager) Tuning(id string) cachepool.Tuning {
	r, _ := m.cfg.View.Record(id) // the empty record asks for nothing
	return settings.Below(m.cfg.View.Here(r))
}
