// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"fmt"
	"maps"
	"sync"
)

// GuardState is what a Guard keeps across restarts.
type GuardState struct {
	Cluster  uint64   `json:"cluster"`
	Revision Revision `json:"revision"`
	// Changes has the highest Control.Change seen, by volume.
	Changes map[string]uint64 `json:"changes,omitempty"`
}

// guardStride is how many revisions may pass unsaved when no control record changed: saving is an
// fsync.
const guardStride = 1000

// Guard remembers the highest registry identity, revision and control changes seen and refuses a
// registry that went back (protocol-7): a restored backup could hand out epochs that were used
// before. Once it refused, it refuses until Reconcile. Its methods may be called from many
// goroutines; they wait for save.
type Guard struct {
	mu    sync.Mutex
	state GuardState
	saved Revision
	why   error
	save  func(GuardState) error
}

// NewGuard loads the state; load returns the zero state when there is none yet. Save must be
// durable when it returns.
func NewGuard(load func() (GuardState, error), save func(GuardState) error) (*Guard, error) {
	s, err := load()
	if err != nil {
		return nil, fmt.Errorf("load registry guard: %w", err)
	}
	s.Changes = maps.Clone(s.Changes)
	if s.Changes == nil {
		s.Changes = map[string]uint64{}
	}
	return &Guard{state: s, saved: s.Revision, save: save}, nil
}

// Observe takes note of a head that the registry answered with. Answers may arrive out of order, so
// a head counts as gone back only when asked is set: the highest revision that was known when the
// request was sent (Highest).
func (g *Guard) Observe(h Head, asked Head) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why != nil {
		return g.why
	}
	switch {
	case g.state.Cluster != 0 && g.state.Cluster != h.Cluster:
		return g.refuse(fmt.Sprintf("its identity was %x and is %x", g.state.Cluster, h.Cluster))
	case h.Revision < asked.Revision:
		return g.refuse(fmt.Sprintf("its revision was %d and is %d", asked.Revision, h.Revision))
	}
	first := g.state.Cluster == 0
	g.state.Cluster = h.Cluster
	g.state.Revision = max(g.state.Revision, h.Revision)
	if first || g.state.Revision >= g.saved+guardStride {
		return g.store()
	}
	return nil
}

// ObserveControl takes note of a record that the registry answered with; asked is the volume's
// HighestChange when the request was sent.
func (g *Guard) ObserveControl(c Control, asked uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why != nil {
		return g.why
	}
	if c.Change < asked {
		return g.refuse(fmt.Sprintf("volume %s was at change %d and is at %d", c.Volume, asked, c.Change))
	}
	if c.Change > g.state.Changes[c.Volume] {
		g.state.Changes[c.Volume] = c.Change
		return g.store()
	}
	return nil
}

// Forget drops a volume whose control record was deleted.
func (g *Guard) Forget(volume string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.state.Changes, volume)
	return g.store()
}

// Highest is the highest head seen.
func (g *Guard) Highest() Head {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Head{Cluster: g.state.Cluster, Revision: g.state.Revision}
}

// HighestChange is the highest Control.Change seen of the volume.
func (g *Guard) HighestChange(volume string) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.Changes[volume]
}

// Err is nil, or why the registry is refused; it wraps ErrRewound.
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why
}

// Reconcile accepts the registry as it is now, after its control records were brought up to the
// maximum that the logs know: h and changes (by volume) replace what was seen.
func (g *Guard) Reconcile(h Head, changes map[string]uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = GuardState{Cluster: h.Cluster, Revision: h.Revision, Changes: map[string]uint64{}}
	maps.Copy(g.state.Changes, changes)
	if err := g.store(); err != nil {
		return err
	}
	g.why = nil
	return nil
}

func (g *Guard) refuse(what string) error {
	g.why = &Error{Op: "check", Kind: "registry", Err: ErrRewound, Detail: what +
		": it was restored from a backup or replaced; volumes go on as they are, and nothing takes over or changes members" +
		" until its control records have been reconciled with the volumes' logs"}
	return g.why
}

func (g *Guard) store() error {
	s := g.state
	s.Changes = maps.Clone(s.Changes)
	if err := g.save(s); err != nil {
		return fmt.Errorf("save registry guard: %w", err)
	}
	g.saved = s.Revision
	return nil
}
