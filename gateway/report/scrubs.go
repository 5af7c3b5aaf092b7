// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weir-storage/weir/gateway/copies"
)

// scrubs writes how copies are that were read again, of volumes whose home is elsewhere. A home
// writes it with what else it observes. Only the goroutine that observes uses it.
type scrubs struct {
	p    *Reporter
	news map[string]bool // volumes, by UUID
}

// left returns the volumes of which there is something to write.
func (s *scrubs) left(homes []*copies.Copy) []string {
	for _, id := range s.p.cfg.Scrubs.News() {
		s.news[id] = true
	}
	for _, c := range homes {
		delete(s.news, c.UUID)
	}
	return slices.Sorted(maps.Keys(s.news))
}

// report writes how a copy is. All else that this gateway reported when it was home stays, with its
// time.
func (s *scrubs) report(ctx context.Context, id string) error {
	v, ok := s.p.cfg.View.Record(id)
	if !ok || v.Deleted {
		delete(s.news, id)
		return nil
	}
	all, err := s.p.cfg.Registry.ListObserved(ctx, id)
	if err != nil {
		return err
	}
	o := before(all, id, s.p.cfg.Gateway, time.Time{})
	o.Scrub = s.p.cfg.Scrubs.Scrubbed(id)
	if err := s.p.cfg.Registry.PutObserved(ctx, o); err != nil {
		return err
	}
	delete(s.news, id)
	return nil
}
