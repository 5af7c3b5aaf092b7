// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"time"

	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/protocol"
)

// leader is the goroutine that makes the machine lead.
type leader struct {
	stop context.CancelFunc // called under Replica.mu; nil: there is no such goroutine
	done chan struct{}
}

// leadAgain is the wait before a machine that could not lead tries again. A full pool is one
// reason.
const leadAgain = time.Second

func (r *Replica) roleChanged(e protocol.RoleChanged) {
	r.cfg.Logger.Info("role", "role", e.Role.String(), "epoch", e.Epoch)
	r.node.cfg.Meter.Role(r.cfg.Volume, e.Role)
	r.mu.Lock()
	r.timed = timed{}
	if e.Role == protocol.Home && !r.cfg.Blind {
		defer r.mu.Unlock()
		if r.closed {
			return
		}
		r.paused = false
		r.signal()
		ctx, stop := context.WithCancel(r.ctx)
		l := leader{stop, make(chan struct{})}
		r.accepts, r.epoch, r.leader, r.caught = true, e.Epoch, l, nil
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
	// The log must not be cut or extended before the machine has stopped. A machine that is only
	// about to lead would otherwise still do so.
	if l.done != nil {
		<-l.done
	}
	if was {
		r.cfg.Machine.Unlead()
	}
	if e.Role == protocol.Failed && !r.disowned {
		r.mu.Lock()
		why := r.why
		r.mu.Unlock()
		r.cfg.Ended(why)
	}
}

// lead makes the machine lead, and tries again until it does. Nobody is served before. The end of
// ctx ends the reign.
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
