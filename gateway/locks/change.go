// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"fmt"

	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// change is a change that another gateway has under way at this home.
type change struct {
	gateway string
	cancel  context.CancelFunc
	left    chan struct{} // closed when it has ended
}

// Enter admits a change of the session's gateway until leave is called. The context ends when the
// reign does, or when the gateway registers anew. After ErrNotHome, ErrRegister or ErrDelay the
// change must not be executed.
func (s Session) Enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	reg, older := t.registered[s.gateway], s.reg == (forward.Registration{})
	switch {
	case t.reign == 0:
		return ctx, nil, journal.ErrNotHome
	case reg != nil && !reg.changes && older: // an older program's change, which looks like a late one
	case !s.isNewest() && older: // an older program that believes to be registered would repeat at once after ErrRegister
		return ctx, nil, fmt.Errorf("%w: gateway %s has to register with this home before it changes anything", volume.ErrDelay, s.gateway)
	case !s.isNewest():
		return ctx, nil, forward.ErrRegister
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &change{s.gateway, cancel, make(chan struct{})}
	t.running[c] = struct{}{}
	return ctx, func() {
		cancel()
		t.mu.Lock()
		delete(t.running, c)
		t.mu.Unlock()
		close(c.left)
	}, nil
}

// cancel ends a gateway's changes, or with "" those of all, and returns them. The caller holds mu.
// Once they have left, their records in the log come before all that others do later, and no more
// of them are added.
func (t *Table) cancel(gateway string) (ending []*change) {
	for c := range t.running {
		if gateway == "" || c.gateway == gateway {
			c.cancel()
			ending = append(ending, c)
		}
	}
	return ending
}

// await waits until changes have left, or for the end of ctx.
func await(ctx context.Context, changes []*change) error {
	for _, c := range changes {
		select {
		case <-c.left:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
