// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"

	"github.com/weir-storage/weir/gateway/reaping"
)

// KeepReaping deletes files that have no name and that nobody has open, and what no snapshot shows
// any more, in volumes whose home is here. It returns when ctx ends.
func (m *Manager) KeepReaping(ctx context.Context) {
	m.reaping.Run(ctx, func() (out []reaping.Copy) {
		for _, c := range m.Leading() {
			if !c.Blind() {
				out = append(out, c.reapable())
			}
		}
		return out
	})
}

// Leading returns the copies of volumes whose home is here; of a blind one, if it is steward.
func (m *Manager) Leading() (out []*Copy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.volumes {
		if s.copy != nil {
			if _, ok := s.copy.Replica.Reigns(); ok {
				out = append(out, s.copy)
			}
		}
	}
	return out
}

func (c *Copy) reapable() reaping.Copy {
	return reaping.Copy{UUID: c.UUID, Engine: c.Engine, Log: c.Log, Held: c.held, Use: c.Use}
}

// Reap deletes the files without names of one volume that nobody has open (copies-5).
func (m *Manager) Reap(ctx context.Context, c *Copy) error { return m.reaping.Reap(ctx, c.reapable()) }
