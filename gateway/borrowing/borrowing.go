// SPDX-License-Identifier: Apache-2.0

// Package borrowing has the sealed segments of volumes in stores that other organizations lend to
// this gateway's (ADR 35, 37). The volume's home puts them there, reads them if nobody nearer has
// them, and deletes them when the volume is to have them elsewhere and has.
//
// # Rules
//
//   - borrowing-1: only what is sealed and committed is put there, and is verified before: a store
//     never replaces an object (protocol-9).
//   - borrowing-2: a lent store counts for lag, and never acknowledges (protocol-10).
//   - borrowing-3: what a volume has in a store that its record names no more is deleted when the
//     registry itself says so, and every copy and store that the record names has everything. What
//     a purged volume has there is deleted when the registry itself says that it was purged. Both
//     are looked at again before each object.
//   - borrowing-4: nobody waits for a lent store that does not take anything. The volume's status
//     says why.
//
// A Borrower has one goroutine for each agreement that can be used, and while something is put one
// for each volume and each object. Its methods may be called from many goroutines.
package borrowing

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/exchange/borrowed"
	"github.com/weir-storage/weir/exchange/ledger"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/store"
)

// Room is a lent store under one agreement: borrowed.Store.
type Room interface {
	store.Store
	// Count meets the store about what was counted.
	Count(ctx context.Context) error
	// Tell writes what was counted into the registry.
	Tell(ctx context.Context) error
}

// Config has what a Borrower needs.
type Config struct {
	Gateway, Organization string
	View                  *view.View
	Registry              federation.Registry
	Credentials           *pki.Credentials
	Dir                   string // of this gateway alone, durable: for what it counted
	Now                   func() time.Time
	Timers                clockwork.Clock
	Logger                *slog.Logger
	// Open opens the room of an agreement; nil: at its host's store.
	Open func(terms paper.Terms, endpoint string) (Room, error)
}

// Borrower keeps volumes' segments in lent stores.
type Borrower struct {
	cfg    Config
	copies *copies.Manager
	ledger *ledger.Ledger

	mu     sync.Mutex
	leases map[string]*lease                     // by agreement, of those that can be used
	at     map[string]map[string]replica.StoreAt // by volume and agreement
	when   map[[2]string]time.Time               // something went, or was looked at, of a volume and an agreement
}

// New makes a Borrower, which reads what it counted before.
func New(cfg Config) (*Borrower, error) {
	counted, err := ledger.Open(filepath.Join(cfg.Dir, "borrowed.ledger"), cfg.Now)
	if err != nil {
		return nil, err
	}
	b := &Borrower{cfg: cfg, ledger: counted, leases: map[string]*lease{}, at: map[string]map[string]replica.StoreAt{},
		when: map[[2]string]time.Time{}}
	if cfg.Open == nil {
		b.cfg.Open = func(t paper.Terms, endpoint string) (Room, error) {
			return borrowed.New(borrowed.Config{Agreement: t.ID, Guest: t.Guest, Host: t.Host, Site: t.Site, Endpoint: endpoint,
				Gateway: cfg.Gateway, Credentials: cfg.Credentials, Ledger: counted, Book: cfg.View.Book(cfg.Registry), Now: cfg.Now})
		}
	}
	return b, nil
}

// lookEvery is how often a Borrower looks what there is to do, and saveEvery how often it saves
// what it counted.
const (
	lookEvery = time.Second
	saveEvery = time.Minute
)

// Run keeps what copies of this gateway are to have in lent stores there, until ctx ends.
func (b *Borrower) Run(ctx context.Context, copies *copies.Manager) {
	b.copies = copies
	var work sync.WaitGroup
	saved := b.cfg.Now()
	for ctx.Err() == nil {
		for _, l := range b.open() {
			lease, end := context.WithCancel(ctx)
			l.end = end
			work.Go(func() { l.run(lease) })
		}
		b.note()
		if now := b.cfg.Now(); now.Sub(saved) >= saveEvery {
			saved = now
			b.save(b.ledger.Save)
		}
		b.wait(ctx, lookEvery)
	}
	work.Wait()
	b.save(b.ledger.Close)
}

func (b *Borrower) save(how func() error) {
	if err := how(); err != nil {
		b.cfg.Logger.Warn("what is used of borrowed room is not saved; it is counted again", "error", err)
	}
}

func (b *Borrower) wait(ctx context.Context, d time.Duration) {
	select {
	case <-b.cfg.Timers.After(d):
	case <-ctx.Done():
	}
}

// open returns the leases that are new. Those that can not be used any more end.
func (b *Borrower) open() (all []*lease) {
	if !b.cfg.View.Synced() {
		return nil
	}
	now := b.cfg.Now()
	usable := map[string]bool{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.cfg.View.Papers(string(paper.FormRequest) + "/") {
		r := p.Request
		if r == nil || r.Guest != b.cfg.Organization || r.Kind != paper.KindStore {
			continue
		}
		a, _ := b.cfg.View.Paper(paper.AnswerName(r.ID))
		life := r.Life(a.Answer, now)
		if a.Answer == nil || a.Answer.Ready == nil || !life.Reads() {
			continue
		}
		endpoint := a.Answer.Ready.Endpoint
		if l := b.leases[r.ID]; l != nil && l.endpoint == endpoint {
			usable[r.ID] = true
			l.set(life)
			continue
		}
		if b.leases[r.ID] != nil {
			continue // the room has moved: the next look opens it anew
		}
		room, err := b.cfg.Open(r.Terms, endpoint)
		if err != nil {
			b.cfg.Logger.Warn("borrowed room cannot be used", "agreement", r.ID, "host", r.Host, "error", err)
			continue
		}
		l := newLease(b, r.Terms, endpoint, room, life)
		b.leases[r.ID], usable[r.ID] = l, true
		all = append(all, l)
	}
	for id, l := range b.leases {
		if !usable[id] {
			l.end()
			delete(b.leases, id)
			for _, at := range b.at {
				delete(at, id)
			}
		}
	}
	return all
}

// note tells the volumes whose home is here how far their lent stores are.
func (b *Borrower) note() {
	led := map[string]bool{}
	for _, c := range b.copies.Leading() {
		v, ok := b.cfg.View.Record(c.UUID)
		if !ok {
			continue
		}
		led[c.UUID] = true
		var all []replica.StoreAt
		b.mu.Lock()
		for _, id := range v.Stores {
			at, known := b.at[c.UUID][id]
			if !known || b.leases[id] == nil { // what was known before counts no more
				at = replica.StoreAt{Agreement: id, Problem: b.unusable(id)}
			}
			at.Idle = b.cfg.Now().Sub(b.when[[2]string{c.UUID, id}]) > idleTime
			all = append(all, at)
		}
		b.mu.Unlock()
		c.Replica.NoteStores(all)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.at {
		if !led[id] {
			delete(b.at, id)
		}
	}
	maps.DeleteFunc(b.when, func(k [2]string, _ time.Time) bool { return !led[k[0]] })
}

// idleTime is after how long a volume's writers do not wait for a store that does something else.
const idleTime = 15 * time.Second

// goes notes that something of a volume goes to an agreement's store, or that there is nothing to.
func (b *Borrower) goes(uuid, agreement string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.when[[2]string{uuid, agreement}] = b.cfg.Now()
}

// unusable says why an agreement's room has nothing yet. The caller holds b.mu.
func (b *Borrower) unusable(id string) string {
	if b.leases[id] != nil {
		return "it is being looked what is there"
	}
	r, ok := b.cfg.View.Paper(paper.RequestName(id))
	if !ok {
		return "this site is not shown the agreement"
	}
	a, _ := b.cfg.View.Paper(paper.AnswerName(id))
	life := r.Request.Life(a.Answer, b.cfg.Now())
	return string(life.Phase) + ": " + life.Why
}

// begins notes how much is there of a volume that is being put into a store, if nothing was known
// yet, or more: something is lost there.
func (b *Borrower) begins(uuid string, at replica.StoreAt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if is, known := b.at[uuid][at.Agreement]; known && !at.End.Less(is.End) {
		return
	}
	if b.at[uuid] == nil {
		b.at[uuid] = map[string]replica.StoreAt{}
	}
	b.at[uuid][at.Agreement] = at
}

// forgets has nothing known any more of what a volume has in a store. If its record names the
// agreement again, it is looked.
func (b *Borrower) forgets(uuid, agreement string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.at[uuid], agreement)
}

// Sources are the lent stores that may have segments of a volume.
func (b *Borrower) Sources(uuid string) (out []log.Source) {
	v, _ := b.cfg.View.Record(uuid)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(b.leases)) {
		if l := b.leases[id]; slices.Contains(v.Stores, id) || l.has(uuid) {
			out = append(out, source{l})
		}
	}
	return out
}

// source is a lent store as a source of segments.
type source struct{ l *lease }

// String implements log.Source.
func (s source) String() string {
	return "store lent by " + s.l.terms.Host + " at site " + s.l.terms.Site
}

// ReadSegment implements log.Source.
func (s source) ReadSegment(ctx context.Context, name string, off int64, p []byte) error {
	return s.l.room.GetRange(ctx, name, off, p)
}
