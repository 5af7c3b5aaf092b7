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
	"syscall"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/fair"
	"github.com/weir-storage/weir/gateway/nfs/state"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/track"
	"github.com/weir-storage/weir/volume"
)

// Clock is the server's time. The server compares results of Now only with each other.
type Clock interface {
	Now() time.Time
	// After returns a channel that receives once d has passed.
	After(d time.Duration) <-chan time.Time
}

// defaultLease is the lease time of a Config without Lease.
const defaultLease = 60 * time.Second

// Config is what a Server needs. All fields but Lease are required.
type Config struct {
	Gateway string // this gateway's name in volume.LockOwner
	// ServerOwner is so_major_id. It differs between service addresses, and is the same
	// after a restart (nfs-4).
	ServerOwner string
	ServerScope string        // the federation's
	Boot        uint64        // grows with every start of this gateway
	Lease       time.Duration // how long a silent client keeps its state (state-4)
	// Memory is how many bytes clients may take in all: requests, replies, sessions, opens and
	// locks. 0: 192 MiB.
	Memory  int
	Exports Exports
	State   state.Store // keeps what must survive a restart
	Clock   Clock
	Rand    io.Reader // random, for ids
	Log     *slog.Logger
	// Observe is told of each operation that was executed. nil: nobody is. It must not block.
	Observe func(Operation)
	Slow    time.Duration // an operation that takes as long is logged; 0: none is
	Tracer  track.Tracer  // nil: nobody follows requests
	// StartTLS makes a connection one of TLS, at a client's wish (RFC 9289), and names the
	// certificate that counts here and that the client showed; "": none. nil: there is no TLS. The
	// server closes what it returns. It must not wait for a client for long.
	StartTLS func(context.Context, net.Conn) (secured net.Conn, certificate string, err error)
}

// Operation is one operation of a COMPOUND that was executed.
type Operation struct {
	Op     xdr.Op
	Volume string // its name; empty for what is of no volume
	// Refused is the volume that was asked for and could not be entered; zero: there is none.
	Refused volume.ID
	Busy    bool // that one holds its share of the client's slots
	Status  xdr.Status
	Took    time.Duration // with all that it waited for
	Bytes   int           // of a file that were read or written
}

// Counters are totals since the start.
type Counters struct {
	Requests   uint64          // RPC calls
	Operations uint64          // operations of COMPOUNDs
	Errors     uint64          // operations that did not return NFS4_OK
	Repeats    uint64          // requests that were answered from a slot
	Dropped    uint64          // requests that were not answered, because their outcome is not known
	Panics     uint64          // operations that a mistake in this program ended
	Refused    [Reasons]uint64 // requests and connections that were refused before they were executed
}

// ClientCounts is what clients have at one moment.
type ClientCounts struct{ Connections, Clients, Sessions, Slots, SlotsUsed, Opens, Locks int }

// Server is an NFSv4.1 and 4.2 server.
type Server struct {
	cfg     Config
	table   *state.Table
	started time.Time
	seed    maphash.Seed
	refused refusals
	guests  guests
	calls   calls
	slow    *track.Slow
	paths   paths

	ctx    context.Context // of all operations; ends with the server (nfs-5)
	cancel context.CancelFunc
	work   sync.WaitGroup // connections and background work

	mu        sync.Mutex
	closing   bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	addresses map[netip.Addr]int // of conns
	strangers int                // of conns
	connRoom  *fair.Room[netip.Addr]

	setups                 setups
	requestRoom, replyRoom *fair.Room[netip.Addr] // in bytes, for those under way

	requests, operations, errors, repeats, dropped, panics atomic.Uint64
	refusedFor                                             [Reasons]atomic.Uint64
}

// New returns a server that continues from the records in cfg.State. Errors name the
// field of cfg that is missing, or the record that cannot be read.
func New(cfg Config) (*Server, error) {
	if cfg.Lease == 0 {
		cfg.Lease = defaultLease
	}
	if cfg.Memory == 0 {
		cfg.Memory = defaultMemory
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
		addresses: map[netip.Addr]int{}, connRoom: fair.New[netip.Addr](maxAllConns),
		requestRoom: fair.New[netip.Addr](cfg.Memory / 4), replyRoom: fair.New[netip.Addr](cfg.Memory / 4),
	}
	s.guests.init()
	s.calls.all = map[*call]struct{}{}
	s.slow = &track.Slow{After: cfg.Slow, Log: cfg.Log, Now: cfg.Clock.Now}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var err error
	s.table, err = state.New(state.Config{
		Boot: cfg.Boot, Lease: cfg.Lease, States: cfg.Memory / 8 * 3, Sessions: cfg.Memory / 8,
		Store: cfg.State, Now: cfg.Clock.Now, Rand: cfg.Rand, Log: cfg.Log,
		Ended:  s.ended,
		Forget: func(f state.Forgotten) { s.background(func() { s.forget(f) }) },
	})
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("new nfs server: %w", err)
	}
	s.background(s.sweep)
	return s, nil
}

// background runs f on a goroutine that Shutdown waits for. After Shutdown began it
// does nothing.
func (s *Server) background(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.work.Go(f)
	}
}

// sweep calls Table.Sweep a few times per lease. It leaves one out when the process was
// stopped for longer than half a lease: renewals may then wait to be read, and the
// clients were not silent.
func (s *Server) sweep() {
	last := s.started
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.cfg.Clock.After(s.cfg.Lease / 8):
			now := s.cfg.Clock.Now()
			stopped := now.Sub(last)
			last = now
			if stopped > s.cfg.Lease/2 {
				s.cfg.Log.Warn("the nfs server did not run for a while: leases are checked later", "stopped", stopped)
				continue
			}
			s.table.Sweep()
			s.closeStuck()
		}
	}
}

// closeStuck closes connections that do not get on. What waits on them takes memory, and a client
// can ask again on another connection.
func (s *Server) closeStuck() {
	now := s.cfg.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if why := c.stuck(now); why != "" && !c.cut {
			c.cut = true
			s.refusedFor[Idle].Add(1)
			if s.refused.first(c.name+" "+why, now) {
				s.cfg.Log.Warn("nfs connection closed: "+why, "client", c.addr)
			}
			c.disconnect()
		} else if c.strange && c.session.Load() != nil {
			c.strange = false // it was admitted meanwhile
			s.strangers--
		}
	}
}

// ErrServerClosed is returned by Serve after Shutdown.
var ErrServerClosed = errors.New("nfs server is shut down")

// Serve accepts connections from l until Shutdown, and closes l. It may be called for
// several listeners. After Shutdown it returns ErrServerClosed.
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
			if !passes(err) {
				return fmt.Errorf("accept nfs connection on %s: %w", l.Addr(), err)
			}
			if s.refused.first("accept", s.cfg.Clock.Now()) {
				s.cfg.Log.Warn("nfs connections cannot be accepted for now; trying again", "error", err)
			}
			select {
			case <-s.cfg.Clock.After(acceptAgain):
			case <-s.ctx.Done():
			}
			continue
		}
		s.serveConn(nc)
	}
}

// acceptAgain is the wait after a connection could not be accepted.
const acceptAgain = 100 * time.Millisecond

// passes reports whether an error of Accept is about one connection, or about what the machine
// lacks for a while: files, memory, buffers.
func passes(err error) bool {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return true
	}
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ECONNABORTED, syscall.ECONNRESET,
		syscall.EPROTO, syscall.EPERM, syscall.EINTR, syscall.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// serveConn serves one connection in the background, and closes it at its end.
func (s *Server) serveConn(nc net.Conn) {
	c := newConn(s, nc)
	c.strange = len(s.cfg.Exports.Exports(c.addr)) == 0 // a certificate comes later
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		_ = nc.Close() // nothing was said on it
		return
	}
	if limit, ok := s.roomForConn(c); !ok {
		s.refusedFor[Connections].Add(1)
		if s.refused.first(c.addr.String()+" connections", s.cfg.Clock.Now()) {
			s.cfg.Log.Warn("nfs connection refused: there are too many", "client", c.addr, "limit", limit)
		}
		_ = nc.Close() // nothing was said on it
		return
	}
	s.conns[c] = struct{}{}
	s.work.Go(c.serve)
}

// left forgets a connection that has ended.
func (s *Server) left(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.leftConn(c)
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// Shutdown stops accepting, closes all connections, and cancels the operations under
// way. It returns when they have ended, or when ctx ends. Clients keep their state: it
// is recorded, and the next server lets them reclaim it.
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

// RevokeLocks takes a lock-owner's locks on a file away, because the volume could not
// keep them. owner is the one that the server passed to Volume.SetLock. Uses of the
// stateid are answered NFS4ERR_ADMIN_REVOKED. In the background, Volume.Unlock releases
// what the volume still has of them. RevokeLocks does not wait and calls no volume, so
// the caller may have mutexes locked. It returns false if the owner has no locks there.
func (s *Server) RevokeLocks(id volume.ID, h volume.Handle, owner volume.LockOwner) bool {
	ended, ok := s.table.RevokeLocks(state.FileKey{Volume: id, Handle: h}, owner)
	if ok {
		s.cfg.Log.Warn("locks are revoked: the volume could not keep them", "volume", id, "inode", h.Ino)
		s.background(func() { s.release(ended) })
	}
	return ok
}

// tracks reports whether somebody wants to know where the time of operations goes.
func (s *Server) tracks() bool { return s.cfg.Slow > 0 || s.cfg.Tracer != nil }

// Waiting counts, by name of the volume, the requests that have not been answered for longer than
// the given time.
func (s *Server) Waiting(longer time.Duration) map[string]int {
	now := s.cfg.Clock.Now()
	out := map[string]int{}
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	for k := range s.calls.all {
		if d := k.doing.Load(); d != nil && now.Sub(d.since) > longer {
			out[d.volume]++
		}
	}
	return out
}

// InGrace tells whether the grace period lasts, in which clients reclaim opens and
// locks.
func (s *Server) InGrace() bool { return s.table.InGrace() }

// Counters returns totals since the start.
func (s *Server) Counters() Counters {
	c := Counters{Requests: s.requests.Load(), Operations: s.operations.Load(), Errors: s.errors.Load(), Repeats: s.repeats.Load(),
		Dropped: s.dropped.Load(), Panics: s.panics.Load()}
	for r := range s.refusedFor {
		c.Refused[r] = s.refusedFor[r].Load()
	}
	bounds := s.table.Refused()
	c.Refused[Clients], c.Refused[Sessions] = bounds[state.BoundClients], bounds[state.BoundSessions]
	c.Refused[States] = bounds[state.BoundStates]
	return c
}

// ClientCounts counts what clients have now.
func (s *Server) ClientCounts() (n ClientCounts) {
	s.mu.Lock()
	n.Connections = len(s.conns)
	s.mu.Unlock()
	for _, c := range s.table.Clients() {
		n.Clients++
		n.Sessions += c.Sessions
		n.Slots += c.Slots
		n.SlotsUsed += c.Executing
		n.Opens += c.Opens
		n.Locks += c.Locks
	}
	return n
}
