// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/state"
	"github.com/weir-storage/weir/volume"
)

// Clock is the server's time. Now is compared only with other results of Now.
type Clock interface {
	Now() time.Time
	// After returns a channel that receives once d has passed.
	After(d time.Duration) <-chan time.Time
}

// defaultLease is the lease time of a Config that gives none.
const defaultLease = 60 * time.Second

// Config is what a Server needs. All fields but Lease are required.
type Config struct {
	Gateway     string        // this gateway's name towards volumes, in lock owners
	ServerOwner string        // so_major_id: distinct per service address, stable over restarts (rule 27)
	ServerScope string        // the federation's
	Boot        uint64        // grows with every start of this gateway
	Lease       time.Duration // how long a silent client keeps its state, and the longest grace
	Exports     Exports
	State       state.Store // keeps what must survive a restart
	Clock       Clock
	Rand        io.Reader // random, for ids
	Log         *slog.Logger
}

// Counters are totals since the start.
type Counters struct {
	Requests   uint64 // RPC calls
	Operations uint64 // operations of COMPOUNDs
	Errors     uint64 // operations that did not return NFS4_OK
	Repeats    uint64 // requests that were answered from a slot
	Dropped    uint64 // requests that were not answered, because their outcome is not known
}

// Server is an NFSv4.1 and 4.2 server.
type Server struct {
	cfg     Config
	table   *state.Table
	started time.Time
	seed    maphash.Seed
	refused refusals
	guests  guests

	ctx    context.Context // of all operations; ends with the server
	cancel context.CancelFunc
	work   sync.WaitGroup // connections and background work

	mu        sync.Mutex
	closing   bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	addresses map[netip.Addr]int // of conns

	requests, operations, errors, repeats, dropped atomic.Uint64
}

// New returns a server that goes on where the one before it left off, as
// recorded in cfg.State. Errors name the field of cfg that is missing or the
// record that cannot be read.
func New(cfg Config) (*Server, error) {
	if cfg.Lease == 0 {
		cfg.Lease = defaultLease
	}
	for _, f := range []struct {
		name    string
		missing bool
	}{
		{"Gateway", cfg.Gateway == ""}, {"ServerOwner", cfg.ServerOwner == ""}, {"ServerScope", cfg.ServerScope == ""},
		{"Boot", cfg.Boot == 0}, {"Exports", cfg.Exports == nil}, {"State", cfg.State == nil},
		{"Clock", cfg.Clock == nil}, {"Rand", cfg.Rand == nil}, {"Log", cfg.Log == nil},
	} {
		if f.missing {
			return nil, fmt.Errorf("new nfs server: %s is not set: set it", f.name)
		}
	}
	s := &Server{
		cfg: cfg, started: cfg.Clock.Now(), seed: maphash.MakeSeed(),
		listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{},
		addresses: map[netip.Addr]int{},
	}
	s.guests.init()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var err error
	s.table, err = state.New(state.Config{
		Boot: cfg.Boot, Lease: cfg.Lease, Store: cfg.State, Now: cfg.Clock.Now, Rand: cfg.Rand, Log: cfg.Log,
		Ended:  func(e []state.Ended) { s.background(func() { s.release(e...) }) },
		Forget: func(f state.Forgotten) { s.background(func() { s.forget(f) }) },
	})
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("new nfs server: %w", err)
	}
	s.background(s.sweep)
	return s, nil
}

// background runs f until it returns; after Shutdown began it does nothing.
func (s *Server) background(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.work.Go(f)
	}
}

// sweep lets time pass for the state table, and not while the process did not run:
// then renewals wait to be read, and nobody was silent.
func (s *Server) sweep() {
	last := s.started
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.cfg.Clock.After(s.cfg.Lease / 8):
			now := s.cfg.Clock.Now()
			pause := now.Sub(last)
			last = now
			if pause > s.cfg.Lease/2 {
				s.cfg.Log.Warn("the nfs server did not run for a while: leases are looked at later", "pause", pause)
				continue
			}
			s.table.Sweep()
			s.closeStuck()
		}
	}
}

// closeStuck closes connections whose client has not read a reply for a lease: what waits
// to be written takes memory, and the client asks again on another connection.
func (s *Server) closeStuck() {
	now := s.cfg.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if t := c.writing.Load(); t != nil && now.Sub(*t) > s.cfg.Lease {
			s.cfg.Log.Warn("nfs connection closed: the client does not read its replies", "client", c.addr)
			c.disconnect()
		}
	}
}

// ErrServerClosed is returned by Serve after Shutdown.
var ErrServerClosed = errors.New("nfs server is shut down")

// Serve accepts connections from l until Shutdown, and closes l. It may be
// called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return errors.Join(ErrServerClosed, l.Close())
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		_ = l.Close() // Shutdown may have closed it
	}()
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.ctx.Err() != nil || s.isClosing() {
				return ErrServerClosed
			}
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				continue
			}
			return fmt.Errorf("accept nfs connection on %s: %w", l.Addr(), err)
		}
		s.serveConn(nc)
	}
}

// serveConn serves one connection in the background, and closes it.
func (s *Server) serveConn(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		_ = nc.Close() // nothing was said on it
		return
	}
	if s.addresses[c.addr] >= maxConns {
		if s.refused.first(c.addr.String()+" connections", s.cfg.Clock.Now()) {
			s.cfg.Log.Warn("nfs connection refused: this client has too many", "client", c.addr, "limit", maxConns)
		}
		_ = nc.Close() // nothing was said on it
		return
	}
	s.conns[c] = struct{}{}
	s.addresses[c.addr]++
	s.work.Go(c.serve)
}

// left forgets a connection that has ended.
func (s *Server) left(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.addresses[c.addr]--; s.addresses[c.addr] == 0 {
		delete(s.addresses, c.addr)
	}
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// Shutdown stops accepting, closes all connections, cancels the operations
// that run and waits for their end, or for ctx. Clients keep their state: it is
// recorded, and the next server lets them reclaim it.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	for l := range s.listeners {
		_ = l.Close() // Serve reports
	}
	for c := range s.conns {
		c.disconnect()
	}
	s.mu.Unlock()
	s.cancel()
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shut down nfs server: operations still run: %w", ctx.Err())
	}
}

// Clients lists the clients that the server knows.
func (s *Server) Clients() []state.ClientInfo { return s.table.Clients() }

// RevokeLocks takes away what one lock-owner holds on a file of a volume, because the volume could not keep it: its client is
// told (NFS4ERR_ADMIN_REVOKED) when it uses it, and what is left of the owner's locks there is given up by
// Volume.Unlock in the background. owner is as the server gave it to Volume.SetLock. It does not wait and calls no volume, so the
// caller may hold locks of its own. It returns false if the owner holds nothing there.
func (s *Server) RevokeLocks(id volume.ID, h volume.Handle, owner volume.LockOwner) bool {
	ended, ok := s.table.RevokeLocks(state.FileKey{Volume: id, Handle: h}, owner)
	if ok {
		s.cfg.Log.Warn("locks are revoked: the volume could not keep them", "volume", id, "inode", h.Ino)
		s.background(func() { s.release(ended) })
	}
	return ok
}

// InGrace tells whether clients are reclaiming opens and locks.
func (s *Server) InGrace() bool { return s.table.InGrace() }

// Counters returns totals since the start.
func (s *Server) Counters() Counters {
	return Counters{s.requests.Load(), s.operations.Load(), s.errors.Load(), s.repeats.Load(), s.dropped.Load()}
}
