// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// salvagePrefix marks a folder of the pool that holds a copy which was set aside.
const salvagePrefix = "salvage-"

// Salvaged returns the folders of the pool that hold copies of a volume which were set aside.
func (m *Manager) Salvaged(id string) (out []string) {
	all, err := m.cfg.Pool.ListVolumes()
	if err != nil {
		return nil
	}
	for _, n := range all {
		if rest, ok := strings.CutPrefix(n, salvagePrefix+id); ok && rest != "" {
			out = append(out, n)
		}
	}
	return out
}

// SetAside asks Run to close a volume's copy and to keep it aside, because its log has changes that
// a forced takeover left out. It does not wait.
func (m *Manager) SetAside(id string) {
	select {
	case m.aside <- id:
	default: // it is called again with the next greeting
	}
}

// Reopen asks Run to close a volume's copy and to open it again, because its log was disowned. It
// does not wait.
func (m *Manager) Reopen(id string) {
	m.mu.Lock()
	m.reopen[id] = true
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default: // Run is to look anyway
	}
}

// closeDoubted closes the copies that are to be opened again, which reconcile does.
func (m *Manager) closeDoubted() {
	m.mu.Lock()
	doubted := map[string]*managed{}
	for id := range m.reopen {
		if s := m.volumes[id]; s != nil && s.copy != nil {
			doubted[id] = s
		}
	}
	clear(m.reopen)
	m.mu.Unlock()
	for id, s := range doubted {
		if err := m.detach(id, s); err != nil {
			m.cfg.Logger.Warn("copy that lost something did not close cleanly", "volume", id, "error", err)
		}
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
// makes an empty one.
func (m *Manager) renew(id, why string) error {
	dir, err := m.cfg.Pool.Volume(id)
	if err != nil {
		return err
	}
	path := dir.Path()
	to := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s%s-%s-%d", salvagePrefix, id, why, m.cfg.Now().Unix()))
	if err := os.Rename(path, to); err != nil {
		return fmt.Errorf("set the copy of volume %s aside: %w", id, err)
	}
	return nil
}
