// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"sync"

	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/locktable"
)

// Copy is the part of the volume's copy at this gateway that its locks need.
type Copy interface {
	// GetAttr is as in volume.Reader.
	GetAttr(ctx context.Context, r volume.Request, h volume.Handle) (volume.Attr, error)
	// MayServe is as in journal.Journal.
	MayServe() error
	// Leading returns the epoch in which this gateway is the home; false: it is not.
	Leading() (epoch uint64, ok bool)
}

// Config has what a Table needs.
type Config struct {
	Volume  string // UUID
	Gateway string // this one
	View    *view.View
	Copy    Copy
}

// Table has the locks of a volume while this gateway is its home. It also knows which changes of
// other gateways are under way here. Its methods may be called from many goroutines.
type Table struct {
	cfg Config

	mu         sync.Mutex
	reign      uint64 // epoch; 0 while not home
	table      locktable.Table
	registered map[string]*registration // by gateway
	granted    history
	complete   map[string]uint64 // see freeing
	running    map[*change]struct{}
}

// registration is what a gateway has registered in this reign.
type registration struct {
	newest  forward.Registration
	ready   bool // its clients have reclaimed what they held
	changes bool // its changes belong to registrations too
	// known: the table has what the gateway held, also what its former process did, and the gateway
	// knows what of that is lost.
	known bool
	// base is the serial of the last grant at the time when the table last had all that the gateway
	// held, before it was known. It has lost what others were granted since.
	base uint64
}

// NewTable returns the table of a gateway that is not the home.
func NewTable(cfg Config) *Table { return &Table{cfg: cfg, running: map[*change]struct{}{}} }

// Begin begins a reign. It waits for changes of a former reign, whose gateways rely on their having
// ended with it (locks-4). It returns only the error of ctx.
func (t *Table) Begin(ctx context.Context, epoch uint64) error {
	if err := await(ctx, t.stop()); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reign, t.table, t.registered = epoch, locktable.Table{}, map[string]*registration{}
	t.granted, t.complete = history{}, map[string]uint64{}
	return nil
}

// End ends the reign. It does not wait for changes that are under way.
func (t *Table) End() { t.stop() }

// stop ends the reign and returns the changes that are still under way.
func (t *Table) stop() []*change {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reign, t.granted = 0, history{} // which may be large
	return t.cancel("")
}

// grace reports whether locks may exist that are not in the table (locks-1). The caller holds mu.
func (t *Table) grace() bool {
	living, synced := t.cfg.View.Living()
	if !synced {
		return true // it is not known which gateways live
	}
	for _, gateway := range append(living, t.cfg.Gateway) { // this gateway lives, though its heartbeat may be late
		if reg := t.registered[gateway]; Uses(t.cfg.View, t.cfg.Volume, gateway) && (reg == nil || !reg.ready && !reg.known) {
			return true
		}
	}
	return false
}

// Uses reports whether a gateway's clients may use a volume, according to the view.
func Uses(v *view.View, volume, gateway string) bool {
	_, site, ok := v.Gateway(gateway)
	return ok && v.MayUse(volume, site.Name)
}

// Reads reports whether a gateway may read the volume, according to the view.
func Reads(v *view.View, volume, gateway string) bool {
	_, site, ok := v.Gateway(gateway)
	return ok && v.MayRead(volume, site.Name)
}

// gone reports whether others may be granted the locks of a gateway's clients, because its
// heartbeat has ended, or because the volume's owner took back what its site was granted: nothing
// that it sends is executed any more.
func (t *Table) gone(gateway string) bool {
	if gateway == t.cfg.Gateway {
		return false
	}
	_, site, known := t.cfg.View.Gateway(gateway)
	return t.cfg.View.Gone(gateway) || known && t.cfg.View.Forbidden(t.cfg.Volume, site.Name)
}

// freeing calls f. If f conflicts with locks of a gateway that is gone, freeing removes those and
// calls f again. The caller holds mu.
func (t *Table) freeing(f func() error) error {
	for {
		err := f()
		var conflict *volume.LockConflict
		if !errors.As(err, &conflict) || !t.gone(conflict.Held.Owner.Gateway) {
			return err
		}
		gone := conflict.Held.Owner.Gateway
		t.table.ReleaseGateway(gone)
		// If the table had all that the gateway held, it has lost what is granted from here on.
		if reg := t.registered[gone]; reg != nil && reg.known {
			t.complete[gone] = t.granted.serial
		}
		delete(t.registered, gone) // it has to register to learn what it still has
	}
}
