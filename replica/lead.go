// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"time"

	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/protocol"
)

// leader is the goroutine that has the machine lead.
type leader struct {
	stop context.CancelFunc // called under Replica.mu; nil: there was none
	done chan struct{}
}

// leadAgain is how long a machine that can not lead rests, for instance because there is no room.
const leadAgain = time.Second

func (r *Replica) roleChanged(e protocol.RoleChanged) {
	r.cfg.Logger.Info("role", "role", e.Role.String(), "epoch", e.Epoch)
	r.mu.Lock()
	if e.Role == protocol.Home {
		defer r.mu.Unlock()
		if r.closed {
			return
		}
		r.paused = false
		r.signal()
		if r.accepts && r.epoch == e.Epoch { // a move that came to nothing
			return
		}
		ctx, stop := context.WithCancel(r.ctx)
		l := leader{stop, make(chan struct{})}
		r.accepts, r.epoch, r.leader, r.lag.caught = true, e.Epoch, l, nil
		r.work.Go(func() {
			defer close(l.done)
			r.lead(ctx, e.Epoch)
		})
		return
	}
	was := r.leading
	r.leading, r.accepts, r.paused = false, false, false
	l := r.leader
	r.leader = leader{}
	if l.stop != nil {
		l.stop()
	}
	r.abandon(journal.ErrNotHome)
	r.signal()
	r.mu.Unlock()
	// Nothing may be cut or taken in before the machine has stopped; one that is only about to lead would go on to do so.
	if l.done != nil {
		<-l.done
	}
	if was {
		r.cfg.Machine.Unlead()
	}
}

// lead lets the machine lead once it applied everything; until then nobody is served. The end of ctx ends the reign.
func (r *Replica) lead(ctx context.Context, epoch uint64) {
	for {
		err := r.cfg.Machine.Lead(ctx, epoch)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		r.cfg.Logger.Error("can not lead; trying again", "epoch", epoch, "error", err)
		select {
		case <-r.node.cfg.Timers.After(leadAgain):
		case <-ctx.Done():
			return
		}
	}
	r.mu.Lock()
	ok := ctx.Err() == nil
	r.leading = ok
	r.signal()
	r.mu.Unlock()
	if !ok {
		r.cfg.Machine.Unlead()
	}
}
