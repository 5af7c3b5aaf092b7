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
//     site's store. What is here by another right stays. It deletes no copy: that leaves when the
//     volume's record does not name the site, and no other waits for it (copies-3), or by a purge.
//     So the copies of a guest that takes none away stay, and are counted.
//   - lodging-4: a copy that was set aside has changes that a forced takeover left out. It goes
//     when the grace of the agreement is over, not before, and stays while it may be here by
//     another right.
//   - lodging-5: the site's store is emptied by the first gateway of the site, when all others have
//     said that their pools have nothing.
package lodging

import (
	"cmp"
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
	failed map[[2]string]string // what was logged, by agreement and what was to be done
	next   int                  // which of those that are over has its turn
	// empty are volumes of which the store has nothing, by agreement and UUID: in which generation
	// of its record that was seen.
	empty map[[2]string]uint64
	again map[string]pause // when an agreement that is over is looked at again
}

// pause is a wait that becomes longer.
type pause struct {
	until time.Time
	long  time.Duration
}

// New makes a Host.
func New(cfg Config) *Host {
	return &Host{cfg: cfg, failed: map[[2]string]string{}, empty: map[[2]string]uint64{}, again: map[string]pause{}}
}

// lookEvery is how often it looks what there is to say. eraseTime bounds what is deleted in a look,
// and deleteTime one object.
const (
	lookEvery  = 5 * time.Second
	eraseTime  = 10 * time.Second
	deleteTime = 5 * time.Second
	pauseMost  = time.Minute
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

// deal is an agreement with the host's answer, and what this gateway said of it last.
type deal struct {
	*paper.Request
	answer *paper.Answer
	is     paper.At
}

// look counts for all agreements, and then goes on with deleting for one that is over.
func (h *Host) look(ctx context.Context) {
	var all, over []deal
	for _, p := range h.cfg.View.Papers(string(paper.FormRequest) + "/") {
		r := p.Request
		if r == nil || r.Host != h.cfg.Organization || r.Site != h.cfg.Site || r.Kind == paper.KindStore {
			continue
		}
		a, _ := h.cfg.View.Paper(paper.AnswerName(r.ID))
		d := deal{Request: r, answer: a.Answer}
		d.is, _ = h.cfg.View.Paper(paper.UsageName(r.ID, paper.Host, h.cfg.Gateway))
		if a.Answer == nil || a.Answer.Ready == nil || !r.Agrees(a.Answer) || a.Answer.Deleted != nil ||
			d.is.Usage != nil && d.is.Usage.Erased != nil {
			continue
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		return
	}
	copies := slices.ContainsFunc(all, func(d deal) bool { return d.Kind == paper.KindCopy })
	held, err := h.cfg.Copies.Held(func(id string) bool {
		v, ok := h.cfg.View.Record(id)
		return copies && ok && v.Owner != h.cfg.Organization
	})
	if err != nil {
		h.notes(ctx, deal{Request: &paper.Request{}}, "list", err)
		return
	}
	for _, d := range all {
		said, err := h.count(ctx, d, held)
		h.notes(ctx, d, "count", err)
		if err == nil && !said && d.answer.Deleting != nil && d.Kind == paper.KindCopy && !h.cfg.Now().Before(h.again[d.ID].until) {
			over = append(over, d)
		}
	}
	if len(over) == 0 {
		return
	}
	h.next = (h.next + 1) % len(over)
	d := over[h.next]
	err = h.erase(ctx, d, held)
	if h.notes(ctx, d, "delete", err); err != nil {
		long := min(max(2*h.again[d.ID].long, lookEvery), pauseMost)
		h.again[d.ID] = pause{h.cfg.Now().Add(long), long}
	}
}

// notes logs what failed of an agreement, once.
func (h *Host) notes(ctx context.Context, d deal, what string, err error) {
	key := [2]string{d.ID, what}
	switch {
	case err == nil:
		delete(h.failed, key)
	case ctx.Err() == nil && h.failed[key] != err.Error():
		h.failed[key] = err.Error()
		h.cfg.Logger.Warn("what an agreement asks of this gateway is not done yet; it is tried again", "agreement", d.ID,
			"guest", d.Guest, "to", what, "error", err)
	}
}

// count says what is taken here, when it is time for that, and reports whether it did or will soon.
func (h *Host) count(ctx context.Context, d deal, held map[string]bool) (said bool, err error) {
	taken := h.cfg.View.Lodged(d.Request, func(v *view.Volume) bool { return d.Kind != paper.KindCopy || held[v.UUID] })
	_, site, _ := h.cfg.View.Gateway(h.cfg.Gateway) // each gateway of it has the same copies
	taken = min(taken, d.Amount) / federation.Bytes(max(len(site.Gateways), 1))
	u, wait := d.Lodged(h.cfg.Gateway, h.cfg.Organization, d.is.Usage, taken, h.cfg.Now())
	if u == nil || wait > 0 {
		return u != nil && u.Of[d.Site].Stored != d.is.Usage.Of[d.Site].Stored, nil
	}
	return true, h.say(ctx, d, u)
}

// say writes what was counted in place of what was said before.
func (h *Host) say(ctx context.Context, d deal, u *paper.Usage) error {
	return h.cfg.Registry.PutPapers(ctx, paper.At{Paper: paper.Paper{Usage: u}, Revision: d.is.Revision})
}

// erase deletes what is left of the guest's volumes, and says so when it is gone.
func (h *Host) erase(ctx context.Context, d deal, held map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, eraseTime)
	defer cancel()
	if err := h.cfg.Registry.Trusted(); err != nil {
		return err
	}
	for _, p := range h.cfg.View.Purges() {
		if slices.Contains(p.Pending, h.cfg.Gateway) {
			return fmt.Errorf("volume %s was purged, and is not gone yet", p.Volume)
		}
	}
	left, err := h.left(ctx, d, held)
	if err != nil {
		return err
	}
	first, err := h.first(d)
	if err != nil {
		return err
	}
	var bytes federation.Bytes
	for _, v := range left {
		bytes += v.Spec.Size
		key := [2]string{d.ID, v.UUID}
		if generation, seen := h.empty[key]; !first || h.cfg.Store == nil || seen && generation == v.Generation {
			continue
		}
		if err := h.emptyStore(ctx, v); err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
		h.empty[key] = v.Generation
	}
	now := h.cfg.Now().UTC().Truncate(time.Second)
	u := &paper.Usage{ID: d.ID, Guest: d.Guest, Host: d.Host, By: h.cfg.Gateway, Organization: h.cfg.Organization, At: now,
		Erased: &paper.Deletion{Moment: paper.Moment{At: now, By: h.cfg.By}, Objects: int64(len(left)), Bytes: bytes}}
	if was := d.is.Usage; was != nil {
		if u.Of = was.Of; was.At.After(now) { // a clock went back
			u.At = was.At
		}
	}
	h.cfg.Logger.Info("nothing is here any more by an agreement that is over", "agreement", d.ID, "guest", d.Guest, "volumes", len(left))
	return h.say(ctx, d, u)
}

// left are the guest's volumes that were here, and of which the pools have nothing any more: what
// was set aside goes. It returns why something stays.
func (h *Host) left(ctx context.Context, d deal, held map[string]bool) (out []*federation.Volume, err error) {
	all, _ := h.cfg.View.Volumes()
	for _, v := range all {
		is := v.Record
		switch {
		case is == nil && v.Problem != nil:
			return nil, fmt.Errorf("volume %s: its record cannot be read: %w", v.UUID, v.Problem)
		case is == nil || is.Owner == h.cfg.Organization:
		case slices.Contains(is.Sites, h.cfg.Site) && is.Owner == d.Guest && slices.Contains(is.Agreed, d.ID):
			return nil, fmt.Errorf("volume %s is to have a copy here, by its record: its owner takes that away", is.Name)
		case slices.Contains(is.Sites, h.cfg.Site), !slices.Contains(is.Former, h.cfg.Site): // by another right, or never
		case is.Owner != d.Guest: // it was the guest's before, maybe
			if held[is.UUID] {
				return nil, fmt.Errorf("volume %s: its copy is not deleted yet", is.Name)
			}
		default:
			stays, err := h.pools(ctx, d, is, held[is.UUID])
			if err != nil {
				return nil, fmt.Errorf("volume %s: %w", is.Name, err)
			}
			if !stays {
				out = append(out, is)
			}
		}
	}
	return out, nil
}

// pools deletes what was set aside of a volume. stays: that may be here by another right. It
// returns why something else is on the pools.
func (h *Host) pools(ctx context.Context, d deal, v *federation.Volume, held bool) (stays bool, err error) {
	if state, _ := h.cfg.Copies.State(v.UUID); state.Copy != nil {
		return false, errors.New("its copy is open, and goes when no other waits for it: " + state.Leaving)
	}
	if !held {
		return false, nil
	}
	aside := h.cfg.Copies.Salvaged(v.UUID)
	if len(aside) > 0 && h.otherRight(d) {
		return true, nil
	}
	if grace := d.Life(d.answer, h.cfg.Now()).Grace; len(aside) > 0 && h.cfg.Now().Before(grace) {
		return false, fmt.Errorf("a copy that was set aside is kept until %s, when the grace is over", grace.UTC().Format(time.RFC3339))
	}
	if len(aside) > 0 {
		if err := h.goes(ctx, v); err != nil {
			return false, err
		}
	}
	for _, folder := range aside {
		if err := h.cfg.Pools.Remove(folder); err != nil {
			return false, err
		}
	}
	if now, err := h.cfg.Copies.Held(func(id string) bool { return id == v.UUID }); err != nil || now[v.UUID] {
		return false, cmp.Or(err, errors.New("its copy is not deleted yet: it goes when no other waits for it, or when it is purged"))
	}
	return false, nil
}

// otherRight reports whether what the guest has here may be here by another right than an
// agreement: the site lends to it, or there is another one of which the grace is not over.
func (h *Host) otherRight(d deal) bool {
	if site, _ := h.cfg.View.Site(h.cfg.Site); site.Takes(d.Guest) {
		return true
	}
	now := h.cfg.Now()
	return slices.ContainsFunc(h.cfg.View.Papers(string(paper.FormRequest)+"/"), func(p paper.At) bool {
		r := p.Request
		if r == nil || r.ID == d.ID || r.Kind != paper.KindCopy || r.Guest != d.Guest || r.Site != h.cfg.Site {
			return false
		}
		a, _ := h.cfg.View.Paper(paper.AnswerName(r.ID))
		return r.Agrees(a.Answer) && now.Before(r.Life(a.Answer, now).Grace)
	})
}

// first reports whether this gateway empties the site's store. The first one of the site does, when
// all others have said that their pools have nothing; until then err says who has not.
func (h *Host) first(d deal) (is bool, err error) {
	_, site, _ := h.cfg.View.Gateway(h.cfg.Gateway)
	var names []string
	for _, g := range site.Gateways {
		names = append(names, g.Name)
	}
	if slices.Sort(names); len(names) == 0 || names[0] != h.cfg.Gateway {
		return false, nil
	}
	for _, g := range names[1:] {
		if p, _ := h.cfg.View.Paper(paper.UsageName(d.ID, paper.Host, g)); p.Usage == nil || p.Usage.Erased == nil {
			return false, fmt.Errorf("gateway %s of this site has not said yet that nothing is on its pools", g)
		}
	}
	return true, nil
}

// goes returns why a volume may have something here, as read with a quorum.
func (h *Host) goes(ctx context.Context, v *federation.Volume) error {
	is, _, err := h.cfg.Registry.GetVolume(ctx, v.UUID)
	if err != nil {
		return err
	}
	ctl, _, err := h.cfg.Registry.GetControl(ctx, v.UUID)
	if err != nil && !errors.Is(err, federation.ErrNotFound) { // nobody ever led it
		return err
	}
	switch {
	case h.cfg.Registry.Trusted() != nil:
		return h.cfg.Registry.Trusted()
	case is.Deleted:
		return errors.New("it is in the trash: what is in the site's store goes with it")
	case slices.Contains(is.Sites, h.cfg.Site),
		slices.ContainsFunc(ctl.Members, func(m federation.Member) bool { return m.Site == h.cfg.Site }):
		return errors.New("the site is to have a copy again, or still counts as a member")
	}
	return nil
}

// emptyStore deletes what the site's store has of a volume.
func (h *Host) emptyStore(ctx context.Context, v *federation.Volume) error {
	if err := h.goes(ctx, v); err != nil {
		return err
	}
	var names []string
	if err := h.cfg.Store.List(ctx, v.UUID+"/", func(i store.Info) error {
		names = append(names, i.Name)
		return nil
	}); err != nil {
		return fmt.Errorf("list the site's store: %w", err)
	}
	for _, name := range names {
		if err := h.unused(v); err != nil {
			return err
		}
		if err := h.drop(ctx, name); err != nil {
			return fmt.Errorf("delete it from the site's store: %w", err)
		}
	}
	return nil
}

// unused returns why the site's store may be used for a volume since: the site is to have a copy
// again, or one is open here, or another gateway of the site is a member.
func (h *Host) unused(v *federation.Volume) error {
	is := h.cfg.View.Volume(v.UUID)
	state, _ := h.cfg.Copies.State(v.UUID)
	switch {
	case is == nil || is.Record == nil:
		return errors.New("nothing is known of it any more")
	case slices.Contains(is.Record.Sites, h.cfg.Site), is.Record.Deleted, state.Copy != nil:
		return errors.New("the site is to have a copy again, or it is in the trash")
	case is.Control != nil && slices.ContainsFunc(is.Control.Members, func(m federation.Member) bool { return m.Site == h.cfg.Site }):
		return errors.New("a gateway of this site is a member")
	}
	return nil
}

func (h *Host) drop(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	return h.cfg.Store.Delete(ctx, name)
}
