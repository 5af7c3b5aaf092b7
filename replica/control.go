// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/protocol"
)

// registryPatience bounds one operation of the registry. The protocol asks again later. A swap
// makes up to three calls, and what the registry says of one that took too long tells more than the
// end of our own patience: this is longer than the deadlines of three (package federation/etcd).
const registryPatience = 20 * time.Second

// readControl reads the control record in the background, one read at a time.
func (r *Replica) readControl() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reading || r.closed {
		return
	}
	r.reading = true
	r.work.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, registryPatience)
		defer cancel()
		ctl, rev, err := r.node.cfg.Registry.GetControl(ctx, r.cfg.Volume)
		r.mu.Lock()
		r.reading = false
		r.mu.Unlock()
		switch {
		case err == nil:
			r.controlChanged(&ctl, rev)
		case errors.Is(err, federation.ErrNotFound):
			r.controlChanged(nil, 0)
		default:
			r.cfg.Logger.Debug("control record can not be read", "error", err)
		}
	})
}

// controlChanged accepts a control record that was read or watched.
func (r *Replica) controlChanged(ctl *federation.Control, rev federation.Revision) {
	r.post(protocol.ControlRead{Control: ctl, Revision: rev})
	r.mu.Lock()
	r.signal()
	r.mu.Unlock()
}

func (r *Replica) swap(e protocol.Swap) {
	outcome, rev := r.trySwap(e)
	r.node.cfg.Meter.Swapped(outcome)
	r.mu.Lock()
	switch outcome {
	case protocol.SwapDone, protocol.SwapConflict:
		r.swapPause = 0
	default: // a registry that fails at once is not asked again at once
		r.swapPause = min(max(2*r.swapPause, swapPauseFirst), swapPauseMost)
	}
	pause := r.swapPause
	r.mu.Unlock()
	if pause > 0 {
		select {
		case <-r.node.cfg.Timers.After(pause):
		case <-r.ctx.Done():
		}
	}
	r.post(protocol.Swapped{Outcome: outcome, Revision: rev})
}

// How long the outcome of a swap that failed is held back.
const (
	swapPauseFirst = 50 * time.Millisecond
	swapPauseMost  = 2 * time.Second
)

func (r *Replica) trySwap(e protocol.Swap) (protocol.SwapOutcome, federation.Revision) {
	ctx, cancel := context.WithTimeout(r.ctx, registryPatience)
	defer cancel()
	rev, err := r.node.cfg.Registry.SwapControl(ctx, r.cfg.Volume, e.Previous, e.Next)
	outcome := protocol.SwapUnknown // the protocol reads the record and tries again
	switch {
	case err == nil:
		outcome = protocol.SwapDone
		r.cfg.Logger.Info("control record", "epoch", e.Next.Epoch, "home", e.Next.Home.Gateway, "members", len(e.Next.Members))
	case errors.Is(err, federation.ErrConflict):
		outcome = protocol.SwapConflict
	case errors.Is(err, federation.ErrUnknown):
		r.cfg.Logger.Warn("outcome of the swap of the control record is not known; it is read again", "error", err)
	case errors.Is(err, federation.ErrUnavailable), errors.Is(err, federation.ErrAccess), errors.Is(err, federation.ErrInvalid),
		errors.Is(err, federation.ErrRewound):
		outcome = protocol.SwapNotMade
		r.cfg.Logger.Error("control record was not swapped", "error", err)
	default:
		r.cfg.Logger.Warn("outcome of the swap of the control record is not known; it is read again", "error", err)
	}
	return outcome, rev
}

// proved reports whether a message of kind k carries a proof.
func proved(k protocol.Kind) bool { return k == protocol.Welcome || k == protocol.Refuse }

// proof returns the HMAC that proves that a gateway can unwrap the data key: to a home, that a
// follower may become a member (protocol-17), and to anybody, that a refusal comes from a gateway
// that may know what is committed (protocol-3).
func proof(key [32]byte, volume string, m protocol.Member, epoch uint64) []byte {
	h := hmac.New(sha256.New, key[:])
	_, _ = h.Write(fmt.Appendf(nil, "weir member 1\n%s\n%s\n%d", volume, m, epoch)) // never fails
	return h.Sum(nil)
}

// proves reports whether a message comes with a proof. A follower that has not heard of the newest
// data key yet may prove with the one before. A refusal needs the newest: who has only an older one
// is not to know anything of the volume any more.
func (r *Replica) proves(given []byte, m protocol.Message) bool {
	number, key := r.cfg.Keys.Newest()
	if proves(given, key, r.cfg.Volume, m.From, m.Epoch) {
		return true
	}
	for _, n := range []uint32{number + 1, number - 1} { // followers begin with a new one before the home does
		other, ok := r.cfg.Keys.Get(n)
		if ok && (m.Kind == protocol.Welcome || n == number+1) && proves(given, other, r.cfg.Volume, m.From, m.Epoch) {
			return true
		}
	}
	return false
}

func proves(given []byte, key [32]byte, volume string, m protocol.Member, epoch uint64) bool {
	return hmac.Equal(given, proof(key, volume, m, epoch))
}
