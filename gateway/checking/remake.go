// SPDX-License-Identifier: Apache-2.0

package checking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/copies"
)

// errRemade: why a copy is closed and opened again.
var errRemade = errors.New("a check found its metadata damaged, and a person has them made anew")

// anew returns what a report says of metadata that are wrong, and that the log may have right.
func (r *Report) anew() (out []*Damage) {
	for i := range r.Damage {
		if d := &r.Damage[i]; d.Where == Metadata && !d.Repaired && d.Kind != fsck.Unreadable {
			out = append(out, d)
		}
	}
	return out
}

// remakeAgain is how often it is looked whether a copy is open again.
const remakeAgain = 100 * time.Millisecond

// remake has the metadata of a copy made anew, if the report says that they are damaged: from the
// home's newest checkpoint, or, if the copy made another one, from the newest that both made alike;
// and from the copy's own log (checking-5). The copy is closed meanwhile. Then it is checked again,
// and the report says what is right now.
func (s *Checks) remake(ctx context.Context, v federation.Volume, c *copies.Copy, r *Report, tell func(Progress)) error {
	wrong := r.anew()
	// What the volume uses is counted again by the home, for all copies.
	counts := func(d *Damage) bool { return d.Kind == fsck.Quota && d.Inode == 0 }
	if r.Blind || !slices.ContainsFunc(wrong, func(d *Damage) bool { return !counts(d) }) {
		return nil
	}
	home, err := s.isHome(ctx, c)
	if err != nil {
		return err
	}
	if r.Home || home {
		for _, d := range wrong {
			if counts(d) {
				continue
			}
			d.Detail += ": not repaired: this gateway is the volume's home"
			d.Advice = fmt.Sprintf("make another gateway the home with `weir failover %s`, and check here again with --repair", v.Name)
		}
		return nil
	}
	keeper := s.cfg.Copies.Checkpoints()
	is := keeper.Condition(v.UUID)
	how := &checkpoints.Anew{After: is.Led, Ended: make(chan error, 1)} // the newest, unless that is in question
	if is.Differs != 0 {
		how.Alike = is.Alike
	} else {
		how.Whole = true
	}
	// What breaks a rule is damaged here. What is only otherwise may be right here.
	rules := slices.ContainsFunc(wrong, func(d *Damage) bool { return !counts(d) && d.Kind != KindCheckpoint })
	if is.Differs != 0 && is.Alike == (checkpoint.Hash{}) && !rules {
		for _, d := range wrong {
			d.Detail += ": not repaired: no checkpoint is known that this copy made as another home did"
			d.Advice = "see the runbook WeirCheckpointDiffers"
		}
		return nil
	}
	s.cfg.Logger.Warn("the metadata of this copy are damaged, and are made anew by a person's word", "volume", v.Name,
		"findings", len(wrong))
	keeper.Hold(v.UUID)
	s.cfg.Copies.BeginsAnew(v.UUID, how, errRemade)
	again, why, err := s.reopened(ctx, v, c, how.Ended, tell)
	keeper.Release(v.UUID, err == nil && why == nil)
	if err != nil {
		return err
	}
	if why != nil {
		for _, d := range wrong {
			if !counts(d) {
				d.Detail += ": not repaired: " + why.Error()
			}
		}
		return nil
	}
	now, err := s.run(ctx, again, Config{Volume: v.UUID, Progress: tell})
	if err != nil || now == nil {
		return fmt.Errorf("the metadata are made anew, and not checked again: %w", err)
	}
	r.remade(now)
	return nil
}

// isHome reports whether a copy's gateway is the volume's home, whether it can serve just now or
// not.
func (s *Checks) isHome(ctx context.Context, c *copies.Copy) (bool, error) {
	_, done, err := c.Use(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	_, leads := c.Leading()
	ctl := c.Replica.Status().Control
	return leads || ctl != nil && ctl.Home.Gateway == s.cfg.Gateway, nil
}

// remade notes what is right after the metadata were made anew, which now is about, and what is
// wrong since.
func (r *Report) remade(now *Report) {
	type what struct {
		kind  fsck.Kind
		path  string
		inode uint64
	}
	left := map[what]*Damage{}
	for _, d := range now.anew() {
		left[what{d.Kind, d.Path, d.Inode}] = d
	}
	known := map[what]bool{}
	for _, d := range r.anew() {
		is := what{d.Kind, d.Path, d.Inode}
		known[is] = true
		if left[is] == nil {
			if d.Repaired, d.Advice = true, ""; d.Kind == KindCheckpoint {
				d.Detail += ": they are made anew from the log; if the next checkpoint differs too, the home's are damaged"
			}
		} else if d.Kind != fsck.Quota || d.Inode != 0 {
			d.Detail += ": not repaired: the checkpoint, or the log, has it so"
			d.Advice = adviceSender
		}
	}
	for is, d := range left {
		if !known[is] {
			r.add(*d)
		}
	}
	r.More = now.More
}

// reopened waits until it is known how a copy began anew, and it is open again; why: it did not
// begin anew.
func (s *Checks) reopened(ctx context.Context, v federation.Volume, was *copies.Copy, ended <-chan error,
	tell func(Progress)) (_ *copies.Copy, why, err error) {
	known, waits := false, 0
	for {
		tell(Progress{Step: "making the metadata anew"})
		is, _ := s.cfg.Copies.State(v.UUID)
		if _, there := s.cfg.View.Record(v.UUID); !there {
			return nil, nil, fmt.Errorf("volume %s was deleted meanwhile", v.Name)
		}
		if open := is.Copy != nil && is.Copy != was; open && known {
			return is.Copy, why, nil
		} else if open {
			if waits++; waits > 50 { // it was opened otherwise than to begin anew
				return is.Copy, errors.New("it was opened as it was"), nil
			}
		}
		select {
		case why = <-ended:
			known, ended = true, nil
		case <-s.cfg.Timers.After(remakeAgain):
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("the metadata of volume %s are being made anew: %w", v.Name, ctx.Err())
		}
	}
}
