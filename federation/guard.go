// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"errors"
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
	// Rewound says why the registry is refused; empty: it is not.
	Rewound string `json:"rewound,omitempty"`
	// Offset is what this gateway adds to the registry's revisions. A reconciled registry counts
	// lower than before, and what compares revisions here must not see them go back.
	Offset Revision `json:"offset,omitempty"`
	// Reconciled is the ID of the last Reconciliation that was accepted.
	Reconciled string `json:"reconciled,omitempty"`
}

// guardStride is how many revisions may pass unsaved when no control record changed: saving is an
// fsync.
const guardStride = 1000

// Guard remembers the highest registry identity, revision and control changes seen and refuses a
// registry that went back (protocol-7): a restored backup could hand out epochs that were used
// before. Once it refused, it refuses until Accept, also after a restart. Its methods may be called
// from many goroutines. Those that may change what is kept wait for save. The others answer also
// while the disk hangs.
type Guard struct {
	archive Archive
	save    func(GuardState) error

	saving sync.Mutex // held by who saves, and locked before mu

	mu      sync.Mutex
	state   GuardState
	version uint64            // counts changes of state that are to be saved
	durable uint64            // the version up to which they are saved
	unsaved map[string]uint64 // versions in which control changes were seen that are not saved, by volume
	saved   Revision
	era     uint64        // counts Accepts of this process
	turned  chan struct{} // closed and replaced when the verdict changes, or what the archive says
}

// WholeArchive is the key with which an archive notes that it listed everything once.
const WholeArchive = "whole"

// NewGuard loads the state; load returns the zero state when there is none yet. Save must be
// durable when it returns. Archive may be nil: then a registry that is refused is still read.
func NewGuard(load func() (GuardState, error), save func(GuardState) error, archive Archive) (*Guard, error) {
	s, err := load()
	if err != nil {
		return nil, fmt.Errorf("load registry guard: %w", err)
	}
	s.Changes = maps.Clone(s.Changes)
	if s.Changes == nil {
		s.Changes = map[string]uint64{}
	}
	// Most revisions are seen unsaved. What was archived shows that they were.
	if archive != nil {
		kept, err := archive.List("")
		if err != nil {
			return nil, fmt.Errorf("load registry guard: %w", err)
		}
		for _, r := range kept {
			if r.Key == WholeArchive {
				continue // it is no record of the registry, and its revision says nothing
			}
			s.Revision = max(s.Revision, r.Revision)
		}
	}
	return &Guard{archive: archive, state: s, saved: s.Revision, save: save, unsaved: map[string]uint64{},
		turned: make(chan struct{})}, nil
}

// Archive is where the guard's gateway keeps the registry's records; nil: nowhere.
func (g *Guard) Archive() Archive { return g.archive }

// Asked is what was known when a request was sent: its answer may be overtaken by others.
type Asked struct {
	Head
	// Offset is what to add to the revisions of the answer.
	Offset  Revision
	changes map[string]uint64
	era     uint64
}

// Ask returns what is known now. With volumes it includes their control records: of one volume, or
// of all for "".
func (g *Guard) Ask(volumes ...string) Asked {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := Asked{Head: Head{Cluster: g.state.Cluster, Revision: g.state.Revision}, Offset: g.state.Offset, era: g.era}
	for _, v := range volumes {
		if v == "" {
			a.changes = maps.Clone(g.state.Changes)
			break
		}
		if a.changes == nil {
			a.changes = map[string]uint64{}
		}
		a.changes[v] = g.state.Changes[v]
	}
	return a
}

// Observe takes note of a head that the registry answered with, and of control records, which are
// durable when it returns. It returns why the registry is refused (ErrRewound), or ErrUnavailable
// if it was reconciled since the question, or save's error.
func (g *Guard) Observe(asked Asked, h Head, controls ...Control) error {
	version, due := g.see(asked, h, controls)
	var err error
	if version > 0 {
		err = g.keep(version)
	} else if due && g.saving.TryLock() { // who saves now keeps a revision that is good enough
		err = g.store(nil, nil)
		g.saving.Unlock()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.judge(asked), err)
}

// judge returns why an answer does not count. The caller holds mu.
func (g *Guard) judge(asked Asked) error {
	if asked.era != g.era {
		return &Error{Op: "check", Kind: "registry", Err: ErrUnavailable, Detail: "it was reconciled meanwhile: ask again"}
	}
	return g.verdict()
}

// see is Observe without saving. It returns the version that is to be saved before the answer
// counts, 0: none; and whether the revision is due to be saved.
func (g *Guard) see(asked Asked, h Head, controls []Control) (version uint64, due bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.judge(asked) != nil {
		if g.state.Rewound != "" && g.durable < g.version {
			return g.version, false // the verdict could not be saved before
		}
		return 0, false
	}
	switch {
	case g.state.Cluster != 0 && g.state.Cluster != h.Cluster:
		return g.refuse(fmt.Sprintf("its identity was %x and is %x", g.state.Cluster, h.Cluster)), false
	case h.Revision < asked.Revision:
		return g.refuse(fmt.Sprintf("its revision was %d and is %d", asked.Revision, h.Revision)), false
	}
	for _, c := range controls {
		if c.Change < asked.changes[c.Volume] {
			return g.refuse(fmt.Sprintf("volume %s was at change %d and is at %d", c.Volume, asked.changes[c.Volume], c.Change)), false
		}
	}
	if g.state.Cluster == 0 {
		g.state.Cluster = h.Cluster
		g.version++
		version = g.version
	}
	for _, c := range controls {
		if c.Change > g.state.Changes[c.Volume] {
			g.state.Changes[c.Volume] = c.Change
			g.version++
			g.unsaved[c.Volume] = g.version
		}
		version = max(version, g.unsaved[c.Volume]) // another may have seen it just before
	}
	g.state.Revision = max(g.state.Revision, h.Revision)
	return version, g.state.Revision >= g.saved+guardStride
}

// Refuse refuses the registry for a reason that the caller found, unless it is refused.
func (g *Guard) Refuse(why string) error {
	g.mu.Lock()
	var version uint64
	if g.state.Rewound == "" {
		version = g.refuse(why)
	}
	verdict := g.verdict()
	g.mu.Unlock()
	return errors.Join(verdict, g.keep(version))
}

// refuse refuses the registry, and returns the version to be saved. The caller holds mu.
func (g *Guard) refuse(why string) uint64 {
	g.state.Rewound = why
	g.version++
	g.turn()
	return g.version
}

// Reconciled takes note of a reconciliation that is in a registry which is believed.
func (g *Guard) Reconciled(id string) error {
	g.saving.Lock()
	defer g.saving.Unlock()
	if s := g.State(); s.Rewound != "" || id <= s.Reconciled {
		return nil
	}
	return g.store(func(s *GuardState) { s.Reconciled = id }, nil)
}

// Forget drops a volume whose control record was deleted.
func (g *Guard) Forget(volume string) error {
	g.saving.Lock()
	defer g.saving.Unlock()
	if _, ok := g.State().Changes[volume]; !ok {
		return nil
	}
	return g.store(func(s *GuardState) { delete(s.Changes, volume) }, nil)
}

// State returns what is known. The map is the caller's.
func (g *Guard) State() GuardState {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.state
	s.Changes = maps.Clone(s.Changes)
	return s
}

// Err is nil, or why the registry is refused; it wraps ErrRewound.
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.verdict()
}

// Turned returns a channel that is closed when the registry is refused or accepted, or Turn is
// called.
func (g *Guard) Turned() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.turned
}

// Turn has watches begin again, because the archive of a refused registry changed.
func (g *Guard) Turn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turn()
}

// Accept believes the registry as it is now: the head h, with that offset, and control changes by
// volume replace what was known. The archive was replaced before.
func (g *Guard) Accept(h Head, offset Revision, changes map[string]uint64, reconciled string) error {
	g.saving.Lock()
	defer g.saving.Unlock()
	return g.store(func(s *GuardState) {
		*s = GuardState{Cluster: h.Cluster, Revision: h.Revision, Offset: offset, Reconciled: reconciled, Changes: map[string]uint64{}}
		maps.Copy(s.Changes, changes)
	}, func() {
		g.era++
		g.turn()
	})
}

func (g *Guard) turn() {
	close(g.turned)
	g.turned = make(chan struct{})
}

func (g *Guard) verdict() error {
	if g.state.Rewound == "" {
		return nil
	}
	return &Error{Op: "check", Kind: "registry", Err: ErrRewound, Detail: g.state.Rewound +
		": it was restored from a backup or replaced; volumes go on as they are, and nothing takes over or changes members" +
		" until `weir registry reconcile` has brought it forward"}
}

// keep saves the state, unless that version of it is saved. Who waits meanwhile for a later one
// finds it saved too.
func (g *Guard) keep(version uint64) error {
	g.saving.Lock()
	defer g.saving.Unlock()
	g.mu.Lock()
	durable := g.durable
	g.mu.Unlock()
	if durable >= version {
		return nil
	}
	return g.store(nil, nil)
}

// store saves the state after a change, and then makes the change, and calls done with mu held:
// nobody acts by a change that is not durable. Both may be nil. The caller holds saving, and not
// mu.
func (g *Guard) store(change func(*GuardState), done func()) error {
	g.mu.Lock()
	s, version := g.state, g.version
	s.Changes = maps.Clone(s.Changes)
	g.mu.Unlock()
	if change != nil {
		change(&s)
	}
	if err := g.save(s); err != nil {
		return fmt.Errorf("save registry guard: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if change != nil {
		change(&g.state)
	}
	if done != nil {
		done()
	}
	g.durable, g.saved = version, s.Revision
	maps.DeleteFunc(g.unsaved, func(_ string, v uint64) bool { return v <= version })
	return nil
}
