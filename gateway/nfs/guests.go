// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/weir-storage/weir/gateway/nfs/state"
	"github.com/weir-storage/weir/gateway/nfs/state/share"
	"github.com/weir-storage/weir/volume"
)

// guests counts the requests to each volume, so that Expel can wait for their end.
type guests struct {
	mu      sync.Mutex
	present map[guestKey]*guest
	leaving map[*guest]guestKey           // expelled, with requests that still run
	jobs    map[volume.ID][]chan struct{} // each is closed when its locks are released
	ending  sync.Mutex                    // locked by endOpens; before Table's mutexes and mu
}

type guestKey struct {
	client netip.Addr
	volume volume.ID
}

// guest has the requests of one client to one volume, until the client is expelled
// from it. Later requests belong to another guest.
type guest struct {
	expelled context.Context // ends when it is expelled, or when the server does
	expel    context.CancelFunc
	inside   int           // requests; guarded by guests.mu
	empty    chan struct{} // closed when the last one has left, once it is expelled
	did      did
}

func (g *guests) init() {
	g.present, g.leaving, g.jobs = map[guestKey]*guest{}, map[*guest]guestKey{}, map[volume.ID][]chan struct{}{}
}

// enter counts a request of key until leave.
func (g *guests) enter(server context.Context, key guestKey) *guest {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.present[key]
	if x == nil {
		x = &guest{empty: make(chan struct{})}
		x.expelled, x.expel = context.WithCancel(server)
		g.present[key] = x
	}
	x.inside++
	return x
}

// leave ends one enter. A guest that was refused is forgotten, so that clients without
// admission take no memory.
func (g *guests) leave(key guestKey, x *guest, refused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x.inside--; x.inside > 0 {
		return
	}
	if _, ok := g.leaving[x]; ok {
		delete(g.leaving, x)
		close(x.empty)
	} else if refused && g.present[key] == x {
		delete(g.present, key)
		x.expel()
	}
}

// expel ends the guests that may not use a volume any more. It returns all expelled
// guests of the volume with requests that still run.
func (g *guests) expel(id volume.ID, refused func(netip.Addr) bool) (running []*guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, x := range g.present {
		if key.volume == id && refused(key.client) {
			delete(g.present, key)
			x.expel()
			if x.inside > 0 {
				g.leaving[x] = key
			}
		}
	}
	for x, key := range g.leaving {
		if key.volume == id {
			running = append(running, x)
		}
	}
	return running
}

// Expel ends the access of all clients that Exports does not admit to the volume any
// more, or of all clients if the volume was deleted. When it returns nil, none of their
// requests runs any more, and their opens and locks are released: nothing that they
// asked for changes the volume, and others can get the locks. Their opens and locks on
// other volumes stay. If ctx ends before, the error says what is left, and Expel may be
// called again.
func (s *Server) Expel(ctx context.Context, id volume.ID) error {
	refused := func(client netip.Addr) bool {
		_, _, err := s.cfg.Exports.Open(client, id)
		return errors.Is(err, ErrNotAdmitted) || errors.Is(err, ErrDeleted)
	}
	running := s.guests.expel(id, refused)
	for i, x := range running {
		select {
		case <-x.empty:
		case <-ctx.Done():
			return fmt.Errorf("requests of %d clients to volume %s, which they may not use any more, still run: %w",
				len(running)-i, id, ctx.Err())
		}
	}
	s.endOpens(id, refused)
	for _, job := range s.guests.jobsOf(id) {
		select {
		case <-job:
		case <-ctx.Done():
			return fmt.Errorf("locks of clients that may not use volume %s any more are not released yet: %w", id, ctx.Err())
		}
	}
	return nil
}

// endOpens ends the opens and locks of refused clients on a volume. jobsOf then
// returns the job that releases them.
func (s *Server) endOpens(id volume.ID, refused func(client netip.Addr) bool) {
	s.guests.ending.Lock()
	defer s.guests.ending.Unlock()
	_, _, err := s.cfg.Exports.Open(netip.Addr{}, id)
	ended := s.table.Expel(id, errors.Is(err, ErrDeleted), func(client string) bool {
		addr, err := netip.ParseAddr(client)
		return err != nil || refused(addr)
	})
	if len(ended) > 0 {
		s.cfg.Log.Info("opens and locks of clients end: they may not use the volume any more", "volume", id, "opens", len(ended))
		s.releaseOf(id, ended)
	}
}

// releaseOf is release as a job of jobsOf.
func (s *Server) releaseOf(id volume.ID, ended []state.Ended) {
	done := make(chan struct{})
	s.guests.mu.Lock()
	s.guests.jobs[id] = append(s.guests.jobs[id], done)
	s.guests.mu.Unlock()
	s.background(func() {
		if s.releaseAll(ended) {
			close(done)
		}
	})
}

// jobsOf returns the releases of a volume that are not done. It forgets the others.
func (g *guests) jobsOf(id volume.ID) (left []chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, job := range g.jobs[id] {
		select {
		case <-job:
		default:
			left = append(left, job)
		}
	}
	if len(left) == 0 {
		delete(g.jobs, id)
	} else {
		g.jobs[id] = left
	}
	return left
}

// guestOf is one volume that a request uses.
type guestOf struct {
	key guestKey
	*guest
	refused bool
	stay    *share.Stay // nil without a session
	// until ends when the guest is expelled, or when the client loses its lease.
	until context.Context
	end   context.CancelFunc // ends until
}

// visit counts the request among the volume's guests until it ends. It must count
// before Exports is asked: if a client loses its admission after that, Expel finds its
// request here.
func (k *call) visit(id volume.ID) *guestOf {
	key := guestKey{k.conn.addr, id}
	for _, g := range k.guests {
		if g.key == key {
			return g
		}
	}
	g := &guestOf{key: key, guest: k.s.guests.enter(k.s.ctx, key)}
	g.until, g.end = context.WithCancel(g.expelled)
	k.guests = append(k.guests, g)
	return g
}

// share counts the request's slot as held for g's volume. It returns false if the volume holds its
// share of the session's slots already. While requests of a volume end that is used alone, it waits
// for one of them instead.
func (k *call) share(g *guestOf) (ok bool) {
	if k.use == nil || g.stay != nil {
		return true
	}
	if k.yield == nil {
		k.yield, k.giveUp = context.WithCancel(context.Background())
	}
	for {
		now := k.s.cfg.Clock.Now()
		stay, full := k.use.Session.Shares.Enter(g.key.volume, now, share.Asks{GiveUp: k.giveUp, Revoke: g.end})
		if g.stay = stay; stay != nil {
			return true
		}
		select {
		case <-full.Left:
		case <-k.s.cfg.Clock.After(full.Until.Sub(now)):
			if full.Left == nil {
				return false
			}
		case <-g.until.Done():
			return false
		}
	}
}

// leave ends all visits.
func (k *call) leave() {
	for _, g := range k.guests {
		if g.stay != nil {
			g.stay.Leave(k.s.cfg.Clock.Now())
		}
		g.end()
		k.s.guests.leave(g.key, g.guest, g.refused)
	}
	k.guests = nil
	if k.giveUp != nil {
		k.giveUp()
	}
}

// revoked is volume.Request.Revoked of an operation on the current file.
func (k *call) revoked() context.Context {
	for _, g := range k.guests {
		if g.guest == k.cur.guest {
			return g.until
		}
	}
	return nil
}

// untilRevoked is the context of an operation on the current file that takes no
// volume.Request. It ends when the client is expelled from the volume, or loses its lease.
func (k *call) untilRevoked() context.Context {
	if until := k.revoked(); until != nil {
		return until
	}
	return k.s.ctx
}

// expelled returns an error if the client was expelled from a volume that the request
// uses: the error that PUTFH would get now. Else it returns nil.
func (k *call) expelled() error {
	for _, g := range k.guests {
		if g.guest.expelled.Err() == nil || k.s.ctx.Err() != nil {
			continue
		}
		if _, _, err := k.s.cfg.Exports.Open(g.key.client, g.key.volume); err != nil {
			return err
		}
		return ErrNotAdmitted // although it may be admitted again by now
	}
	return nil
}
