// SPDX-License-Identifier: Apache-2.0

// Package ledger counts what is stored and done under agreements: at a lent store for all gateways
// of its guests, and at a guest's gateway for itself (ADR 35).
//
//   - ledger-1: room is reserved before an object comes, so that however many come at once, no more
//     is stored than is allowed.
//   - ledger-2: what is stored is counted again from a list of the objects when the ledger was
//     opened. So what changed after the last save is not lost.
//   - ledger-3: calls of after the last save are lost with the process: then the account is torn.
//     So it is if a call's outcome is not known.
//     If the file is lost, everything but what is stored is: then it is lost. Both end when the two
//     sides meet: each then takes what the other counted more.
//   - ledger-4: time counts only forwards.
package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// Account is what was counted of one gateway under one agreement.
type Account struct {
	paper.Counters
	Objects int64 `json:"objects"`
	// At is up to when bytes times time are counted.
	At time.Time `json:"at"`
	// Torn and Lost are ledger-3. Taken is when something was last taken from the other side; zero:
	// never.
	Torn  bool      `json:"torn,omitempty"`
	Lost  bool      `json:"lost,omitempty"`
	Taken time.Time `json:"taken,omitzero"`

	pending quantity.Bytes // reserved
}

// Tally is what a list of objects shows of one gateway.
type Tally struct {
	Objects int64
	Bytes   quantity.Bytes
}

// Limit is how much may be stored: by all gateways of an agreement, and by one.
type Limit struct{ Amount, Room quantity.Bytes }

// ErrRoom is wrapped by errors about objects for which there is no room.
var ErrRoom = errors.New("no room")

// file is a ledger on disk.
type file struct {
	Version int `json:"version"`
	// Clean: the process ended after it had saved this.
	Clean    bool                           `json:"clean"`
	Accounts map[string]map[string]*Account `json:"accounts"` // by agreement and gateway
}

// Ledger is one. Its methods may be called from many goroutines.
type Ledger struct {
	path string
	now  func() time.Time

	mu  sync.Mutex
	all map[string]map[string]*Account
	// fresh: there was no file. torn: who wrote it ended without saving. What this process meets
	// first may have been counted before.
	fresh, torn bool
	dirty       bool
	saved       bool // by this process
}

// Open reads the ledger at a path, or begins it. A file that cannot be read is kept beside the new
// one, which then begins.
func Open(path string, now func() time.Time) (*Ledger, error) {
	l := &Ledger{path: path, now: now, all: map[string]map[string]*Account{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		l.fresh = true
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil || f.Version != 1 {
		if f.Version > 1 {
			return nil, fmt.Errorf("ledger %s has version %d, this program knows 1: upgrade this program", path, f.Version)
		}
		l.fresh = true
		return l, os.Rename(path, path+".damaged")
	}
	for agreement, by := range f.Accounts {
		l.all[agreement] = by
		for gateway, a := range by {
			if a == nil { // it says nothing
				delete(by, gateway)
				continue
			}
			a.Torn = a.Torn || !f.Clean
		}
	}
	l.torn = !f.Clean
	if f.Clean { // from now on it is not
		return l, l.save(false)
	}
	return l, nil
}

// of returns an account. l.mu is held.
func (l *Ledger) of(agreement, gateway string) *Account {
	by := l.all[agreement]
	if by == nil {
		by = map[string]*Account{}
		l.all[agreement] = by
	}
	a := by[gateway]
	if a == nil {
		a = &Account{At: l.now(), Lost: l.fresh, Torn: l.torn}
		by[gateway] = a
	}
	return a
}

// pass counts bytes times time until now. l.mu is held.
func (l *Ledger) pass(a *Account) {
	if now := l.now(); now.After(a.At) {
		a.ByteHours += float64(a.Stored) * now.Sub(a.At).Hours()
		a.At = now
	}
}

// Recount takes in what a list of an agreement's objects shows, by gateway, before anything else is
// counted of it (ledger-2).
func (l *Ledger) Recount(agreement string, found map[string]Tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gateways := map[string]bool{}
	for g := range found {
		gateways[g] = true
	}
	for g := range l.all[agreement] {
		gateways[g] = true
	}
	for g := range gateways {
		a, is := l.of(agreement, g), found[g]
		if more := is.Objects - a.Objects; more > 0 { // who deleted those that are missing is not known
			a.Puts += more
			a.In += max(is.Bytes-a.Stored, 0)
		}
		if a.Stored != is.Bytes || a.Objects != is.Objects {
			a.Stored, a.Objects, l.dirty = is.Bytes, is.Objects, true
		}
		l.pass(a)
	}
}

// An account may have mostObjects objects, and one more for each leastMean bytes of the agreement.
const (
	mostObjects = 4096
	leastMean   = 64 << 10
)

// Reserve keeps room for an object (ledger-1). done is called once: with true when it is stored.
func (l *Ledger) Reserve(agreement, gateway string, size quantity.Bytes, limit Limit) (done func(stored bool), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(agreement, gateway)
	all := quantity.Bytes(0)
	for _, x := range l.all[agreement] {
		all += x.Stored + x.pending
	}
	switch {
	case size < 0:
		return nil, fmt.Errorf("%w: an object of %d bytes", ErrRoom, size)
	case a.Objects >= mostObjects+int64(limit.Amount)/leastMean:
		return nil, fmt.Errorf("%w: %d objects, and %d are the most of gateway %s: put fewer, larger ones", ErrRoom, a.Objects,
			mostObjects+int64(limit.Amount)/leastMean, gateway)
	case size > limit.Room-a.Stored-a.pending:
		return nil, fmt.Errorf("%w: %d bytes more than the %d that gateway %s may fill of the agreement, of which %d are", ErrRoom,
			int64(size),
			int64(limit.Room), gateway, int64(a.Stored+a.pending))
	case size > limit.Amount-all:
		return nil, fmt.Errorf("%w: %d bytes more than the %d of the agreement, of which %d are filled", ErrRoom, int64(size),
			int64(limit.Amount), int64(all))
	}
	a.pending += size
	return func(stored bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		a.pending -= size
		if !stored {
			return
		}
		l.pass(a)
		a.Puts++
		a.Objects++
		a.In += size
		a.Stored += size
		l.dirty = true
	}, nil
}

// Read counts a read of that many bytes, by a gateway.
func (l *Ledger) Read(agreement, by string, n quantity.Bytes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(agreement, by)
	a.Gets++
	a.Out += n
	l.dirty = true
}

// Deleted counts that a gateway deleted an object of a size, in the folder of the same gateway or
// of another.
func (l *Ledger) Deleted(agreement, by, folder string, size quantity.Bytes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(agreement, by).Deletes++
	a := l.of(agreement, folder)
	l.pass(a)
	a.Stored = max(a.Stored-size, 0)
	a.Objects = max(a.Objects-1, 0)
	l.dirty = true
}

// Floor takes what this side has signed as counted before, as far as it is more.
func (l *Ledger) Floor(agreement, gateway string, signed paper.Counters) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(agreement, gateway)
	was := a.Counters
	a.Puts, a.Gets, a.Deletes = max(a.Puts, signed.Puts), max(a.Gets, signed.Gets), max(a.Deletes, signed.Deletes)
	a.In, a.Out, a.ByteHours = max(a.In, signed.In), max(a.Out, signed.Out), max(a.ByteHours, signed.ByteHours)
	l.dirty = l.dirty || a.Counters != was
}

// Doubt notes that a call's outcome is not known: the other side may have counted it.
func (l *Ledger) Doubt(agreement, gateway string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(agreement, gateway).Torn = true
	l.dirty = true
}

// Meet takes what the other side counted more of a gateway, if this side has lost some of its own
// (ledger-3), and returns what this side has then.
func (l *Ledger) Meet(agreement, gateway string, theirs paper.Counters) Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(agreement, gateway)
	l.pass(a)
	if (a.Torn || a.Lost) && theirs.Check() == nil {
		was := a.Counters
		a.Puts, a.Gets, a.Deletes = max(a.Puts, theirs.Puts), max(a.Gets, theirs.Gets), max(a.Deletes, theirs.Deletes)
		a.In, a.Out = max(a.In, theirs.In), max(a.Out, theirs.Out)
		if a.Lost {
			a.ByteHours = max(a.ByteHours, theirs.ByteHours)
		}
		if a.Counters != was {
			a.Taken = l.now().UTC().Truncate(time.Second)
		}
		a.Torn, a.Lost, l.dirty = false, false, true
	}
	return *a
}

// Of returns what was counted of an agreement up to now, by gateway.
func (l *Ledger) Of(agreement string) map[string]Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]Account{}
	for g, a := range l.all[agreement] {
		l.pass(a)
		out[g] = *a
	}
	return out
}

// Agreements are those of which something was counted.
func (l *Ledger) Agreements() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]string, 0, len(l.all))
	for id := range maps.Keys(l.all) {
		out = append(out, id)
	}
	return out
}

// Forget drops an agreement that is over.
func (l *Ledger) Forget(agreement string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, agreement)
	l.dirty = true
}

// Save writes the ledger if something changed since the last time.
func (l *Ledger) Save() error { return l.save(false) }

// Close saves the ledger, so that nothing is missing when it is opened again.
func (l *Ledger) Close() error { return l.save(true) }

func (l *Ledger) save(clean bool) error {
	l.mu.Lock()
	if !l.dirty && !clean && l.saved {
		l.mu.Unlock()
		return nil
	}
	l.saved = true
	for _, by := range l.all {
		for _, a := range by {
			l.pass(a)
		}
	}
	text, err := json.Marshal(file{Version: 1, Clean: clean, Accounts: l.all})
	l.dirty = false
	l.mu.Unlock()
	if err == nil {
		err = Replace(l.path, text)
	}
	if err != nil {
		l.mu.Lock()
		l.dirty = true
		l.mu.Unlock()
	}
	return err
}

// Replace writes a file anew, durably: all of it, or nothing.
func Replace(path string, text []byte) error {
	next := path + ".next"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
