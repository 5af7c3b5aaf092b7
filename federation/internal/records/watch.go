// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/internal/events"
)

// Watch implements federation.Watcher. It ends when the guard refused or accepted the registry:
// then a new watch lists what counts now.
func (r *Registry) Watch(ctx context.Context, fn func(federation.Event) error) error {
	m := listing{kv: r.kv, pause: r.pause, fn: fn, known: map[string]federation.Revision{}}
	return m.run(ctx)
}

// listing is what one watch has sent so far.
type listing struct {
	kv    *keeper
	pause func(context.Context) error
	fn    func(federation.Event) error
	known map[string]federation.Revision
	head  federation.Head
	again bool // it had to list anew already
}

// stopped is an error of fn: it ends the watch.
type stopped struct{ err error }

func (s stopped) Error() string { return s.err.Error() }

func (m *listing) run(ctx context.Context) error {
	for {
		was := m.kv.since()
		err := m.relist(ctx)
		if err == nil {
			err = m.kv.followSince(ctx, was, m.head.Revision, m.follow)
		}
		var s stopped
		if errors.As(err, &s) {
			return s.err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrCompacted) && !m.again {
			m.again = true
			continue
		}
		if !errors.Is(err, ErrCompacted) && !errors.Is(err, federation.ErrUnavailable) {
			return wrap("watch", "registry", "", err)
		}
		if err := m.pause(ctx); err != nil {
			return err
		}
	}
}

// relist lists everything, and sends what differs from what was sent before.
func (m *listing) relist(ctx context.Context) error {
	res, h, err := m.kv.Get(ctx, Read{Prefix: true})
	if err != nil {
		return err
	}
	m.head = h
	there := map[string]bool{}
	res[0] = slices.DeleteFunc(res[0], func(p Pair) bool { return p.Hidden != nil && kindOf(p.Key) != federation.KindVolume })
	for _, p := range res[0] {
		there[p.Key] = true
	}
	gone := []string{}
	for k := range m.known {
		if !there[k] {
			gone = append(gone, k)
		}
	}
	slices.Sort(gone)
	for _, k := range gone {
		if err := m.tell(Pair{Key: k, Deleted: true, Revision: h.Revision}); err != nil {
			return err
		}
	}
	for _, p := range res[0] {
		// Not "older than": the new list may be of a restored registry.
		if m.known[p.Key] != p.version() {
			if err := m.tell(p); err != nil {
				return err
			}
		}
	}
	m.head = h // records of an archive may be of later revisions
	if err := m.fn(federation.Event{Kind: federation.KindSynced, Cluster: h.Cluster, Revision: h.Revision}); err != nil {
		return stopped{err}
	}
	return nil
}

func (m *listing) follow(h federation.Head, pairs []Pair) error {
	if h.Cluster != m.head.Cluster {
		// Another registry answers: its revisions mean something else.
		return ErrCompacted
	}
	for _, p := range pairs {
		if err := m.tell(p); err != nil {
			return err
		}
	}
	return nil
}

func (m *listing) tell(p Pair) error {
	m.head.Revision = max(m.head.Revision, p.Revision)
	if p.Hidden != nil && kindOf(p.Key) != federation.KindVolume {
		p = Pair{Key: p.Key, Revision: p.Revision, Deleted: true} // as far as this organization knows
	}
	if p.Deleted {
		delete(m.known, p.Key)
	} else {
		m.known[p.Key] = p.version()
	}
	e, ok := event(p)
	if !ok {
		return nil
	}
	e.Cluster = m.head.Cluster
	if err := m.fn(e); err != nil {
		return stopped{err}
	}
	return nil
}

// version tells what was sent of a record: at a revision it may have been shown or not.
func (p Pair) version() federation.Revision {
	if p.Hidden != nil {
		return -p.Revision
	}
	return p.Revision
}

// event decodes a pair; false for the indexes, of which no event is sent.
func event(p Pair) (federation.Event, bool) {
	kind, name, _ := strings.Cut(p.Key, "/")
	e := federation.Event{Kind: federation.Kind(kind), Name: name, Deleted: p.Deleted, Revision: p.Revision}
	if p.Hidden != nil { // a volume
		e.Deleted, e.Elsewhere = true, p.Hidden
		return e, true
	}
	ok := events.Fill(&e, func(rec any) error { return p.decode(kind, name, rec) })
	return e, ok
}
