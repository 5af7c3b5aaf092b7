// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/upkeep"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/peers"
	"github.com/weir-storage/weir/gateway/settings"
)

// How often a home writes what it observes to the registry. A notable change is written at once,
// but at most every second. A change of figures only is written every half minute, or every few
// seconds while a copy catches up; the more volumes have such a copy, the seldomer. If nothing
// changed, nothing is written.
const (
	observeTick  = time.Second
	observeEvery = 30 * time.Second
	observeCopy  = 3 * time.Second
	observeShare = 50 * time.Millisecond // of each volume with a copy that catches up
)

// Config has what a Reporter needs.
type Config struct {
	Gateway  string // this one
	View     *view.View
	Copies   *copies.Manager
	Peers    *peers.Peers
	Registry interface {
		PutObserved(ctx context.Context, o federation.Observed) error
		ListObserved(ctx context.Context, volume string) ([]federation.Observed, error)
		Trusted() error
	}
	// Snapshots returns what is known of a volume's snapshots; nil: nothing yet.
	Snapshots func(uuid string) *snapshots.Report
	// Scrubs is what is known of the copies here that were read again.
	Scrubs interface {
		Scrubbed(uuid string) *upkeep.Scrubbed // nil: nothing yet
		Load(ctx context.Context, uuid string) error
		News() []string
	}
	Now    func() time.Time
	Timers clockwork.Clock
	Logger *slog.Logger
}

// Reporter reports the status of one gateway's volumes. Its methods may be called from many
// goroutines.
type Reporter struct{ cfg Config }

// New returns a Reporter.
func New(cfg Config) *Reporter { return &Reporter{cfg} }

// Written is the report of a volume that was last written. Only the goroutine that observes uses
// it.
type Written struct {
	Observed federation.Observed
	At       time.Time

	catching bool          // a copy catches up
	every    time.Duration // how often figures are written then
}

// Run writes the observations of the homes at this gateway, until ctx ends.
func (p *Reporter) Run(ctx context.Context) {
	t := p.cfg.Timers.NewTicker(observeTick)
	defer t.Stop()
	last := map[*copies.Copy]*Written{}
	opening := openings{p: p, last: map[string]*Written{}}
	read := scrubs{p: p, news: map[string]bool{}}
	var r rounds
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.Chan():
		}
		leading := map[*copies.Copy]bool{}
		var catching time.Duration
		for _, w := range last {
			if w.catching {
				catching++
			}
		}
		homes := p.cfg.Copies.Leading()
		for _, c := range homes {
			leading[c] = true
			if last[c] == nil {
				last[c] = new(Written)
			}
			last[c].every = min(observeEvery, max(observeCopy, catching*observeShare))
		}
		for c := range last {
			if !leading[c] {
				delete(last, c)
			}
		}
		closed := p.cfg.Copies.Opening()
		opening.keep(closed)
		others := read.left(homes)
		r.run(p.cfg.Now(), len(homes)+len(closed)+len(others), func(i int) bool {
			var err error
			var id string
			if i < len(homes) {
				id, err = homes[i].UUID, p.Observe(ctx, homes[i], last[homes[i]])
			} else if i -= len(homes); i < len(closed) {
				id, err = closed[i].UUID, opening.report(ctx, closed[i], len(closed))
			} else {
				id = others[i-len(closed)]
				err = read.report(ctx, id)
			}
			if err != nil && ctx.Err() == nil {
				p.cfg.Logger.Debug("observed state is not in the registry", "volume", id, "error", err)
			}
			return ctx.Err() == nil && refused(err)
		})
	}
}

// rounds are attempts to write the observations of all homes. When the registry does not take one,
// the round ends, and the next one begins later and later: a registry in trouble, such as one whose
// disk is full, is not asked by each home each second (report-1).
type rounds struct {
	wait time.Duration // after the last round that failed; 0: it did not fail
	next time.Time
}

// run runs a round over n volumes, if it is time for one. The function observe reports whether the
// registry refused.
func (r *rounds) run(now time.Time, n int, observe func(i int) bool) {
	if now.Before(r.next) {
		return
	}
	for i := range n {
		if observe(i) {
			r.wait = min(observeEvery, max(observeTick, r.wait*2))
			r.next = now.Add(r.wait)
			return
		}
	}
	*r = rounds{}
}

// refused reports whether a registry that answers so does not take what other homes observe
// either. Some answers are about one volume.
func refused(err error) bool {
	of := func(one error) bool { return errors.Is(err, one) }
	return err != nil && !slices.ContainsFunc([]error{federation.ErrConflict, federation.ErrNotFound, federation.ErrInvalid,
		federation.ErrVersion}, of)
}

// Observe writes a home's view of a volume to the registry if it is time for that.
func (p *Reporter) Observe(ctx context.Context, c *copies.Copy, last *Written) error {
	v, ok := p.cfg.View.Record(c.UUID)
	if !ok {
		return nil
	}
	if err := p.cfg.Scrubs.Load(ctx, c.UUID); err != nil {
		return err // what it would write has to have it
	}
	now := p.cfg.Now()
	o := p.observation(c, v)
	o.Used, o.Files, o.Held = last.Observed.Used, last.Observed.Files, last.Observed.Held
	last.catching = slices.ContainsFunc(o.Replicas, func(r federation.ObservedReplica) bool { return r.Progress != federation.Progress{} })
	every := observeEvery
	if last.catching {
		every = last.every
	}
	switch {
	case notable(last.Observed, o):
	case now.Sub(last.At) < every, same(last.Observed, o):
		return nil
	}
	if space, err := c.Space(ctx); err == nil {
		o.Used, o.Files = federation.Bytes(space.TotalBytes-space.FreeBytes), space.TotalInodes-space.FreeInodes
	}
	if held, known, err := c.Held(ctx); err == nil {
		o.Held = nil
		if b := federation.Bytes(held); known {
			o.Held = &b
		}
	}
	o.At = now
	if err := p.cfg.Registry.PutObserved(ctx, o); err != nil {
		return err
	}
	last.Observed, last.At = o, now
	return nil
}

// observation returns what the home sees, except the room that is used.
func (p *Reporter) observation(c *copies.Copy, v federation.Volume) federation.Observed {
	s := VolumeStatus{Gateway: p.cfg.Gateway}
	s.describe(c, v)
	o := federation.Observed{Volume: c.UUID, Gateway: p.cfg.Gateway, Generation: c.Generation(), Epoch: s.Epoch, Home: p.cfg.Gateway,
		Commit: s.Commit, Replicas: s.Replicas, Stores: s.Stores, Message: s.Trouble(s.Silent(), settings.Policy(v).Want),
		Snapshots: p.cfg.Snapshots(c.UUID), Scrub: p.cfg.Scrubs.Scrubbed(c.UUID)}
	if state, ok := p.cfg.Copies.State(c.UUID); ok && o.Message == "" {
		o.Message = state.Leaving
	}
	if err := p.cfg.Registry.Trusted(); err != nil && o.Message == "" {
		o.Message = err.Error()
	}
	return o
}

// notable reports whether a change is to be written at once. A copy that has all that is committed
// falls a little behind with every write, and catches up: only the latter is notable. A store that
// takes nothing may say why in other words each time.
func notable(was, is federation.Observed) bool {
	if was.Epoch != is.Epoch || was.Home != is.Home || was.Generation != is.Generation || was.Message != is.Message ||
		len(was.Replicas) != len(is.Replicas) || !reflect.DeepEqual(was.Snapshots, is.Snapshots) ||
		!reflect.DeepEqual(was.Scrub, is.Scrub) {
		return true
	}
	for _, r := range is.Replicas {
		i := slices.IndexFunc(was.Replicas, func(w federation.ObservedReplica) bool { return w.Gateway == r.Gateway })
		if i < 0 || was.Replicas[i].State != r.State &&
			(r.State != federation.ReplicaJoining || was.Replicas[i].State != federation.ReplicaFollower) {
			return true
		}
	}
	return slices.ContainsFunc(is.Stores, func(r federation.ObservedStore) bool {
		i := slices.IndexFunc(was.Stores, func(w federation.ObservedStore) bool { return w.Agreement == r.Agreement })
		return i < 0 || (was.Stores[i].Problem == "") != (r.Problem == "") || r.Whole && !was.Stores[i].Whole
	})
}

// same reports whether two reports are equal.
func same(a, b federation.Observed) bool {
	return a.Commit == b.Commit && slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.Stores, b.Stores)
}
