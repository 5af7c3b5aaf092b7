// SPDX-License-Identifier: Apache-2.0

// Package lodging has the part of a host's gateway in agreements about room that is no store's:
// about copies of other organizations' volumes, and about its cache pools (ADR 39). It counts what
// is taken, and deletes what is left when an agreement is over.
//
//   - lodging-1: what is counted is how much room volumes take by their sizes, or by what they
//     reserve, as long as their records say so. Of copies only those count that are on the pools.
//   - lodging-2: what the gateway said last is its account: it goes on from there after a restart,
//     since what is on the disks stays there meanwhile.
//   - lodging-3: it says that all was deleted when the host deletes, and nothing is left of any
//     volume of the guest that was here: no copy, none that was set aside, and nothing in the
//     site's store. What is here by another right stays.
package lodging

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/pools"
	"github.com/weir-storage/weir/store"
)

// Config has what a Host needs.
type Config struct {
	Gateway, Site, Organization string
	By                          string // the URI of its certificate
	View                        *view.View
	Registry                    federation.Registry
	Copies                      *copies.Manager
	Pools                       *pools.Pools
	Store                       store.Store // of the site; nil: it has none
	Now                         func() time.Time
	Timers                      clockwork.Clock
	Logger                      *slog.Logger
}

// Host counts for agreements of which this gateway's site is the host.
type Host struct {
	cfg    Config
	failed map[string]string // what was logged, by agreement
}

// New makes a Host.
func New(cfg Config) *Host { return &Host{cfg: cfg, failed: map[string]string{}} }

// lookEvery is how often it looks what there is to say, and eraseTime bounds a look at what is to
// be deleted.
const (
	lookEvery = 5 * time.Second
	eraseTime = 5 * time.Minute
)

// Run counts, until ctx ends.
func (h *Host) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if h.cfg.View.Synced() {
			h.look(ctx)
		}
		select {
		case <-h.cfg.Timers.After(lookEvery):
		case <-ctx.Done():
		}
	}
}

func (h *Host) look(ctx context.Context) {
	for _, p := range h.cfg.View.Papers(string(paper.FormRequest) + "/") {
		r := p.Request
		if r == nil || r.Host != h.cfg.Organization || r.Site != h.cfg.Site || r.Kind == paper.KindStore {
			continue
		}
		a, _ := h.cfg.View.Paper(paper.AnswerName(r.ID))
		if a.Answer == nil || a.Answer.Ready == nil || !r.Agrees(a.Answer) || a.Answer.Deleted != nil {
			continue
		}
		err := h.agreement(ctx, r, a.Answer)
		switch {
		case err == nil:
			delete(h.failed, r.ID)
		case ctx.Err() == nil && h.failed[r.ID] != err.Error():
			h.failed[r.ID] = err.Error()
			h.cfg.Logger.Warn("what an agreement asks of this gateway is not done yet; it is tried again", "agreement", r.ID,
				"guest", r.Guest, "error", err)
		}
	}
}

// agreement counts for one agreement, and says it when it is time for that.
func (h *Host) agreement(ctx context.Context, r *paper.Request, a *paper.Answer) error {
	name := paper.UsageName(r.ID, paper.Host, h.cfg.Gateway)
	is, _ := h.cfg.View.Paper(name)
	if is.Usage != nil && is.Usage.Erased != nil {
		return nil
	}
	if a.Deleting != nil && r.Kind == paper.KindCopy {
		return h.erase(ctx, r, is)
	}
	taken, err := h.taken(r)
	if err != nil {
		return err
	}
	u, wait := r.Lodged(h.cfg.Gateway, h.cfg.Organization, is.Usage, taken, h.cfg.Now())
	if u == nil || wait > 0 {
		return nil
	}
	return h.say(ctx, is, u)
}

// say writes what was counted in place of what was said before.
func (h *Host) say(ctx context.Context, before paper.At, u *paper.Usage) error {
	return h.cfg.Registry.PutPapers(ctx, paper.At{Paper: paper.Paper{Usage: u}, Revision: before.Revision})
}

// taken is how much is taken here: of the cache pools, this gateway's part.
func (h *Host) taken(r *paper.Request) (federation.Bytes, error) {
	if r.Kind == paper.KindCache {
		_, site, _ := h.cfg.View.Gateway(h.cfg.Gateway)
		all := min(h.cfg.View.Lodged(r, nil), r.Amount)
		return all / federation.Bytes(max(len(site.Gateways), 1)), nil
	}
	held, err := h.cfg.Copies.Held()
	if err != nil {
		return 0, err
	}
	return h.cfg.View.Lodged(r, func(v *view.Volume) bool { return held[v.UUID] }), nil
}

// erase deletes what is left of the guest's volumes, and says so when it is gone. Open copies the
// Manager closes and deletes.
func (h *Host) erase(ctx context.Context, r *paper.Request, before paper.At) error {
	ctx, cancel := context.WithTimeout(ctx, eraseTime)
	defer cancel()
	site, known := h.cfg.View.Site(h.cfg.Site)
	if err := h.cfg.Registry.Trusted(); err != nil || !known {
		return err
	}
	there, err := h.cfg.Pools.ListVolumes()
	if err != nil {
		return err
	}
	for _, id := range there {
		if _, ok := h.cfg.View.Purged(id); ok {
			return fmt.Errorf("volume %s was purged, and is not gone yet", id)
		}
	}
	held, err := h.cfg.Copies.Held()
	if err != nil {
		return err
	}
	var objects int64
	var bytes federation.Bytes
	all, _ := h.cfg.View.Volumes()
	for _, v := range all {
		is := v.Record
		if is == nil || is.Owner != r.Guest || !slices.Contains(slices.Concat(is.Former, is.Sites), h.cfg.Site) ||
			slices.Contains(is.Sites, h.cfg.Site) && !h.cfg.View.Evicts(site, *is, h.cfg.Now()) { // it is here by another right
			continue
		}
		if err := h.gone(ctx, is, held[is.UUID]); err != nil {
			return fmt.Errorf("volume %s: %w", is.Name, err)
		}
		objects++
		bytes += is.Spec.Size
	}
	now := h.cfg.Now().UTC().Truncate(time.Second)
	u, _ := r.Lodged(h.cfg.Gateway, h.cfg.Organization, before.Usage, 0, now)
	if u == nil {
		u = &paper.Usage{ID: r.ID, Guest: r.Guest, Host: r.Host, By: h.cfg.Gateway, Organization: h.cfg.Organization, At: now}
		if before.Usage != nil {
			u.Of = before.Usage.Of
		}
	}
	u.Erased = &paper.Deletion{Moment: paper.Moment{At: now, By: h.cfg.By}, Objects: objects, Bytes: bytes}
	h.cfg.Logger.Info("nothing is here any more by an agreement that is over", "agreement", r.ID, "guest", r.Guest, "volumes", objects)
	return h.say(ctx, before, u)
}

// gone deletes what is left of a volume, and returns why something is.
func (h *Host) gone(ctx context.Context, v *federation.Volume, held bool) error {
	state, managed := h.cfg.Copies.State(v.UUID)
	if state.Copy != nil {
		return errors.New("its copy is open, and goes when no other waits for it: " + state.Leaving)
	}
	if held {
		folders := h.cfg.Copies.Salvaged(v.UUID)
		if v.Deleted && !managed { // nobody opens it any more
			folders = append(folders, v.UUID)
		}
		for _, folder := range folders {
			if err := h.cfg.Pools.Remove(folder); err != nil {
				return err
			}
		}
		now, err := h.cfg.Copies.Held()
		if err != nil {
			return err
		}
		if now[v.UUID] {
			return errors.New("its copy is not deleted yet")
		}
	}
	if h.cfg.Store == nil {
		return nil
	}
	var names []string
	if err := h.cfg.Store.List(ctx, v.UUID+"/", func(i store.Info) error {
		names = append(names, i.Name)
		return nil
	}); err != nil {
		return fmt.Errorf("list the site's store: %w", err)
	}
	for _, name := range names {
		if err := h.cfg.Store.Delete(ctx, name); err != nil {
			return fmt.Errorf("delete it from the site's store: %w", err)
		}
	}
	return nil
}
