// SPDX-License-Identifier: Apache-2.0

// Package memory is a registry in memory, for tests: one Server, and any number of Clients, each
// with faults of its own. Nothing in it waits or keeps time: a heartbeat lasts until it is stopped
// or Server.Expire is called. It keeps the encoded records, so a record that does not survive
// encoding fails here too.
package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/internal/records"
)

// historyKept is how many revisions a Server keeps for watches before it compacts, as etcd does.
const historyKept = 10_000

// Server is the registry that Clients share. Its methods may be called from many goroutines.
type Server struct {
	mu      sync.Mutex
	cluster uint64
	head    federation.Revision
	pairs   map[string]records.Pair
	owners  map[string]*beat // by key, of leased keys
	past    []change
	first   federation.Revision // the oldest revision in past, less one
	moved   chan struct{}       // closed at every change and fault
}

type change struct {
	rev   federation.Revision
	pairs []records.Pair
}

// NewServer returns an empty registry. Its identity is cluster.
func NewServer(cluster uint64) *Server {
	return &Server{cluster: cluster, pairs: map[string]records.Pair{}, owners: map[string]*beat{}, moved: make(chan struct{})}
}

// New returns a client of a server that nobody else uses.
func New() *Client { return NewServer(1).Client(nil) }

// Compact forgets what happened before now, so that a watch that lags lists anew.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past, s.first = nil, s.head
	s.wake()
}

// Expire ends the heartbeat of a gateway, as if nothing had been heard of it for its ttl.
func (s *Server) Expire(gateway string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := string(federation.KindAlive) + "/" + gateway; s.owners[k] != nil {
		s.apply([]records.Write{{Key: k, Delete: true}})
	}
}

// Backup is a registry's contents at one moment.
type Backup struct {
	cluster uint64
	head    federation.Revision
	pairs   []records.Pair
}

// Backup copies the contents.
func (s *Server) Backup() Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Backup{cluster: s.cluster, head: s.head, pairs: s.match(records.Read{Prefix: true})}
}

// Restore puts the registry back to a backup, with its identity and revision: the accident that
// protocol-7 is about.
func (s *Server) Restore(b Backup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster, s.head, s.first, s.past = b.cluster, b.head, b.head, nil
	s.pairs, s.owners = map[string]records.Pair{}, map[string]*beat{}
	for _, p := range b.pairs {
		s.pairs[p.Key] = p
	}
	s.wake()
}

func (s *Server) wake() {
	close(s.moved)
	s.moved = make(chan struct{})
}

func (s *Server) match(r records.Read) []records.Pair {
	if !r.Prefix {
		p, ok := s.pairs[r.Key]
		if !ok {
			return nil
		}
		return []records.Pair{p}
	}
	var out []records.Pair
	for k, p := range s.pairs {
		if strings.HasPrefix(k, r.Key) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b records.Pair) int { return strings.Compare(a.Key, b.Key) })
	return out
}

func (s *Server) holds(conds []records.Condition) bool {
	for _, c := range conds {
		if c.Prefix && len(s.match(records.Read{Key: c.Key, Prefix: true})) > 0 {
			return false
		}
		if s.pairs[c.Key].Revision != c.Revision {
			return false
		}
	}
	return true
}

// apply makes writes in one new revision.
func (s *Server) apply(writes []records.Write) {
	s.head++
	c := change{rev: s.head}
	for _, w := range writes {
		if !w.Delete {
			p := records.Pair{Key: w.Key, Value: slices.Clone(w.Value), Revision: s.head}
			s.pairs[w.Key] = p
			c.pairs = append(c.pairs, p)
			continue
		}
		for _, p := range s.match(records.Read{Key: w.Key, Prefix: w.Prefix}) {
			delete(s.pairs, p.Key)
			delete(s.owners, p.Key)
			c.pairs = append(c.pairs, records.Pair{Key: p.Key, Revision: s.head, Deleted: true})
		}
	}
	s.past = append(s.past, c)
	if len(s.past) > historyKept {
		s.first, s.past = s.past[0].rev, s.past[1:]
	}
	s.wake()
}

// kv is one client's view.
type kv struct {
	s      *Server
	faults faults
	done   chan struct{}
	once   sync.Once
}

var errDown = fmt.Errorf("%w: it is down; running volumes go on, nothing is created or moved until it is back", federation.ErrUnavailable)

func (c *kv) Get(ctx context.Context, reads ...records.Read) ([][]records.Pair, federation.Head, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.usable(ctx); err != nil {
		return nil, federation.Head{}, err
	}
	out := make([][]records.Pair, len(reads))
	for i, r := range reads {
		out[i] = c.s.match(r)
		for j := range out[i] {
			out[i][j].Value = slices.Clone(out[i][j].Value)
		}
	}
	return out, federation.Head{Cluster: c.s.cluster, Revision: c.s.head}, nil
}

func (c *kv) Commit(ctx context.Context, conds []records.Condition, writes []records.Write) (bool, federation.Head, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.usable(ctx); err != nil {
		return false, federation.Head{}, err
	}
	for i, w := range writes {
		if slices.ContainsFunc(writes[:i], func(x records.Write) bool { return x.Key == w.Key && !x.Prefix && !w.Prefix }) {
			return false, federation.Head{}, fmt.Errorf("%w: duplicate key %s in a transaction, as etcd says", federation.ErrInvalid, w.Key)
		}
	}
	head := func() federation.Head { return federation.Head{Cluster: c.s.cluster, Revision: c.s.head} }
	do := func() bool {
		ok := c.s.holds(conds)
		if ok {
			c.s.apply(writes)
		}
		return ok
	}
	f := c.faults.next()
	switch f {
	case ConflictFault:
		return false, head(), nil
	case UnavailableFault:
		return false, federation.Head{}, errDown
	case UnknownLost, UnknownApplied, UnknownLate:
		if f == UnknownApplied {
			do()
		}
		if f == UnknownLate {
			c.faults.late = append(c.faults.late, func() { do() })
		}
		return false, federation.Head{}, fmt.Errorf("%w: no answer", federation.ErrUnknown)
	}
	ok := do()
	return ok, head(), nil
}

func (c *kv) Follow(ctx context.Context, after federation.Revision, fn func(federation.Head, []records.Pair) error) error {
	for {
		c.s.mu.Lock()
		if err := c.usable(ctx); err != nil {
			c.s.mu.Unlock()
			return err
		}
		if after < c.s.first || after > c.s.head {
			c.s.mu.Unlock()
			return records.ErrCompacted
		}
		var news []change
		for _, ch := range c.s.past {
			if ch.rev > after {
				news = append(news, ch)
			}
		}
		head, moved := federation.Head{Cluster: c.s.cluster, Revision: c.s.head}, c.s.moved
		c.s.mu.Unlock()
		for _, ch := range news {
			if err := fn(head, ch.pairs); err != nil {
				return err
			}
			after = ch.rev
		}
		if len(news) > 0 {
			continue
		}
		if err := c.wait(ctx, moved); err != nil {
			return err
		}
	}
}

// pause waits for anything to change, above all the end of a fault.
func (c *kv) pause(ctx context.Context) error {
	c.s.mu.Lock()
	moved, down := c.s.moved, c.faults.down
	c.s.mu.Unlock()
	if !down {
		return ctx.Err()
	}
	return c.wait(ctx, moved)
}

var errClosed = errors.New("the client is closed")

func (c *kv) wait(ctx context.Context, moved <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return errClosed
	case <-moved:
		return nil
	}
}

// usable is called with the lock held.
func (c *kv) usable(ctx context.Context) error {
	select {
	case <-c.done:
		return errClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.faults.down {
		return errDown
	}
	return nil
}

func (c *kv) Close() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

type beat struct {
	c   *kv
	key string
}

func (c *kv) Lease(ctx context.Context, key string, value []byte, _ time.Duration) (federation.Heartbeat, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	c.s.apply([]records.Write{{Key: key, Value: value}})
	b := &beat{c: c, key: key}
	c.s.owners[key] = b
	return b, nil
}

func (b *beat) Stop(ctx context.Context) error {
	b.c.s.mu.Lock()
	defer b.c.s.mu.Unlock()
	if err := b.c.usable(ctx); err != nil {
		return err
	}
	if b.c.s.owners[b.key] == b {
		b.c.s.apply([]records.Write{{Key: b.key, Delete: true}})
	}
	return nil
}
