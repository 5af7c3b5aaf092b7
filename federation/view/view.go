// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"sync"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

// View is a copy of the registry. See the package comment for its rules and its locking.
type View struct {
	site  string
	kinds map[federation.Kind]bool

	mu      sync.RWMutex
	synced  bool
	listing map[record]bool // what the list of a new watch had so far; nil: no list is under way
	listen  []func(Change)
	changed chan struct{} // closed and replaced by each change

	volumes volumes
	sites   sites
	clients clients
	papers  papers
	lodged  *lodged // nil: something changed since it was looked at
	now     func() time.Time
}

// record names one record of the registry.
type record struct {
	kind federation.Kind
	name string
}

// Change is one change of the view.
type Change struct {
	// Event is what the watch sent. For a record that a new list lacks (view-1) it is a deletion.
	// With Err the record cannot be read: its last readable value stays.
	federation.Event
	// Before and After are the volume that the change is about. nil: nothing is known of it. Both
	// are nil for a kind of record that belongs to no volume, and for admissions and attachments.
	Before, After *Volume
	// Site is the site that the change is about: of a site, heartbeat, admission or attachment, and
	// of a declaration that the site is lost. Empty for other kinds.
	Site string
	// Was is the paper of the exchange that the change is about, before it; nil: there was none.
	Was *paper.Paper
	// Listing: a new watch is still listing everything. KindSynced with Listing ends that list.
	Listing bool
}

// New makes an empty view that keeps records of these kinds. Of claims, admissions and attachments,
// site's own have indexes: see Claimed, Claims and Use.
func New(site string, kinds ...federation.Kind) *View {
	v := &View{site: site, kinds: map[federation.Kind]bool{federation.KindSynced: true}, changed: make(chan struct{}),
		volumes: newVolumes(), sites: newSites(), clients: newClients(), papers: papers{}, now: time.Now}
	for _, k := range kinds {
		v.kinds[k] = true
	}
	return v
}

// SetClock says by which clock agreements are in force. Call it before anything else.
func (v *View) SetClock(now func() time.Time) { v.now = now }

// Listen has f called with every change from now on. The goroutine of Watch calls f without a lock,
// after the change is visible: f may call the view's methods, but must not wait. Call Listen before
// Watch.
func (v *View) Listen(f func(Change)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.listen = append(v.listen, f)
}

// Changed returns a channel that is closed at the next change.
func (v *View) Changed() <-chan struct{} {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.changed
}

// Synced reports whether the view has had everything once. Before that, a record that is missing
// here may exist.
func (v *View) Synced() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.synced
}

// Watch fills the view until ctx ends or the watch fails, and returns why. It may be called again:
// the view keeps what it has, and forgets what vanished meanwhile (view-1).
func (v *View) Watch(ctx context.Context, w federation.Watcher) error {
	v.mu.Lock()
	v.listing = map[record]bool{}
	v.mu.Unlock()
	return w.Watch(ctx, func(e federation.Event) error {
		v.take(e)
		return nil
	})
}

// take applies one event, and then informs listeners and waiters.
func (v *View) take(e federation.Event) {
	if !v.kinds[e.Kind] {
		return
	}
	v.mu.Lock()
	var all []Change
	listing := v.listing != nil
	if e.Kind == federation.KindSynced {
		all = v.forget(e.Revision)
		v.synced = true
		all = append(all, Change{Event: e, Listing: listing})
	} else {
		if listing {
			v.list(e)
		}
		c := v.apply(e)
		c.Listing = listing
		all = []Change{c}
	}
	v.clients.heard(e.Revision)
	listen := v.listen
	v.mu.Unlock()

	for _, c := range all {
		for _, f := range listen {
			f(c)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.changed)
	v.changed = make(chan struct{})
}

// list notes that the list of a new watch has a record. The caller has locked v.mu.
func (v *View) list(e federation.Event) {
	if r := (record{e.Kind, e.Name}); e.Deleted && e.Elsewhere == nil {
		delete(v.listing, r)
	} else {
		v.listing[r] = true
	}
}

// forget deletes what the list of a new watch lacks. The caller has locked v.mu.
func (v *View) forget(at federation.Revision) (all []Change) {
	if v.listing == nil {
		return nil
	}
	var gone []record
	keep := func(kind federation.Kind, name string) {
		if r := (record{kind, name}); !v.listing[r] {
			gone = append(gone, r)
		}
	}
	v.volumes.names(keep)
	v.sites.names(keep)
	v.clients.names(v.site, keep)
	v.papers.names(keep)
	v.listing = nil
	for _, r := range gone {
		all = append(all, v.apply(federation.Event{Kind: r.kind, Name: r.name, Deleted: true, Revision: at}))
	}
	return all
}

// apply changes what is known. The caller has locked v.mu.
func (v *View) apply(e federation.Event) Change {
	c := Change{Event: e}
	if e.Kind == federation.KindVolume || e.Kind == federation.KindPaper {
		v.lodged = nil
	}
	switch e.Kind {
	case federation.KindVolume, federation.KindControl, federation.KindObserved, federation.KindClaim, federation.KindKeyring:
		c.Before, c.After = v.volumes.apply(e, v.site, v.listing != nil)
	case federation.KindPurged:
		if e.Err == nil { // view-2
			put(v.volumes.purges, e.Name, e.Purged)
		}
	case federation.KindSite, federation.KindAlive, federation.KindLost:
		c.Site = v.sites.apply(e)
	case federation.KindAdmission, federation.KindAttachment:
		c.Site = v.clients.apply(e, v.site)
	case federation.KindPaper:
		c.Was = v.papers.apply(e)
	}
	return c
}
