// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/volume"
)

// Server is the part of the NFS server that this package needs.
type Server interface {
	// Expel returns when clients that may not use a volume have no opens, locks or requests there
	// any more.
	Expel(ctx context.Context, id volume.ID) error
}

// Expeller ends the opens and locks of clients that lost their admission in the registry, or whose
// site lost its grant, so that others get the locks. When a volume is deleted, it ends all of them.
// Nodes.Revoke does the same for a node that is detached, and returns when it is done.
type Expeller struct {
	site   string
	server Server
	logger *slog.Logger
	wake   chan struct{} // buffer of one

	mu    sync.Mutex
	ended map[string]bool // volumes at which an admission has ended
	busy  map[string]bool // volumes that are being expelled from
}

// NewExpeller returns an Expeller for a site's admissions in the view. Call it before the view's
// watch begins.
func NewExpeller(site string, v *view.View, server Server, logger *slog.Logger) *Expeller {
	e := &Expeller{site: site, server: server, logger: logger, wake: make(chan struct{}, 1), ended: map[string]bool{},
		busy: map[string]bool{}}
	v.Listen(e.heard)
	return e
}

// heard records the volume at which an admission has ended.
func (e *Expeller) heard(c view.Change) {
	switch c.Kind {
	case federation.KindAdmission, federation.KindAttachment:
		if site, volume, ok := useOf(c.Name); ok && c.Deleted && site == e.site {
			e.end(volume)
		}
	case federation.KindVolume:
		served := c.Before != nil && c.Before.Record != nil && !c.Before.Record.Deleted
		gone := c.After == nil || c.After.Record == nil || c.After.Record.Deleted
		// A grant that was taken back may have been this site's.
		if served && (gone || c.Before.Record.Owner != c.After.Record.Owner ||
			!slices.Equal(c.Before.Record.Grants, c.After.Record.Grants)) {
			e.end(c.Name)
		}
	}
}

// useOf splits "site/volume/who".
func useOf(name string) (site, volume string, ok bool) {
	parts := strings.SplitN(name, "/", 3)
	if len(parts) != 3 {
		return "", "", false // the registry has no such names
	}
	return parts[0], parts[1], true
}

func (e *Expeller) end(volume string) {
	e.mu.Lock()
	e.ended[volume] = true
	e.mu.Unlock()
	e.look()
}

// look wakes Run.
func (e *Expeller) look() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// begin returns the volumes at which an admission has ended since it returned them last. It does
// not return a volume again before finish.
func (e *Expeller) begin() (volumes []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.ended {
		if !e.busy[id] {
			e.busy[id] = true
			delete(e.ended, id)
			volumes = append(volumes, id)
		}
	}
	return volumes
}

// finish lets begin return a volume again, if another admission has ended meanwhile.
func (e *Expeller) finish(volume string) {
	e.mu.Lock()
	delete(e.busy, volume)
	e.mu.Unlock()
	e.look()
}

// Run expels until ctx ends.
func (e *Expeller) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	for ctx.Err() == nil {
		for _, id := range e.begin() {
			work.Go(func() {
				e.expel(ctx, id)
				e.finish(id)
			})
		}
		select {
		case <-e.wake:
		case <-ctx.Done():
		}
	}
}

// expelWithin bounds one attempt of expel, after which it checks whether there is still something
// to do.
const expelWithin = 10 * time.Second

// expel returns when clients that may not use a volume have no opens or locks there any more. If
// the volume was deleted, these are all clients.
func (e *Expeller) expel(ctx context.Context, id string) {
	for warned := false; ctx.Err() == nil; warned = true {
		within, cancel := context.WithTimeout(ctx, expelWithin)
		err := e.server.Expel(within, volumeID(id))
		cancel()
		if err == nil {
			return
		}
		if !warned && ctx.Err() == nil {
			e.logger.Warn("clients that may not use a volume any more still hold something of it", "volume", id, "error", err)
		}
	}
}
