// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/replica/lag"
)

// Opening is a volume whose copy is not open here yet.
type Opening struct {
	UUID   string
	Why    error
	Replay federation.Progress // of its log; zero: none
}

// Opening returns the volumes whose copy should be open here, and is not, by UUID.
func (m *Manager) Opening() (out []Opening) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*view.Volume
	if m.round {
		all, _ = m.cfg.View.Volumes()
	}
	for _, v := range all {
		if v.Record != nil && m.late(*v.Record) {
			out = append(out, Opening{UUID: v.UUID, Why: errTurn})
		}
	}
	for id, s := range m.volumes {
		if s.copy == nil && s.problem != nil && s.leaving == nil {
			out = append(out, Opening{id, s.problem, s.replay})
		}
	}
	slices.SortFunc(out, func(a, b Opening) int { return strings.Compare(a.UUID, b.UUID) })
	return out
}

// replayTick is how often the progress of a replay is told.
const replayTick = time.Second

// tellReplay tells in the volume's state how far the replay of its log has come, until stop. It
// says nothing of one that takes no longer than a tick.
func (m *Manager) tellReplay(c *Copy) (stop func()) {
	end := c.Log.End()
	r := lag.Replay{Began: m.cfg.Now(), Total: c.Log.Distance(c.Engine.Applied(), end)}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := m.cfg.Timers.NewTicker(replayTick)
		defer t.Stop()
		for {
			select {
			case <-t.Chan():
			case <-done:
				return
			}
			p := r.Progress(c.Log.Distance(c.Engine.Applied(), end), m.cfg.Now())
			m.mu.Lock()
			if s := m.volumes[c.UUID]; s != nil {
				s.problem, s.replay = fmt.Errorf("its log is replayed: %v", p), p
			}
			m.mu.Unlock()
		}
	}()
	return func() {
		close(done)
		<-ended
		m.mu.Lock()
		defer m.mu.Unlock()
		if s := m.volumes[c.UUID]; s != nil {
			s.replay = federation.Progress{}
		}
	}
}
