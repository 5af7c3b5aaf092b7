// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"fmt"

	"github.com/weir-storage/weir/gateway/pools"
)

// salvagePrefix marks a folder of the pool that holds a copy which was set aside.
const salvagePrefix = pools.SalvagePrefix

// Salvaged returns the folders of the pool that hold copies of a volume which were set aside.
func (m *Manager) Salvaged(id string) []string { return m.folders.Aside(id) }

// Held is Folders.Held.
func (m *Manager) Held(of func(id string) bool) (map[string]bool, error) { return m.folders.Held(of) }

// SetAside asks Run to close a volume's copy and to keep it aside, because its log has changes that
// a forced takeover left out. It does not wait.
func (m *Manager) SetAside(id string) {
	select {
	case m.aside <- id:
	default: // it is called again with the next greeting
	}
}

// Reopen asks Run to close a volume's copy and to open it again, because it failed or its log was
// disowned: why. It does not wait. Run waits longer each time that the copy fails soon again.
func (m *Manager) Reopen(id string, why error) {
	m.mu.Lock()
	m.reopen[id] = why
	m.mu.Unlock()
	m.look()
}

// closeEnded closes the copies that are to be opened again, which reconcile does.
func (m *Manager) closeEnded() {
	m.mu.Lock()
	ended, why := map[string]*managed{}, map[string]error{}
	for id, err := range m.reopen {
		if s := m.volumes[id]; s != nil && s.copy != nil {
			ended[id], why[id] = s, err
		}
	}
	clear(m.reopen)
	m.mu.Unlock()
	for id, s := range ended {
		if err := m.detach(id, s); err != nil {
			m.cfg.Logger.Warn("copy that failed did not close cleanly", "volume", id, "error", err)
		}
		again := s.backoff.Failed(m.cfg.Now())
		problem := fmt.Errorf("the copy on this pool failed, and is opened again in %v: %w", again, why[id])
		m.mu.Lock()
		s.problem = problem
		m.mu.Unlock()
		m.cfg.Logger.Error("copy of the volume failed", "volume", id, "error", problem)
	}
}

// reopenAside closes a volume's copy and keeps it aside. reconcile makes a new one.
func (m *Manager) reopenAside(id string) {
	m.mu.Lock()
	s := m.volumes[id]
	m.mu.Unlock()
	if s == nil || s.copy == nil {
		return
	}
	if err := m.cfg.Registry.Trusted(); err != nil {
		m.cfg.Logger.Warn("copy is not set aside yet; the next greeting asks again", "volume", id, "error", err)
		return
	}
	err := m.detach(id, s)
	if err == nil {
		_, epoch := m.cfg.View.Home(id)
		err = m.renew(id, fmt.Sprintf("epoch%d", epoch))
	}
	if err != nil {
		m.cfg.Logger.Error("copy cannot be set aside", "volume", id, "error", err)
		m.SetAside(id)
	}
}

// renew keeps the volume's folder on the pool aside under another name (copies-2). The next open
// makes an empty one. What the site's store has of it leaves the pool, or there might be no room
// for the new one.
func (m *Manager) renew(id, why string) error {
	to := fmt.Sprintf("%s%s-%s-%d", salvagePrefix, id, why, m.cfg.Now().Unix())
	if there, err := m.cfg.Pool.Volume(id); err == nil {
		if err := m.cfg.Pool.Of(id).Reads.Drop(id, there); err != nil {
			m.cfg.Logger.Warn("the read cache of a copy that is set aside stays for now", "volume", id, "error", err)
		}
	}
	if err := m.cfg.Pool.RenameVolume(id, to); err != nil {
		return fmt.Errorf("set the copy of volume %s aside: %w", id, err)
	}
	if m.folders.Shed([]string{to}) {
		select {
		case m.unshed <- struct{}{}:
		default: // KeepPurging is to look anyway
		}
	}
	return nil
}
