// SPDX-License-Identifier: Apache-2.0

package borrowing

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/store"
)

// How many objects of an agreement are put at once, and how many of one volume. Whoever waits
// longest for its turn is next, so volumes take turns with each object.
const (
	putsAtOnce   = 8
	putsOfVolume = 4
)

// filling is a volume of which something is being put.
type filling struct {
	l     *lease
	c     *copies.Copy
	epoch uint64
	all   []log.SegmentInfo // what is sealed and committed

	mu    sync.Mutex
	at    replica.StoreAt
	there []bool // of all
	next  int    // the first of them that is not there
	err   error
}

// turn has what is missing of a volume put there, oldest first, unless that is under way, and says
// how far that came.
func (l *lease) turn(ctx context.Context, c *copies.Copy, puts *sync.WaitGroup) {
	l.mu.Lock()
	busy := l.busy[c.UUID]
	l.mu.Unlock()
	use, done, err := c.Use(ctx)
	if err != nil {
		return // it is closed just now
	}
	f := &filling{l: l, c: c, at: replica.StoreAt{Agreement: l.terms.ID, Site: l.terms.Site}}
	var leads bool
	f.epoch, leads = c.Leading()
	if busy || !leads || l.seen[c.UUID] != f.epoch { // what its former home deleted may be on the list
		done()
		return
	}
	commit := c.Replica.Status().Commit
	for _, s := range c.Log.Segments() {
		if commit.Less(endOf(s)) {
			break
		}
		f.all = append(f.all, s)
	}
	f.there = make([]bool, len(f.all))
	l.mu.Lock()
	for i, s := range f.all {
		size, there := l.listed[c.UUID][s.Name]
		f.there[i] = there && uint64(size) == s.Len
	}
	l.mu.Unlock()
	f.pass()
	if f.next == len(f.all) {
		l.reached(c.UUID, f.at)
		done()
		return
	}
	l.b.begins(c.UUID, f.at)
	l.mu.Lock()
	l.busy[c.UUID] = true
	l.mu.Unlock()
	puts.Go(func() {
		err := f.fill(use)
		done()
		l.notes(ctx, c.UUID, err)
		if err != nil {
			l.b.wait(ctx, failAgain)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.busy, c.UUID)
	})
}

func endOf(s log.SegmentInfo) log.Position { return log.Position{Seq: s.Seq, Off: s.Len} }

// pass moves the end of what is there over what came. f.mu is held, or nobody else has f yet.
func (f *filling) pass() {
	for f.next < len(f.all) && f.there[f.next] {
		f.at.End = endOf(f.all[f.next])
		f.next++
	}
}

// fill puts what is missing there, and says how far that came.
func (f *filling) fill(ctx context.Context) error {
	var puts sync.WaitGroup
	mine := make(chan struct{}, putsOfVolume)
	for i, s := range f.all {
		if f.has(i) {
			continue
		}
		select {
		case mine <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil || !f.l.slot(ctx) {
			break
		}
		if !f.goesOn() {
			<-f.l.slots
			break
		}
		puts.Go(func() {
			err := f.l.put(ctx, f.c, s)
			<-f.l.slots
			f.came(i, err)
			<-mine
		})
	}
	puts.Wait()
	if ctx.Err() != nil {
		return nil // the copy is closed, or all ends
	}
	f.tells()
	return f.err
}

// tells says how far the volume is there, if its home has been here all the time: others may have
// deleted what was there before. f.mu is held, or nothing is being put.
func (f *filling) tells() {
	if epoch, leads := f.c.Leading(); leads && epoch == f.epoch {
		f.l.reached(f.c.UUID, f.at)
	}
}

// slot waits until an object may be put, and reports whether ctx goes on.
func (l *lease) slot(ctx context.Context) bool {
	for ctx.Err() == nil {
		select {
		case l.slots <- struct{}{}:
		case <-ctx.Done():
			return false
		}
		l.mu.Lock()
		met := l.met
		l.mu.Unlock()
		if met == nil {
			return true
		}
		<-l.slots // both sides meet first
		select {
		case <-met:
		case <-ctx.Done():
		}
	}
	return false
}

func (f *filling) has(i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.there[i]
}

// goesOn reports whether another object may be put: nothing failed, the home is here, and the
// volume's record still names the agreement.
func (f *filling) goesOn() bool {
	f.mu.Lock()
	failed := f.err != nil
	f.mu.Unlock()
	epoch, leads := f.c.Leading()
	return !failed && leads && epoch == f.epoch && f.c.MayServe() == nil && f.l.wants(f.c.UUID)
}

// came notes how a segment's way there ended.
func (f *filling) came(i int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		if f.err == nil {
			f.err, f.at.Problem = err, err.Error()
		}
		return
	}
	f.there[i] = true
	f.pass()
	if f.err == nil {
		f.tells()
	}
}

// putTime bounds one object's way, and stuckTime how long none of it may go (borrowing-4): writers
// wait for a store that takes segments.
const (
	putTime   = 10 * time.Minute
	stuckTime = 10 * time.Second
)

// put puts a segment there.
func (l *lease) put(ctx context.Context, c *copies.Copy, s log.SegmentInfo) error {
	l.mu.Lock()
	writes, why := l.life.Writes(l.b.cfg.Now()), l.life.Why
	l.mu.Unlock()
	if !writes {
		return fmt.Errorf("agreement %s takes nothing any more: %s", l.terms.ID, why)
	}
	ctx, cancel := context.WithTimeout(ctx, putTime)
	defer cancel()
	if err := c.Log.Heal(ctx, s.Seq); err != nil {
		return fmt.Errorf("read segment %s: %w", s.Name, err)
	}
	stuck := l.b.cfg.Timers.AfterFunc(stuckTime, cancel)
	defer stuck.Stop()
	body := file{c.Log, s.Seq, func() {
		stuck.Reset(stuckTime)
		l.b.goes(c.UUID, l.terms.ID)
	}}
	err := l.room.Put(ctx, s.Name, int64(s.Len), io.NewSectionReader(body, 0, int64(s.Len)))
	if !s.Local { // it was brought back for this
		c.Replica.Evict(s.Seq, func() {})
	}
	if err != nil {
		return err
	}
	l.b.cfg.Logger.Debug("segment is in a borrowed store", "segment", s.Name, "bytes", s.Len, "agreement", l.terms.ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listed[c.UUID] == nil {
		l.listed[c.UUID] = map[string]int64{}
	}
	l.listed[c.UUID][s.Name] = int64(s.Len)
	if l.came != nil {
		l.came = append(l.came, store.Info{Name: s.Name, Size: int64(s.Len)})
	}
	return nil
}

// file reads a segment's file, and tells each time.
type file struct {
	log  *log.Log
	seq  uint64
	read func()
}

func (f file) ReadAt(p []byte, off int64) (int, error) {
	f.read()
	return f.log.ReadSegmentFile(f.seq, p, off)
}
