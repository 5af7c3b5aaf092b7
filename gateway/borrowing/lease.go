// SPDX-License-Identifier: Apache-2.0

package borrowing

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/store"
)

// lease is an agreement that can be used.
type lease struct {
	b        *Borrower
	terms    paper.Terms
	endpoint string
	room     Room
	end      context.CancelFunc

	mu     sync.Mutex
	life   paper.Life
	listed map[string]map[string]int64 // sizes of objects by volume and name, as far as is known
	came   []store.Info                // was put while it is being listed; nil: it is not
	busy   map[string]bool             // volumes of which something is being put
	failed map[string]string           // what was logged, by volume; "": of all else
	met    chan struct{}               // is closed when both sides have met; nil: they do not meet now

	slots chan struct{} // one for each object that is being put

	// Used by run only.
	whole    bool              // listed has had everything
	again    bool              // an object may be there that listed does not have
	listedAt time.Time         // when that was
	seen     map[string]uint64 // epoch of each volume's home here when everything was listed
	purged   map[string]bool   // volumes whose objects this gateway was to delete then
	soon     time.Time         // when it is looked again whether the list is old
	swept    string            // the last volume that was looked at, to delete
	told     paper.Counters    // to the registry
	toldAt   time.Time
	counted  paper.Counters // when the store was met
	metAt    time.Time
}

func newLease(b *Borrower, terms paper.Terms, endpoint string, room Room, life paper.Life) *lease {
	return &lease{b: b, terms: terms, endpoint: endpoint, room: room, life: life, listed: map[string]map[string]int64{},
		busy: map[string]bool{}, failed: map[string]string{}, slots: make(chan struct{}, putsAtOnce)}
}

func (l *lease) set(life paper.Life) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.life = life
}

// has reports whether the store has something of a volume, as far as is known.
func (l *lease) has(uuid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.listed[uuid]) > 0
}

// How often both sides meet, when something was done: later while objects are being put, which wait
// for it. And how often counts are told: at once if much changed (paper.Much), or when the
// agreement ends.
const (
	meetEvery = time.Minute
	meetBusy  = 15 * time.Minute
	tellEvery = time.Hour
	tellSoon  = 5 * time.Second
	failAgain = 5 * time.Second
	// askTime bounds a deletion. Lists and counts are bounded by the room.
	askTime = time.Minute
)

// run does what there is to do under the agreement, until ctx ends.
func (l *lease) run(ctx context.Context) {
	var puts sync.WaitGroup
	defer puts.Wait()
	for ctx.Err() == nil {
		pause := lookEvery
		err := l.look(ctx, &puts)
		if err != nil {
			pause = failAgain
		}
		l.notes(ctx, "", err)
		l.b.wait(ctx, pause)
	}
}

// notes logs what failed of a volume, once; "": of all else.
func (l *lease) notes(ctx context.Context, volume string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		delete(l.failed, volume)
	case ctx.Err() == nil && err.Error() != l.failed[volume]:
		l.failed[volume] = err.Error()
		l.b.cfg.Logger.Warn("borrowed room does not take or give what it should; it is tried again", "agreement", l.terms.ID,
			"host", l.terms.Host, "site", l.terms.Site, "error", err)
	}
}

// look does it once. What is put goes on after it.
func (l *lease) look(ctx context.Context, puts *sync.WaitGroup) error {
	err := l.list(ctx)
	for _, c := range l.wanting() {
		if err == nil {
			l.turn(ctx, c, puts)
		} else {
			l.reached(c.UUID, replica.StoreAt{Agreement: l.terms.ID, Site: l.terms.Site, Problem: err.Error()})
		}
	}
	if err == nil {
		err = l.sweep(ctx)
	}
	return errors.Join(err, l.count(ctx))
}

// wanting are the copies that are home here, of volumes that are to be in this store.
func (l *lease) wanting() []*copies.Copy {
	return slices.DeleteFunc(l.b.copies.Leading(), func(c *copies.Copy) bool { return c.Blind() || !l.wants(c.UUID) })
}

// wants reports whether a volume's record names the agreement, as far as is known here.
func (l *lease) wants(uuid string) bool {
	v, ok := l.b.cfg.View.Record(uuid)
	return ok && slices.Contains(v.Stores, l.terms.ID)
}

// reached notes how far the store has a volume's log. A lease that ended says nothing any more.
func (l *lease) reached(uuid string, at replica.StoreAt) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.b.leases[l.terms.ID] != l {
		return
	}
	if l.b.at[uuid] == nil {
		l.b.at[uuid] = map[string]replica.StoreAt{}
	}
	l.b.at[uuid][at.Agreement] = at
	l.b.when[[2]string{uuid, at.Agreement}] = l.b.cfg.Now()
}

// count has both sides meet, and tells what was counted.
func (l *lease) count(ctx context.Context) error {
	now := l.b.cfg.Now()
	of := func() paper.Counters {
		c := l.b.ledger.Of(l.terms.ID)[l.b.cfg.Gateway].Counters
		c.ByteHours = 0
		return c
	}
	l.mu.Lock()
	empty, life := len(l.listed) == 0, l.life
	l.mu.Unlock()
	is := of()
	// When the agreement ends, what is there is told anew: nothing, at last.
	noticed := ends(life.Phase) && life.Breach != paper.Host && l.toldAt.Before(life.Ends.Add(-time.Duration(l.terms.Notice)))
	theirs, at := l.byHost()
	if empty && is == (paper.Counters{}) && theirs == is && !noticed {
		return nil // it never used any
	}
	var failed error
	since, pause := now.Sub(l.metAt), meetEvery
	if len(l.slots) > 0 {
		pause = meetBusy
	}
	fewer := at.After(l.metAt) && theirs.Stored < is.Stored // another may have deleted it
	if meets(life.Phase, is, l.counted, since, pause) || fewer && since >= pause {
		l.metAt = now // also if it fails: puts wait for it
		if failed = l.meet(ctx); failed == nil {
			is = of()
			l.counted = is
		}
	}
	more := paper.Much(l.terms.Amount, l.told.Stored, is.Stored)
	since = now.Sub(l.toldAt)
	if since < tellSoon || !more && !noticed && since < tellEvery {
		return failed
	}
	err := l.room.Tell(ctx)
	if err == nil {
		l.told, l.toldAt = is, now
	}
	return errors.Join(failed, err)
}

// byHost is what the host has said last that this gateway did, and when.
func (l *lease) byHost() (paper.Counters, time.Time) {
	p, ok := l.b.cfg.View.Paper(paper.UsageName(l.terms.ID, paper.Host, l.terms.Site))
	if !ok || p.Usage == nil {
		return paper.Counters{}, time.Time{}
	}
	c := p.Usage.Of[l.b.cfg.Gateway]
	c.ByteHours = 0
	return c, p.Usage.At
}

// ends reports whether what is there is to go.
func ends(p paper.Phase) bool { return p == paper.Ending || p == paper.Breached }

// meets reports whether both sides are to meet, that long after they last did: when something was
// done, and hourly. While an agreement ends, others of this organization may delete what this
// gateway has there: then it counts anew until nothing is left.
func meets(phase paper.Phase, is, counted paper.Counters, since, pause time.Duration) bool {
	return (is != counted || ends(phase) && is.Stored > 0) && since >= pause || since >= tellEvery
}

// meet has both sides meet, when nothing is being put: what is under way ends before, and nothing
// begins meanwhile.
func (l *lease) meet(ctx context.Context) error {
	met := make(chan struct{})
	l.mu.Lock()
	l.met = met
	l.mu.Unlock()
	var held int
	defer func() {
		l.mu.Lock()
		l.met = nil
		l.mu.Unlock()
		close(met)
		for range held {
			<-l.slots
		}
	}()
	for ; held < cap(l.slots); held++ {
		select {
		case l.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return l.room.Count(ctx)
}
