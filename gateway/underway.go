// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"

	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// changeUnderWay is a change that another gateway has under way at this home. lockTable has those that run, guarded by its mu.
type changeUnderWay struct {
	gateway string
	cancel  context.CancelFunc
	left    chan struct{} // closed when it has ended
}

// enter lets a change of another gateway in, until leave is called; its context ends when the reign does, or when the gateway registers anew.
// ErrNotHome, ErrRegister, ErrDelay: it must not be executed.
func (s lockSession) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reg := s.registered[s.gateway]
	switch {
	case s.reign == 0:
		return ctx, nil, journal.ErrNotHome
	case reg != nil && !reg.changes && s.reg == (forward.Registration{}): // an older program's, which can not be told from a late one
	case !s.isNewest() && s.reg == (forward.Registration{}): // to ErrRegister, an older program that takes itself to be registered comes back at once
		return ctx, nil, fmt.Errorf("%w: gateway %s has to register with this home before it changes anything", volume.ErrDelay, s.gateway)
	case !s.isNewest():
		return ctx, nil, forward.ErrRegister
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &changeUnderWay{s.gateway, cancel, make(chan struct{})}
	s.underWay[c] = struct{}{}
	return ctx, func() {
		cancel()
		s.mu.Lock()
		delete(s.underWay, c)
		s.mu.Unlock()
		close(c.left)
	}, nil
}

// endChanges ends a gateway's changes, or with "" everybody's, and returns them; mu is held. When they have left, what is in the log of them is
// before all that others do later; what is not never will be.
func (l *lockTable) endChanges(gateway string) (ending []*changeUnderWay) {
	for c := range l.underWay {
		if gateway == "" || c.gateway == gateway {
			c.cancel()
			ending = append(ending, c)
		}
	}
	return ending
}

// awaitEnd waits until changes have left, or for the end of ctx.
func awaitEnd(ctx context.Context, changes []*changeUnderWay) error {
	for _, c := range changes {
		select {
		case <-c.left:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
