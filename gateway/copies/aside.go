// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/pools"
	"github.com/weir-storage/weir/store"
)

// salvagePrefix marks a folder of the pool that holds a copy which was set aside.
const salvagePrefix = pools.SalvagePrefix

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
	if m.shedAll([]string{to}) {
		select {
		case m.unshed <- struct{}{}:
		default: // KeepPurging is to look anyway
		}
	}
	return nil
}

// shedEvery is how often a copy that was set aside leaves what its site's store has. The new copy
// uploads what the one before it had not.
const shedEvery = 10 * time.Minute

// shedAll removes from the pool what the site's store has of the copies that were set aside, among
// these folders of the pool: of each after a start and from time to time. It reports whether it did
// not go well, and is to be tried again.
func (m *Manager) shedAll(folders []string) (again bool) {
	m.shedding.Lock()
	defer m.shedding.Unlock()
	now := m.cfg.Now()
	for _, folder := range folders {
		name, aside := strings.CutPrefix(folder, salvagePrefix)
		if !aside || len(name) < uuidLength || now.Sub(m.shed[folder]) < shedEvery {
			continue
		}
		if err := m.shedOne(name[:uuidLength], folder); err != nil {
			m.cfg.Logger.Warn("a copy that was set aside stays on the pool as a whole for now", "folder", folder, "error", err)
			again = true
			continue
		}
		m.shed[folder] = now
	}
	return again
}

const uuidLength = len("00000000-0000-0000-0000-000000000000")

// shedTime bounds the question what a store has.
const shedTime = 30 * time.Second

// shedOne removes from the pool what the site's store has of a copy that was set aside, and its
// read cache. The store itself is asked: nobody else may have it.
func (m *Manager) shedOne(id, folder string) error {
	volume, err := uuid.Parse(id)
	if err != nil {
		return err
	}
	aside, err := m.cfg.Pool.Volume(folder)
	if err != nil {
		return err
	}
	if err := m.cfg.Pool.Of(folder).Reads.Drop(folder, aside); err != nil || m.cfg.Store == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), shedTime)
	defer cancel()
	stored := map[string]int64{}
	if err := m.cfg.Store.List(ctx, id+"/", func(i store.Info) error {
		stored[i.Name] = i.Size
		return nil
	}); err != nil {
		return err
	}
	freed, err := log.Shed(aside, segment.VolumeID(volume), stored)
	m.cfg.Pool.Room(folder).Release(freed)
	return err
}
