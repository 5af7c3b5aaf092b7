// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
)

// doubtError reports that a log on the pool has lost something that it had (copies-1).
type doubtError struct {
	why error
	// member is true if the control record counts on the log. Then no empty log may replace it. An
	// empty log would count as a member that has everything, and might even become home, to which
	// others would cut their logs. The copy waits until the home goes on without this member, or a
	// person decides.
	member bool
}

func (e *doubtError) Error() string {
	s := fmt.Sprintf("the log on this pool is in doubt: %v", e.why)
	if e.member {
		s += "; it is left as it is, because it is a member of the volume: " +
			"a home at another gateway goes on without it after a while and it then begins anew; " +
			"if this gateway is the home, bring the log back, " +
			"or, if no other copy is whole, give up what is lost with `weir failover --accept-loss`"
	}
	return s
}

// doubtful returns a *doubtError if the log must not be continued at its end, or why that is not
// known. With believe, a person gave up what is lost.
func (m *Manager) doubtful(ctx context.Context, l *log.Log, id string, believe bool) error {
	found := l.Recovered()
	if found.Doubt == nil && l.End() != (log.Position{}) {
		return nil
	}
	ctl, _, err := m.cfg.Registry.GetControl(ctx, id)
	if errors.Is(err, federation.ErrNotFound) {
		ctl, err = federation.Control{}, nil
	}
	switch {
	case err != nil:
		return fmt.Errorf("read the control record of volume %s: %w", id, err)
	case found.Doubt != nil && believe && l.End() != (log.Position{}):
		return nil // a person gave up what is lost
	case found.Doubt != nil:
		return &doubtError{found.Doubt, ctl.CountsOn(m.cfg.Self)}
	case ctl.CountsOn(m.cfg.Self) && hadLog(ctl):
		return &doubtError{errors.New("it is empty"), true}
	}
	return nil
}

// hadLog reports whether a member of the volume must have something in its log. A first home that
// died between its swap and the beginning of its epoch has nothing.
func hadLog(ctl federation.Control) bool {
	if len(ctl.Members) > 1 {
		return true
	}
	for _, e := range ctl.History {
		if e.Start != (federation.Position{}) {
			return true
		}
	}
	return false
}

// Doubt returns why the log of a volume's copy is in doubt, if that keeps the copy closed; else
// nil.
func (m *Manager) Doubt(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.volumes[id]; s != nil && s.doubted {
		return s.problem
	}
	return nil
}

// Believe asks Run to open a copy whose log is in doubt with what is left of it. A person gave up
// what is lost. It does not wait.
func (m *Manager) Believe(id string) {
	m.mu.Lock()
	m.believe[id] = true
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default: // Run is to look anyway
	}
}

// believed reports, once, whether a person asked to open a volume's copy although its log is in
// doubt.
func (m *Manager) believed(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := m.believe[id]
	delete(m.believe, id)
	return asked
}

// errAhead reports metadata that have more than is left of their log.
var errAhead = errors.New("the metadata have more than the log")

// openBelieved opens a copy with what is left of its log. Metadata that have more are made anew
// from it.
func (m *Manager) openBelieved(ctx context.Context, v federation.Volume) (*Copy, error) {
	c, err := m.openWith(ctx, v, true)
	if !errors.Is(err, errAhead) {
		return c, err
	}
	dir, err := m.cfg.Pool.Volume(v.UUID)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(dir.Path(), metaFolder)
	there, err := folderSize(m.cfg.FS, folder)
	if err == nil {
		err = m.cfg.FS.RemoveAll(folder)
	}
	if err != nil {
		return nil, fmt.Errorf("make the metadata of volume %s anew: %w", v.Name, err)
	}
	m.cfg.Pool.Room().Count(-there)
	return m.openWith(ctx, v, true)
}
