// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/copies"
)

// openings are the reports of volumes whose home is here, and has not opened its copy yet: it
// replays its log, for minutes perhaps, while its gateway has a heartbeat (report-2). This gateway
// writes its own report of a volume, as a home that serves does: the two never exist at once.
type openings struct {
	p    *Reporter
	last map[string]*Written // by UUID
}

// keep forgets the volumes that are not in all.
func (o *openings) keep(all []copies.Opening) {
	there := map[string]bool{}
	for _, v := range all {
		there[v.UUID] = true
	}
	for id := range o.last {
		if !there[id] {
			delete(o.last, id)
		}
	}
}

// report writes why a copy is not open, if the volume's home is here and it is time for that. Of
// many volumes each is written the seldomer.
func (o *openings) report(ctx context.Context, v copies.Opening, of int) error {
	if home, _ := o.p.cfg.View.Home(v.UUID); home != o.p.cfg.Gateway {
		return nil
	}
	last := o.last[v.UUID]
	if last == nil {
		all, err := o.p.cfg.Registry.ListObserved(ctx, v.UUID)
		if err != nil {
			return err
		}
		last = &Written{Observed: before(all, v.UUID, o.p.cfg.Gateway, o.p.cfg.Now())}
		o.last[v.UUID] = last
	}
	now := o.p.cfg.Now()
	next := opening(last.Observed, v)
	if next.Opening == last.Observed.Opening || now.Sub(last.At) < max(observeCopy, time.Duration(of)*observeShare) {
		return nil
	}
	if err := o.p.cfg.Registry.PutObserved(ctx, next); err != nil {
		return err
	}
	last.Observed, last.At = next, now
	return nil
}

// before is what this gateway reported before it opens a volume. Its time stays that of its
// figures: from then on writes may be here alone.
func before(all []federation.Observed, uuid, gateway string, now time.Time) federation.Observed {
	for _, o := range all {
		if o.Gateway == gateway {
			return o
		}
	}
	return federation.Observed{Volume: uuid, Gateway: gateway, At: now}
}

// opening is a report of before, with why the copy is not open.
func opening(before federation.Observed, v copies.Opening) federation.Observed {
	o := before
	o.Home, o.Opening, o.Replay, o.Message = before.Gateway, v.Why.Error(), v.Replay, v.Why.Error()
	return o
}
